"""Tracebacks of user code, for its author: one file for each place that raised."""

from __future__ import annotations

import contextlib
import logging
import re
import traceback
from collections.abc import Iterator
from types import TracebackType

import pyarrow as pa

from erag_ray.store.folder import UNFINISHED, Folder
from erag_ray.user_code import LOG, PLACE

ERRORS = "errors"
DAMAGE = (OSError, ValueError, pa.ArrowException)


class TracebackFiles(logging.Handler):
    """Writes the traceback of the first fault at each place of user code to a folder, once it is opened.

    A folder that cannot be written is left to others to tell: the fault itself is in their messages.

    Args:
        address: a path or URI.
    """

    def __init__(self, address: str) -> None:
        super().__init__(logging.DEBUG)
        self.address = address
        self._places: set[str] = set()

    def open(self) -> None:
        """Begin to write."""
        LOG.addHandler(self)
        LOG.setLevel(logging.DEBUG)
        LOG.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write one."""
        place, error = getattr(record, PLACE), record.exc_info
        if not place or place in self._places or error is None:
            return
        self._places.add(place)
        name = re.sub("[^A-Za-z0-9_.-]", "_", place.rpartition("/")[2])
        text = "".join(traceback.format_exception(error[1]))
        with contextlib.suppress(*DAMAGE):
            Folder(self.address).write_bytes(text.encode(errors="backslashreplace"), f"{name}.txt")


class JobTracebacks(TracebackFiles):
    """Those of a job: in ``<out>/errors``, which holds nothing of former jobs."""

    def __init__(self, out: str) -> None:
        super().__init__("/".join([out.rstrip("/"), ERRORS]))
        self._was_open = False

    def __enter__(self) -> None:
        self._was_open = True
        with contextlib.suppress(*DAMAGE):
            Folder(self.address).delete_folder()
        self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        LOG.removeHandler(self)
        with contextlib.suppress(*DAMAGE):
            Folder(self.address).delete_folder(UNFINISHED)

    def named(self) -> Iterator[str]:
        """A line about the files, if there are any."""
        with contextlib.suppress(*DAMAGE):
            names = Folder(self.address).names() if self._was_open else []
            if names:
                yield f"tracebacks of your code: {', '.join(f'{self.address}/{name}' for name in names)}"


def traceback_folder() -> str | None:
    """Where this process writes the tracebacks of user code; None if it does not."""
    addresses = [handler.address for handler in LOG.handlers if isinstance(handler, TracebackFiles)]
    return Folder(addresses[-1]).address if addresses else None
