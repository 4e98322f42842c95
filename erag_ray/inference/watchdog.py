"""A watchdog that ends the process of a reader if loading its model, or a batch, takes too long."""

import contextlib
import faulthandler
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Literal

MaxBatchSeconds = float | Literal["auto"] | None
"""Limit of a batch in seconds; "auto": by the slowest one so far; None: no limit."""
LOAD_SECONDS = 3600.0
"""Limit of loading, which may download files, and of a process's first batch, which may compile kernels."""
MIN_BATCH_SECONDS, SLOWEST_FACTOR = 600.0, 20
CHECK_SECONDS, END_SECONDS = 0.5, 10.0
"""Interval of the checks, and how long the end of the process may take."""
STDERR = 2


class Watchdog:
    """Ends this process if loading or a batch takes too long: nothing else interrupts native code.

    A thread checks the time. Since native code that holds Python's global lock stops this thread too, it always sets a
    timer of `faulthandler`, which needs no lock. Both write the stacks of all threads to standard error.
    """

    def __init__(self, seconds: MaxBatchSeconds, end: Callable[[TimeoutError], None]) -> None:
        self.slowest = 0.0
        """Seconds of the slowest batch so far."""
        self._seconds, self._end = seconds, end
        self._step, self._start, self._limit = "", 0.0, math.inf
        self._timer_end = math.inf
        if seconds is not None:
            threading.Thread(target=self._watch, daemon=True).start()

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """While open, the model is loaded."""
        seconds = self._seconds if isinstance(self._seconds, float) else 0.0
        self._begin("loading the model", max(LOAD_SECONDS, seconds))
        try:
            yield
        finally:
            self._limit = math.inf

    def start(self) -> None:
        """Start to measure a batch, which ends with a response."""
        if self._seconds is None:
            return
        limit = max(MIN_BATCH_SECONDS, SLOWEST_FACTOR * self.slowest) if self.slowest else LOAD_SECONDS
        self._begin("a batch", limit if self._seconds == "auto" else self._seconds)

    def stop(self) -> None:
        """End the measurement of a batch."""
        if self._seconds is not None:
            self._limit = math.inf
            self.slowest = max(self.slowest, time.monotonic() - self._start)

    def _begin(self, step: str, limit: float) -> None:
        self._step, self._start, self._limit = step, time.monotonic(), limit
        # not at each of many short batches
        if self._seconds is not None and abs(self._timer_end - self._start - limit) > CHECK_SECONDS:
            self._set_timer(limit)

    def _watch(self) -> None:
        while True:
            limit = self._limit
            left = self._start + limit - time.monotonic()
            if left <= 0:
                self._set_timer(END_SECONDS)
                faulthandler.dump_traceback(STDERR)
                self._end(TimeoutError(f"{self._step} took longer than {limit:.0f} s (max_batch_seconds)"))
                return
            self._set_timer(min(left, LOAD_SECONDS))
            time.sleep(min(CHECK_SECONDS, left))

    def _set_timer(self, seconds: float) -> None:
        """End this process after some seconds, unless the timer is set again; the thread comes first if it runs."""
        self._timer_end = time.monotonic() + seconds
        faulthandler.dump_traceback_later(seconds + CHECK_SECONDS, file=STDERR, exit=True)
