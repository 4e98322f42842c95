"""SIGTERM ends a job as Ctrl-C does: by KeyboardInterrupt in its main thread, so that it closes what it has opened."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

REPEAT_SECONDS = 10.0
"""A second SIGTERM within this time is the same one: timeout(1) sends it to the process and to its group."""


class Termination:
    """A handler of SIGTERM that raises KeyboardInterrupt and remembers that it did."""

    def __init__(self) -> None:
        self._at: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        now = time.monotonic()
        if self._at is not None and now < self._at + REPEAT_SECONDS:
            return
        self._at = now
        raise KeyboardInterrupt

    @property
    def exit_code(self) -> int:
        """The shell's code of a process that a signal ended: 143 after SIGTERM, 130 after Ctrl-C."""
        return 128 + (signal.SIGINT if self._at is None else signal.SIGTERM)


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[Termination]:
    """While open, SIGTERM raises KeyboardInterrupt in the main thread."""
    handler = Termination()
    if not _is_main_thread():
        yield handler
        return
    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield handler
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def keep_handler(number: signal.Signals) -> Iterator[None]:
    """While open, a library may set a handler of its own; at the end the one from before is back.

    Raises:
        KeyboardInterrupt: in place of SystemExit, by which the library's handler ends the process.
    """
    before = signal.getsignal(number)
    try:
        yield
    except SystemExit:
        if callable(before):
            before(number, None)
        raise
    finally:
        # where nobody has set one, the library's is better than none
        if before not in (None, signal.SIG_DFL) and _is_main_thread():
            signal.signal(number, before)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
