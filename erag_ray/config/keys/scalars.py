"""Scalars of keys: as YAML or a command line has them (`Written`), and what they are to a key of each type.

A value that no key of the type can have is returned unchanged: the type refuses it.
"""

import contextlib
import numbers
import operator
import os
import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticCustomError

from erag_ray.support.uris import uri_fault

NULLS = ("", "~", "null", "Null", "NULL")
BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_WHOLE = re.compile(r"[-+]?[0-9][0-9_]*")
_NUMBER = re.compile(
    r"[-+]?(\.?[0-9][0-9_]*|[0-9][0-9_]*\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?\.?(inf|nan)", re.IGNORECASE
)


class Written(str):
    """A scalar before its key says what it is; ``is_quoted``: it is a text in any case."""

    is_quoted = False


def written(text: str, *, is_quoted: bool = False) -> Written | None:
    """Return a scalar; None for one that is not quoted and says null."""
    if text in NULLS and not is_quoted:
        return None
    scalar = Written(text)
    scalar.is_quoted = is_quoted
    return scalar


def as_text(value: Any) -> Any:
    """Return texts and paths; numbers as texts too, as in YAML: a revision 1 is "1", and has one cache."""
    if not isinstance(value, str | os.PathLike):
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return str(value) if is_number else value
    try:
        return os.fspath(value).encode().decode()
    except UnicodeEncodeError as error:
        # half of a surrogate pair: it cannot be the name of a file
        raise PydanticCustomError("text", "not a text") from error


def as_whole(value: Any) -> Any:
    """Return whole numbers, NumPy's too."""
    if isinstance(value, Written):
        with contextlib.suppress(ValueError):
            return int(value) if _WHOLE.fullmatch(value) and not value.is_quoted else value
        return value
    with contextlib.suppress(TypeError):
        # of an array of several numbers it fails
        return value if isinstance(value, bool) else operator.index(value)
    return value


def as_number(value: Any) -> Any:
    """Return numbers; -0.0 as 0.0, which has one fingerprint."""
    if isinstance(value, Written) and _NUMBER.fullmatch(value) and not value.is_quoted:
        with contextlib.suppress(ValueError):
            value = float(re.sub(r"\.(?=[a-z])", "", value.lower()))
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return float(value) + 0.0 if is_number else value


def as_flag(value: Any) -> Any:
    """Return true and false, NumPy's too."""
    if isinstance(value, Written):
        return value if value.is_quoted else BOOLEANS.get(value.lower(), value)
    return bool(value) if type(value).__name__ == "bool" else value


def as_any(value: Any) -> Any:
    """Return a value of a key that takes any: scalars as YAML reads them, but dates as texts."""
    if isinstance(value, Mapping):
        return {str(name): as_any(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_any(item) for item in value]
    if not isinstance(value, Written):
        return value
    is_word = value.lower().strip("+-") in ("inf", "nan")
    forms = (as_whole, as_flag) if is_word else (as_whole, as_number, as_flag)
    read = (form(value) for form in forms)
    return next((scalar for scalar in read if not isinstance(scalar, str)), str(value))


def expanded(path: str) -> str:
    """Return a path with ``$NAME`` and ``~`` replaced.

    Raises:
        ValueError: an environment variable is not set, or the path contains a secret or options.
    """
    result = os.path.expanduser(os.path.expandvars(path))
    if unset := re.search(r"\$\{?(\w+)", result):
        raise ValueError(f"{path}: the environment variable {unset[1]} is not set")
    if "\0" in result:
        raise ValueError(f"{path!r}: a path cannot hold this character")
    if fault := uri_fault(result):
        raise ValueError(fault)
    return result
