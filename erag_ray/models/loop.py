"""An event loop in a thread: runs coroutines from synchronous code, even inside another running event loop."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

FINISH_SECONDS = 2.0
WAKE_SECONDS = 0.5
"""The longest wait in one call: with a handler of SIGINT like that of polars, Ctrl-C interrupts no longer one."""
T = TypeVar("T")


class LoopThread:
    """Runs coroutines in a background thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(self._loop,), daemon=True, name="served")
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine; return the future of its result, whose ``cancel`` cancels it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def result(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = self.start(coroutine)
        while not future.done():
            concurrent.futures.wait([future], timeout=WAKE_SECONDS)
        return future.result()

    def finish(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a last coroutine function, wait for it at most `FINISH_SECONDS`, and stop the loop."""
        self.start(function()).add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
        # the finalizer that calls this may run in the thread itself, which cannot join itself
        if threading.current_thread() is not self._thread:
            self._thread.join(FINISH_SECONDS)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()
