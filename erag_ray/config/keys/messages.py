"""Faults that pydantic sees in a config -> messages that name key, value and the nearest right form."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from erag_ray.config.keys.names import (
    NUM_SHOWN,
    below,
    default_of,
    field_hints,
    is_config,
    members_of,
    type_text,
    unknown_key,
)
from erag_ray.config.keys.scalars import Written, as_flag, as_number, as_whole
from erag_ray.support.errors import InputError, first_of
from erag_ray.support.registry import nearest

RANGES = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
FORMS = {int: as_whole, float: as_number, bool: as_flag}


class Problem(NamedTuple):
    """A fault in a key; ``key`` is "" for a problem that names its own place."""

    key: str
    text: str


class KeysError(InputError):
    """All problems with the keys of a config."""

    def __init__(self, keyed: Sequence[Problem]) -> None:
        self.keyed = tuple(dict.fromkeys(keyed))
        super().__init__(first_of([problem.text for problem in self.keyed], 20))

    def __reduce__(self) -> tuple[type[KeysError], tuple[Any, ...]]:
        return type(self), (self.keyed,)


def problems_of(kind: type, error: ValidationError, key: str = "") -> list[Problem]:
    """Return a message for each fault that pydantic sees in the values of a config, which has the name ``key``."""
    # of a union of a number and a word, the number's fault says enough
    errors = error.errors(include_url=False)
    faults = [fault for fault in errors if not str(fault["loc"][-1:]).startswith('("literal[')]
    # an unknown key may be the missing one, misspelt
    unknown = {fault["loc"][:-1] for fault in faults if fault["type"] == "unexpected_keyword_argument"}
    problems = [
        problem
        for fault in faults
        if fault["type"] != "missing" or fault["loc"][:-1] not in unknown
        for problem in _problems(kind, fault, key)
    ]
    # a value of a union is told by the member that it comes nearest to
    inner = {key for key, _ in problems}
    return [
        Problem(key, text)
        for key, text in problems
        if not key or not any(one.startswith((f"{key}.", f"{key}[")) for one in inner)
    ]


def _problems(kind: type, fault: Any, key: str) -> Iterator[Problem]:
    path, kind_of_fault, value = fault["loc"], fault["type"], fault["input"]
    if kind_of_fault in ("unexpected_keyword_argument", "invalid_key", "missing"):
        config, parent, _ = _at(kind, path[:-1], key)
        text = f"{parent or 'the file'} must have the key {path[-1]}"
        if kind_of_fault != "missing":
            text = unknown_key(str(path[-1]), config, prefix=parent)
        yield Problem(below(parent, path[-1]), text)
        return
    of_name = path[-1:] == ("[key]",)
    config, key, hint = _at(kind, path[:-2] if of_name else path, key)
    bound = next(iter(fault.get("ctx", {})), "")
    if kind_of_fault == "value_error" and not any(map(is_config, members_of(hint))):
        yield Problem(key, f"{key}: {fault['ctx']['error']}")
    elif kind_of_fault == "value_error":
        yield from _of_checks(fault["ctx"]["error"], field_hints(config), key)
    elif of_name:
        yield Problem(key, f"{key}: the name {value!r} is not a text. Write {str(value)!r}")
    elif bound in RANGES:
        yield Problem(key, f"{key} must be {RANGES[bound]} {fault['ctx'][bound]:g}, got {value}")
    elif value is None:
        yield Problem(key, f"{key} has no value; give one, or leave the key out")
    else:
        members = [member for member in members_of(hint) if member is not types.NoneType]
        text = f"{key}: expected {type_text(hint)}, got {_got(value)}{_advice(members, value, key)}"
        yield Problem(key, text)


def _at(kind: Any, path: Sequence[Any], key: str) -> tuple[Any, str, Any]:
    """Return the config that a path ends in, the key and its type; members of unions are no keys."""
    config, hint = kind, kind
    for part in path:
        for member in members_of(hint):
            origin, inside = typing.get_origin(member), typing.get_args(member)
            if part in field_hints(member):
                config, hint, key = member, field_hints(member)[part], below(key, part)
            elif origin is dict:
                hint, key = inside[1], below(key, part)
            elif origin is list and isinstance(part, int):
                hint, key = inside[0], f"{key}[{part}]"
            else:
                continue
            break
    return next(filter(is_config, members_of(hint)), config), key, hint


def _of_checks(error: ValueError, hints: Mapping[str, Any], key: str) -> Iterator[Problem]:
    """Yield the problems in the error of a config's own checks, whose message starts with a key or its last name."""
    if isinstance(error, InputError):
        yield from (Problem("", text) for text in error.problems)
        return
    text = str(error)
    start = re.match(r"[\w.-]+", text)
    name = start[0].rstrip(".") if start else ""
    if key and name.partition(".")[0] in hints and not name.startswith(f"{key}."):
        yield Problem(below(key, name), f"{key}.{text}")
    else:
        yield Problem(name or key, text)


def _got(value: Any) -> str:
    if isinstance(value, Written):
        text = repr(str(value)) if value.is_quoted or not value.isprintable() else value
    elif isinstance(value, Mapping):
        text = f"keys ({', '.join(map(str, list(value)[:NUM_SHOWN]))})" if value else "no keys"
    elif isinstance(value, list | tuple):
        text = "a list" if value else "an empty list"
    else:
        text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _advice(members: Sequence[Any], value: Any, key: str) -> str:
    """Return the nearest right form of a wrong value, as a sentence; "" if none is near."""
    member = members[0]
    if not isinstance(value, str) or len(value) > 80 or not value.isprintable():
        return f". Write '{value}'" if member is str and isinstance(value, int | float) else ""
    choices = typing.get_args(member) if typing.get_origin(member) is typing.Literal else ()
    if typing.get_origin(member) is list and not is_config(item := typing.get_args(member)[0]):
        is_choice = value in (typing.get_args(item) or [value])
        has_form = item not in FORMS or not isinstance(FORMS[item](Written(value)), str)
        return f". Write {key}: [{value}]" if is_choice and has_form else _advice([item], value, key)
    if typing.get_origin(member) is dict:
        return f". Write {key}.NAME: {value}"
    if is_config(member):
        fields = dataclasses.fields(member)
        needed = [field.name for field in fields if default_of(field) is dataclasses.MISSING]
        names = [*needed, *filter("model".__eq__, field_hints(member))]
        return f". Write {key}.{names[0]}: {value}" if names else ""
    is_text = getattr(value, "is_quoted", True)
    if member in FORMS and is_text and not isinstance(FORMS[member](Written(value)), str):
        return f". Write {value} without quotes"
    near = nearest(value, ("true", "false") if member is bool else choices)
    return f". Did you mean {near}?" if near else ""
