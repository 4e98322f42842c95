"""Values of keys: what YAML, a command line or Python gives -> the types that a config's fields have.

One function checks all three: `convert`. A scalar of YAML or of a command line comes as `Written`, so that its key
decides what it is: a run called ``no``, ``1.1`` or ``2024-01-01`` keeps its name.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import operator
import os
import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from erag_ray.config.keys.names import below, field_hints, is_config, is_required, members_of, unknown_key
from erag_ray.errors import InputError
from erag_ray.registry import nearest

NULLS = ("", "~", "null", "Null", "NULL")
BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_WHOLE = re.compile(r"[-+]?[0-9][0-9_]*")
_NUMBER = re.compile(
    r"[-+]?(\.?[0-9][0-9_]*|[0-9][0-9_]*\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?\.?(inf|nan)", re.IGNORECASE
)
_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", Any: "a value"}
NUM_SHOWN = 3
_INVALID = object()


@dataclasses.dataclass(frozen=True)
class Written:
    """A scalar as YAML or a command line has it."""

    text: str
    is_quoted: bool = False


class Problem(NamedTuple):
    """A fault in a key; ``key`` is "" for a problem that names its own place."""

    key: str
    text: str


class KeysError(InputError):
    """All problems with the keys of a config."""

    def __init__(self, keyed: Sequence[Problem]) -> None:
        self.keyed = tuple(dict.fromkeys(keyed))
        super().__init__([problem.text for problem in self.keyed])


def build(kind: type[Any], values: Mapping[str, Any], key: str = "") -> Any:
    """Return a config of the values of its keys.

    Args:
        kind: a dataclass whose fields are the keys.
        values: key -> value, of Python or `Written`; mappings for configs inside it.
        key: of the config itself, for messages.

    Raises:
        KeysError: keys are unknown or missing, or values are wrong.
    """
    problems: list[Problem] = []
    config = _config(kind, values, key, problems)
    if problems:
        raise KeysError(problems)
    return config


def check_types(config: object) -> None:
    """Give the fields of a new config their declared types: paths become strings, tuples lists, mappings configs.

    Raises:
        KeysError: a value is of another type.
    """
    problems: list[Problem] = []
    for name, hint in field_hints(config.__class__).items():
        object.__setattr__(config, name, convert(hint, getattr(config, name), name, problems))
    if problems:
        raise KeysError(problems)


def convert(hint: Any, value: Any, key: str, problems: list[Problem]) -> Any:
    """Return a value as the type of its key; what is wrong with it is added to ``problems``."""
    members = [member for member in members_of(hint) if member is not types.NoneType]
    if value is None or (isinstance(value, Written) and not value.is_quoted and value.text in NULLS):
        if len(members) < len(members_of(hint)) or hint is Any:
            return None
        problems.append(Problem(key, f"{key} has no value; give one, or leave the key out"))
        return None
    value = value.tolist() if type(value).__module__.partition(".")[0] == "numpy" else value
    for member in members:
        if member is Any:
            return _plain(value)
        if is_config(member) and isinstance(value, Mapping | member):
            return value if isinstance(value, member) else _config(member, value, key, problems)
        origin, inside = typing.get_origin(member), typing.get_args(member)
        if origin is list and isinstance(value, list | tuple):
            return [convert(inside[0], item, f"{key}[{index}]", problems) for index, item in enumerate(value)]
        if origin is dict and isinstance(value, Mapping):
            wrong = [name for name in value if not isinstance(name, str)]
            problems += [
                Problem(key, f"{key}: the name {name!r} is not a text. Write {str(name)!r}") for name in wrong
            ]
            return {name: convert(inside[1], item, f"{key}.{name}", problems) for name, item in value.items()}
        converted = _scalar(member, value)
        if converted is not _INVALID:
            return converted
    expected = " or ".join(map(_type_name, members_of(hint)))
    problems.append(
        Problem(key, f"{key}: expected {expected}, got {_got(value)}{_advice(members, value, key)}")
    )
    return None


def _config(kind: type[Any], values: Mapping[str, Any], key: str, problems: list[Problem]) -> Any:
    hints, before = field_hints(kind), len(problems)
    for name in values:
        if name not in hints:
            problems.append(Problem(below(key, name), unknown_key(str(name), kind, prefix=key)))
    required = [field.name for field in dataclasses.fields(kind) if is_required(field)]
    for name in required:
        # an unknown key may be this one, misspelt
        if name not in values and len(problems) == before:
            problems.append(Problem(key, f"{key or 'the file'} must have the key {name}"))
    fields = {
        name: convert(hint, values[name], below(key, name), problems)
        for name, hint in hints.items()
        if name in values
    }
    if len(problems) > before:
        return None
    try:
        return kind(**fields)
    except InputError as error:
        problems += [Problem("", text) for text in error.problems]
    except ValueError as error:
        problems.append(_of_range(str(error), hints, key))
    return None


def _of_range(text: str, hints: Mapping[str, Any], key: str) -> Problem:
    """Return the problem in the message of a config's own checks, which starts with a key or its last name."""
    start = re.match(r"[\w.-]+", text)
    name = start[0].rstrip(".") if start else ""
    if key and name.partition(".")[0] in hints and not name.startswith(f"{key}."):
        return Problem(below(key, name), f"{key}.{text}")
    return Problem(name or key, text)


