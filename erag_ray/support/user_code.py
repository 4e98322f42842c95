"""Exceptions of user code (``package.module:name`` in a config), reported as one line with file and line number.

Exceptions of this package or of the machine pass through with their traceback.
"""

import contextlib
import dataclasses
import inspect
import logging
import os
import traceback
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from erag_ray.support.errors import InputError, JobError
from erag_ray.support.masking import masked_message

LOG = logging.getLogger(__name__)
"""Logs each fault at level DEBUG, with its exception."""
PACKAGE = __name__.partition(".")[0]
LINE_CHARACTERS = 300
RESUME_ADVICE = (
    "responses and sealed tables so far are kept; fix the problem and start the same command again"
)

T = TypeVar("T")


class Fault(NamedTuple):
    """An exception of user code: ``line`` is its type and message, ``location`` is FILE:LINE ("" if unknown)."""

    line: str
    location: str

    def __str__(self) -> str:
        return f"{self.line} ({self.location})" if self.location else self.line


def is_user_code(code: object) -> bool:
    """Return whether a function, a class or an instance is from outside this package."""
    return _package(code) != PACKAGE


def one_line(text: str, max_characters: int = LINE_CHARACTERS) -> str:
    """Replace secrets by asterisks and control characters by blanks, and then cut to a length."""
    printable = (one if one.isprintable() else " " for one in masked_message(text))
    line = " ".join("".join(printable).split())
    return line if len(line) <= max_characters else f"{line[: max_characters - 3]}..."


def fault_of(error: BaseException, code: object) -> Fault:
    """Describe an exception of user code, and log its traceback."""
    fault = Fault(_described(error), _raised_at(error, _package(code)) or _defined_at(code))
    LOG.debug("%s", fault, exc_info=error)
    return fault


def checking(what: str, code: object) -> contextlib.AbstractContextManager[None]:
    """Turn exceptions of user code into problems of the config, an InputError; for checks before any work is done."""
    return _instead(code, lambda fault: InputError([f"{what}: {fault}"]))


@contextlib.contextmanager
def running(what: str, code: object) -> Iterator[None]:
    """Turn exceptions of user code into a JobError, a message of one line that ends the job."""
    with _instead(code, lambda fault: JobError(f"{what}: {fault}; {RESUME_ADVICE}")):
        yield


@contextlib.contextmanager
def _instead(code: object, replacement: Callable[[Fault], Exception]) -> Iterator[None]:
    try:
        yield
    except (InputError, JobError):
        raise
    except Exception as error:
        if not is_user_code(code):
            raise
        raise replacement(fault_of(error, code)) from error


def with_guards(instance: T, what: str, *names: str) -> T:
    """Wrap the named functions of a dataclass instance in `running` where they are user code."""
    guarded = {
        name: running(what, function)(function)
        for name in names
        if (function := getattr(instance, name)) is not None and is_user_code(function)
    }
    return dataclasses.replace(instance, **guarded) if guarded else instance  # type: ignore[type-var]


def _package(code: object) -> str:
    module = code if isinstance(code, str) else getattr(code, "__module__", None) or type(code).__module__
    return module.partition(".")[0]


def is_raised_here(error: BaseException) -> bool:
    """Return whether the innermost frame of an exception is one of this package."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and _package(frames[-1].f_globals.get("__name__", "")) == PACKAGE


def _described(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = "a message that cannot be shown"
    name = type(error).__name__
    return one_line(f"{name}: {text}" if text else name)


def _raised_at(error: BaseException, package: str) -> str:
    """Return FILE:LINE of the innermost frame of a package in a traceback; "" if there is none."""
    for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
        if _package(frame.f_globals.get("__name__", "")) == package:
            return _location(frame.f_code.co_filename, line)
    return ""


def _defined_at(code: object) -> str:
    """Return FILE:LINE of a definition; "" if it has no file."""
    if isinstance(code, str):
        return ""
    definition = inspect.unwrap(code) if callable(code) else code
    if not (isinstance(definition, type) or inspect.isroutine(definition)):
        definition = type(definition)
    try:
        return _location(inspect.getsourcefile(definition) or "", inspect.getsourcelines(definition)[1])
    except (TypeError, OSError):
        return ""


def _location(file: str, line: int) -> str:
    """Return FILE:LINE, relative to the working directory."""
    return f"{file.removeprefix(os.path.join(os.getcwd(), ''))}:{line}"
