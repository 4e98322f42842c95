"""Tracebacks of user code: one file for each line that raised."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from types import TracebackType

import pyarrow as pa

from erag_ray.masking import masked_traceback
from erag_ray.ownership import UNFINISHED
from erag_ray.store import Folder
from erag_ray.user_code import LOCATION, LOG

ERRORS = "errors"
DAMAGE = (OSError, ValueError, pa.ArrowException)


class TracebackFiles(logging.Handler):
    """Logging handler that writes the first traceback of each line of user code to a folder.

    Errors in writing are ignored: the exception itself is in the job's messages.

    Args:
        address: a path or URI.
    """

    def __init__(self, address: str) -> None:
        super().__init__(logging.DEBUG)
        self.address = address
        self._locations: set[str] = set()

    def open(self) -> None:
        """Attach the handler."""
        LOG.addHandler(self)
        LOG.setLevel(logging.DEBUG)
        LOG.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write the traceback of a record."""
        location, error = getattr(record, LOCATION), (record.exc_info or (None, None))[1]
        if not location or location in self._locations or error is None:
            return
        self._locations.add(location)
        name = re.sub("[^A-Za-z0-9_.-]", "_", location.rpartition("/")[2])
        text = masked_traceback(error) + "\n"
        with contextlib.suppress(*DAMAGE):
            Folder(self.address).write_bytes(text.encode(errors="backslashreplace"), f"{name}.txt")


class JobTracebacks(TracebackFiles):
    """Context manager for the tracebacks of a job: in ``<out>/errors``, cleared at the start."""

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
            Folder(self.address).prune(UNFINISHED)

    def named(self) -> Iterator[str]:
        """Yield a line with the files, if there are any."""
        with contextlib.suppress(*DAMAGE):
            names = Folder(self.address).names() if self._was_open else []
            if names:
                yield f"tracebacks of your code: {', '.join(f'{self.address}/{name}' for name in names)}"


def traceback_folder() -> str | None:
    """Return the folder to which this process writes tracebacks of user code; None if it does not."""
    addresses = [handler.address for handler in LOG.handlers if isinstance(handler, TracebackFiles)]
    return Folder(addresses[-1]).address if addresses else None
