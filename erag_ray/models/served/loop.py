"""An event loop in a thread: coroutines from code that has none, and from within a loop that already runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class LoopThread:
    """Runs coroutines in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name="served").start()

    def start(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Start a coroutine function; its result comes by the future, whose ``cancel`` cancels it."""
        return asyncio.run_coroutine_threadsafe(function(*args, **kwargs), self._loop)

    def result(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return a coroutine's result, or raise what it raises."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
