"""Messages to the user by `logging`: one logger for each module, all below the package's own.

A job, started from Python too, shows the messages of level INFO on standard error. With ``progress=False`` a
program gets them by ``logging.basicConfig(level=logging.INFO, format="%(message)s")``, or as it likes.
"""

import contextlib
import logging
import sys
from collections.abc import Iterator

from erag_ray.support.masking import masked_message

PACKAGE = logging.getLogger(__name__.partition(".")[0])


class StderrHandler(logging.Handler):
    """Writes each message, without secrets, to what is standard error at that time: a progress bar replaces it."""

    def emit(self, record: logging.LogRecord) -> None:
        print(masked_message(self.format(record)), file=sys.stderr, flush=True)


@contextlib.contextmanager
def on_stderr() -> Iterator[None]:
    """While open, show the package's messages only on standard error; one inside another does nothing."""
    if any(isinstance(handler, StderrHandler) for handler in PACKAGE.handlers):
        yield
        return
    handler, before = StderrHandler(logging.INFO), (PACKAGE.level, PACKAGE.propagate)
    PACKAGE.addHandler(handler)
    PACKAGE.setLevel(logging.INFO)
    PACKAGE.propagate = False
    try:
        yield
    finally:
        PACKAGE.removeHandler(handler)
        PACKAGE.setLevel(before[0])
        PACKAGE.propagate = before[1]


def say(*lines: str) -> None:
    """Log lines for the user, without secrets; tables and the report's path go to standard output."""
    for line in lines:
        PACKAGE.info("%s", masked_message(line))


def warn(*lines: str) -> None:
    """Log lines about inputs that were left out or guessed; also shown where nobody has set up `logging`."""
    for line in lines:
        PACKAGE.warning("%s", masked_message(line))
