"""SIGTERM ends a job as Ctrl-C does: by KeyboardInterrupt in its main thread, so that it closes what it has opened."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

WAIT_SECONDS = 0.1
REPEAT_SECONDS = 10.0
"""A second SIGTERM within this time is the same one: timeout(1) sends it to the process and to its group."""


class Termination:
    """A handler of SIGTERM that raises KeyboardInterrupt and remembers that it did."""

    def __init__(self) -> None:
        self._at: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
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
def before_interruption(action: Callable[[], None]) -> Iterator[None]:
    """While open in the main thread, SIGINT and SIGTERM take effect once ``action``, in a thread, has returned."""
    action_thread: threading.Thread | None = None
    is_done = threading.Event()

    def run_action(number: int) -> None:
        try:
            action()
        finally:
            is_done.set()
            os.kill(os.getpid(), number)

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal action_thread
        if action_thread is None:
            action_thread = threading.Thread(target=run_action, args=(number,), daemon=True)
            action_thread.start()
        elif is_done.is_set():
            handler = handlers[number]
            if callable(handler):
                handler(number, frame)
            else:
                signal.signal(number, handler)
                signal.raise_signal(number)

    numbers = (signal.SIGINT, signal.SIGTERM) if _is_main_thread() else ()
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in numbers}
    # a job in the background ignores SIGINT
    handlers = {number: one for number, one in handlers.items() if one not in (None, signal.SIG_IGN)}
    try:
        for number in handlers:
            signal.signal(number, handle)
        yield
    finally:
        while action_thread is not None and action_thread.is_alive():
            action_thread.join(WAIT_SECONDS)
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def keep_handler(number: signal.Signals) -> Iterator[None]:
    """While open, a library may set a handler of its own; at the end the one from before is back.

    Raises:
        KeyboardInterrupt: instead of SystemExit, by which the library's handler ends the process.
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