def _scalar(hint: Any, value: Any) -> Any:
    """Return a scalar as a str, int, float, bool or one of a Literal; `_INVALID` if it is none."""
    if isinstance(value, Written):
        return _of_text(hint, value)
    is_bool = isinstance(value, bool)
    if hint is str and isinstance(value, str | os.PathLike):
        return _encodable(os.fspath(value))
    if hint is str and isinstance(value, int | float) and not is_bool:
        return str(value)  # as in YAML: a revision 1 is "1", and has one cache
    if hint is bool and is_bool:
        return value
    if hint is int and hasattr(value, "__index__") and not is_bool:
        return operator.index(value)
    if hint is float and isinstance(value, numbers.Real) and not is_bool and not math.isnan(value):
        return float(value) + 0.0  # -0.0 is 0.0, which has one fingerprint
    return value if typing.get_origin(hint) is typing.Literal and value in typing.get_args(hint) else _INVALID


def _of_text(hint: Any, value: Written) -> Any:
    text = value.text
    if hint is str:
        return _encodable(text)
    if typing.get_origin(hint) is typing.Literal:
        return text if text in typing.get_args(hint) else _INVALID
    if value.is_quoted:
        return _INVALID
    if hint is bool:
        return BOOLEANS.get(text.lower(), _INVALID)
    pattern = {int: _WHOLE, float: _NUMBER}.get(hint)
    if pattern is None or not pattern.fullmatch(text):
        return _INVALID
    try:
        number = hint(re.sub(r"\.(?=[a-z])", "", text.lower()))
    except (ValueError, OverflowError):
        # int() refuses thousands of digits
        return _INVALID
    return _INVALID if math.isnan(number) else number


def _encodable(text: object) -> Any:
    """Return a text that can be the name of a file; `_INVALID` if it holds half of a surrogate pair."""
    try:
        os.fsencode(str(text))
    except UnicodeEncodeError:
        return _INVALID
    return text if isinstance(text, str) else _INVALID


def _plain(value: Any) -> Any:
    """Return a value of a key that takes any: scalars as YAML reads them, but dates as texts."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if not isinstance(value, Written):
        return value
    if not value.is_quoted and value.text in NULLS:
        return None
    converted = (_of_text(hint, value) for hint in (int, float, bool))
    return next((scalar for scalar in converted if scalar is not _INVALID), value.text)


def _type_name(hint: Any) -> str:
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, typing.get_args(hint)))}"
    if is_config(hint):
        return f"keys ({', '.join(_first_keys(hint))}, ...)"
    if origin is list:
        inner = typing.get_args(hint)[0]
        return "a list of " + {str: "texts", int: "whole numbers", float: "numbers"}.get(
            inner, "entries with keys"
        )
    return "null" if hint is types.NoneType else "names with values" if origin is dict else _NAMES[hint]


def _first_keys(kind: type) -> list[str]:
    """Return the first keys of a config: its own, before those that it shares with others."""
    names = sorted(field_hints(kind), key=lambda name: name not in kind.__annotations__)
    return names[:NUM_SHOWN]


def _got(value: Any) -> str:
    if isinstance(value, Written):
        text = repr(value.text) if value.is_quoted or not value.text.isprintable() else value.text
    elif isinstance(value, Mapping):
        text = f"keys ({', '.join(map(str, list(value)[:NUM_SHOWN]))})" if value else "no keys"
    elif isinstance(value, list | tuple):
        text = "a list" if value else "an empty list"
    else:
        text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _advice(members: Sequence[Any], value: Any, key: str) -> str:
    """Return the nearest right form of a wrong value, as a sentence; "" if none is near."""
    member, text = members[0], value.text if isinstance(value, Written) else value
    if not isinstance(text, str) or len(text) > 80 or not text.isprintable():
        return f". Write '{text}'" if member is str and isinstance(text, int | float) else ""
    if typing.get_origin(member) is typing.Literal:
        near = nearest(text, typing.get_args(member))
        return f". Did you mean {near}?" if near else ""
    if typing.get_origin(member) is list and not is_config(typing.get_args(member)[0]):
        return f". Write {key}: [{text}]"
    if typing.get_origin(member) is dict:
        return f". Write {key}.NAME: {text}"
    if is_config(member):
        needed = [field.name for field in dataclasses.fields(member) if is_required(field)]
        names = [*needed, *filter("model".__eq__, field_hints(member))]
        return f". Write {key}.{names[0]}: {text}" if names else ""
    if member in (int, float, bool) and _of_text(member, Written(text)) is not _INVALID:
        return f". Write {text} without quotes"
    near = nearest(text, ("true", "false")) if member is bool else None
    return f". Did you mean {near}?" if near else ""
