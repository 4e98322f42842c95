"""Code of the user's own, named ``package.module:name`` in a config: what it raises, as one line that names its place.

Everything else that is raised is a fault of this package, or of the machine, and passes with its traceback.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import logging
import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from erag_ray.errors import InputError, JobError

LOG = logging.getLogger(__name__)
"""Gets each fault, at level DEBUG, with its exception and its `PLACE`."""
PLACE = "place"
PACKAGE = __name__.partition(".")[0]
LINE_CHARACTERS = 300
KEPT = "what was read and sealed so far is kept; mend it and start the same command again"

T = TypeVar("T")


class Fault(NamedTuple):
    """What user code raised: ``line`` is the exception's type and message, ``place`` is FILE:LINE ("" if unknown)."""

    line: str
    place: str

    def __str__(self) -> str:
        return f"{self.line} ({self.place})" if self.place else self.line


def is_user_code(code: object) -> bool:
    """Whether a function, a class or an instance is from outside this package."""
    return _package(code) != PACKAGE


def one_line(text: str, most: int = LINE_CHARACTERS) -> str:
    """A text without line breaks and control characters, cut to a length."""
    words = "".join(character if character.isprintable() else " " for character in text).split()
    line = " ".join(words)
    return line if len(line) <= most else f"{line[: most - 3]}..."


def fault_of(error: BaseException, code: object) -> Fault:
    """The fault behind an exception, which is logged with its traceback.

    Args:
        error: the exception.
        code: the function, class or instance that raised it, or the name of its module.
    """
    fault = Fault(_described(error), _raised_at(error, _package(code)) or _defined_at(code))
    LOG.debug("%s", fault, exc_info=error, extra={PLACE: fault.place})
    return fault


@contextlib.contextmanager
def checking(what: str, code: object) -> Iterator[None]:
    """While open, what user code raises is a problem of the config: found before any work is done.

    Raises:
        InputError: in place of any other exception of user code.
    """
    with _instead(code, lambda fault: InputError([f"{what}: {fault}"])):
        yield


@contextlib.contextmanager
def running(what: str, code: object) -> Iterator[None]:
    """While open, what user code raises ends the job by one message.

    Raises:
        JobError: in place of any other exception of user code.
    """
    with _instead(code, lambda fault: JobError(f"{what}: {fault}; {KEPT}")):
        yield


@contextlib.contextmanager
def _instead(code: object, made: Callable[[Fault], Exception]) -> Iterator[None]:
    try:
        yield
    except (InputError, JobError):
        raise
    except Exception as error:
        if not is_user_code(code):
            raise
        raise made(fault_of(error, code)) from error


def with_guards(thing: T, what: str, *names: str) -> T:
    """A dataclass instance whose functions of these names, where they are user code, end the job by one message."""
    functions = {name: getattr(thing, name) for name in names}
    guarded = {
        name: _guarded(function, what)
        for name, function in functions.items()
        if function is not None and is_user_code(function)
    }
    return dataclasses.replace(thing, **guarded) if guarded else thing  # type: ignore[type-var]


def _guarded(function: Callable[..., Any], what: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        with running(what, function):
            return function(*arguments, **named)

    return call


def _package(code: object) -> str:
    module = code if isinstance(code, str) else getattr(code, "__module__", None) or type(code).__module__
    return module.partition(".")[0]


def _described(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = "a message that cannot be shown"
    name = type(error).__name__
    return one_line(f"{name}: {text}" if text else name)


def _raised_at(error: BaseException, package: str) -> str:
    """The last line of a package that an exception has passed; "" if it has passed none."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if _package(frame.f_globals.get("__name__", "")) == package:
            place = _shown(frame.f_code.co_filename, line)
    return place


def _defined_at(code: object) -> str:
    """Where code begins; "" for what has no file."""
    if isinstance(code, str):
        return ""
    own = inspect.unwrap(code) if callable(code) else code
    own = own if isinstance(own, type) or inspect.isroutine(own) else type(own)
    try:
        return _shown(inspect.getsourcefile(own) or "", inspect.getsourcelines(own)[1])
    except (TypeError, OSError):
        return ""


def _shown(file: str, line: int) -> str:
    """FILE:LINE, the file as it is seen from the folder where the job starts."""
    here = os.path.join(os.getcwd(), "")
    return f"{file.removeprefix(here)}:{line}"
