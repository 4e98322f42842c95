"""Rows in hand, which are written in time: at intervals, and at the end, whatever ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from erag_ray.prompts.request import Response

FIRST_SECONDS = 5.0
"""The first rows are written after this time, so that a job shows life; intervals double from here."""
LEAST_SECONDS = 0.05
Row = tuple[int, Response]
"""Index of a request, and its response."""


class Writer:
    """Collects rows, and writes them by a thread every ``seconds`` (first sooner), also if none arrive, and at the end.

    ``write_rows`` is given the seconds since the last ones; what it raises in the thread, `add` raises.
    """

    def __init__(self, write_rows: Callable[[list[Row], float], None], seconds: float) -> None:
        self._write_rows, self._most = write_rows, max(seconds, LEAST_SECONDS)
        self._rows, self._written_at = list[Row](), time.monotonic()
        self._lock, self._closing = threading.RLock(), threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._write_in_time, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.set()
        try:
            self._thread.join()
        finally:
            self.write()

    def add(self, row: Row) -> None:
        """Add a row; raise what the thread could not write for."""
        self._rows.append(row)
        if self._error is not None:
            raise self._error

    def write(self) -> None:
        with self._lock:
            if rows := self._rows[:]:
                self._write_rows(rows, time.monotonic() - self._written_at)
                # after it: what interrupts the writing loses nothing
                del self._rows[: len(rows)]
                self._written_at = time.monotonic()

    def _write_in_time(self) -> None:
        seconds = min(FIRST_SECONDS, self._most)
        while not self._closing.wait(seconds):
            try:
                self.write()
            except Exception as error:
                self._error = error
                return
            seconds = min(2 * seconds, self._most)
