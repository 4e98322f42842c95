"""Plain loops over arrays -> the same, compiled by numba at their first call."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def num_processors() -> int:
    """How many this process may use; all there are where the system does not say (macOS)."""
    may_use = getattr(os, "sched_getaffinity", None)
    return len(may_use(0)) if may_use else os.cpu_count() or 1


def in_threads(work: Callable[[T], R], parts: Sequence[T]) -> list[R]:
    """What is done with each part, on all processors: for loops that are compiled, and products of matrices."""
    num_threads = min(len(parts), num_processors())
    if num_threads < 2:
        return [work(one) for one in parts]
    with ThreadPoolExecutor(num_threads) as pool:
        return list(pool.map(work, parts))


def compiled_with(**options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A function that loops over arrays, compiled; it lets other threads run meanwhile.

    numba is imported and the loop compiled when it is first called; what was compiled is kept beside its source.

    Args:
        options: of `numba.njit`, such as ``fastmath``: the liberties that it may take with sums.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        # threads that come first together wait for one of them, or each would compile it
        lock = threading.Lock()

        @functools.cache
        def fast() -> Any:
            import numba

            try:
                return numba.njit(cache=True, nogil=True, **options)(function)
            except RuntimeError:
                # nowhere to keep it: it is compiled in every process
                return numba.njit(nogil=True, **options)(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with lock:
                loop = fast()
            result: R = loop(*args, **kwargs)
            return result

        return call

    return decorate


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """`compiled_with` no liberties."""
    return compiled_with()(function)
