"""Just-in-time compilation of loops over arrays by numba, and threads to run them in."""

import functools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from erag_ray.support.threads import num_cpus

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def in_threads(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Map a function over items with a thread for each CPU; for compiled loops and matrix products."""
    if (num_threads := min(len(items), num_cpus())) < 2:
        return list(map(function, items))
    with ThreadPoolExecutor(num_threads) as pool:
        return list(pool.map(function, items))


def compiled_with(**options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that compiles a function with `numba.njit` and releases the GIL while it runs.

    numba is imported and the function compiled at the first call; numba caches the result next to the source file.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        # without the lock, threads that make the first call at the same time would each compile
        lock = threading.Lock()

        @functools.cache
        def fast() -> Any:
            import numba

            try:
                return numba.njit(cache=True, nogil=True, **options)(function)
            except RuntimeError:
                # no writable cache folder: every process compiles
                return numba.njit(nogil=True, **options)(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with lock:
                jitted = fast()
            result: R = jitted(*args, **kwargs)
            return result

        return call

    return decorate


compiled = compiled_with()
"""Decorator with the default options."""
