"""Names and types of keys: the fields of a config, and of the configs inside it."""

import dataclasses
import functools
import itertools
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from erag_ray.support.registry import nearest

BOUNDS = ("ge", "gt", "le", "lt")
NUM_SHOWN = 3
TYPES = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Any: "a value",
    types.NoneType: "null",
}
GONE = {
    "config": "give both files on the command line, the first one first: --config FIRST --config SECOND",
    "calibrate": "run the job on a sample (num_queries: 20), then with dry_run: true, which says what the rest takes",
    "cpus_per_worker": "training workers share the CPUs of their node evenly; remove the key",
    "retrieve_all": "remove the key; erag-ray retrieve searches all questions, and its runs are given as runs",
    "score_only": "outputs are always whole, and labels those of early_stop; remove the key",
    "duplicates": "equal texts of a list are not counted any more; remove the key",
}
"""Key of a former version, with dots -> what to do instead."""
UNUSED = {"num_flips": "tests of differences are exact"}
"""Key of a former version that changes nothing any more -> why; a job goes on without it."""


@functools.cache
def field_hints(kind: Any, *, with_bounds: bool = False) -> Mapping[str, Any]:
    """Return the keys of a config with their types; none of other types."""
    if not is_config(kind):
        return {}
    hints = typing.get_type_hints(kind, include_extras=with_bounds)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def bounds_in(hint: Any) -> dict[str, Any]:
    """Return the bounds of the numbers in a type: ``ge``, ``gt``, ``le`` or ``lt`` -> number."""
    infos = [one for info in getattr(hint, "__metadata__", ()) for one in getattr(info, "metadata", ())]
    bounds = {name: getattr(one, name) for one in infos for name in BOUNDS if hasattr(one, name)}
    for inside in typing.get_args(hint):
        bounds |= bounds_in(inside)
    return bounds


def is_config(hint: Any) -> bool:
    """Return whether a type is a config."""
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def config_in(hint: Any) -> Any:
    """Return the config in a type such as ``ReaderConfig | None``, or else the type."""
    return next(filter(is_config, members_of(hint)), hint)


def members_of(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union; of another type, the type."""
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def type_text(hint: Any) -> str:
    """Return a type in words, such as "a whole number or null"."""
    return " or ".join(map(_member_text, members_of(hint)))


def _member_text(hint: Any) -> str:
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return "one of " * (len(inside) > 1) + ", ".join(map(str, inside))
    if origin is list:
        (item,) = inside
        return f"a list of {TYPES[item][2:]}s" if item in TYPES else f"a list of entries: {type_text(item)}"
    if origin is dict:
        return "names with values"
    if is_config(hint):
        # those that say which it is come first
        names = filter(field_hints(hint).get, dict.fromkeys(["kind", "model", *field_hints(hint)]))
        return f"keys ({', '.join(itertools.islice(names, NUM_SHOWN))}, ...)"
    return TYPES[hint]


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a key; MISSING for one without."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def below(key: str, name: object) -> str:
    """Return the full name of a key of the config with the name ``key``."""
    return f"{key}.{name}" if key else str(name)


def inner_hint(hint: Any, name: str) -> Any:
    """Return the type of a key below another; None below what has none of this name."""
    config = config_in(hint)
    if is_config(config):
        return field_hints(config).get(name, Any if name in UNUSED else None)
    if hint is Any:
        return Any
    return next((typing.get_args(one)[1] for one in members_of(hint) if typing.get_origin(one) is dict), None)


def is_raw(hint: Any, text: str) -> bool:
    """Return whether an option's text is a scalar: of a key that takes scalars, unless it may be YAML in brackets."""
    members = members_of(hint)
    has_keys = any(is_config(one) or one is Any or typing.get_origin(one) in (list, dict) for one in members)
    return not has_keys or (str in members and not text.startswith(("[", "{")))


def split_key(kind: Any, key: str) -> list[str]:
    """Return the names in a key with dots; the name in a mapping of values, such as a run's, may have dots itself."""
    names, hint, rest = list[str](), kind, key
    while rest:
        is_named = any(typing.get_origin(one) is dict for one in members_of(hint))
        inside = inner_hint(hint, "")
        takes_all = is_named and inside is not Any and not is_config(config_in(inside))
        name, _, rest = (rest, "", "") if takes_all else rest.partition(".")
        names.append(name)
        hint = inner_hint(hint, name)
    return names


def all_keys(kind: type, path: str = "") -> Iterator[str]:
    """Yield the keys of a config and of the configs inside it, with dots, in their order."""
    for name, hint in field_hints(kind).items():
        yield below(path, name)
        yield from all_keys(config_in(hint), below(path, name))


def unknown_key(path: str, kind: type, *, mark: str = "", prefix: str = "") -> str:
    """Return the message about an unknown key: with what to do instead, or with the nearest key.

    ``mark`` is what a key starts with where it is written (``--``), ``prefix`` the key of the config itself.
    """
    known, start = list(all_keys(kind)), mark + (f"{prefix}." if prefix else "")
    if advice := GONE.get(below(prefix, path)):
        return f"unknown key {start}{path}: {advice}"
    parent, _, name = path.rpartition(".")
    hint: Any = functools.reduce(inner_hint, split_key(kind, parent), kind)
    if parent in known and not field_hints(config_in(hint)):
        key = f"{start}{parent}"
        return f"unknown key {start}{path}: {key} has no keys below it. Did you mean {key}?"
    beside = nearest(name, field_hints(config_in(hint)))
    by_name = {key.rpartition(".")[2]: key for key in reversed(known)}
    near = below(parent, beside) if beside else by_name.get(nearest(name, by_name) or "")
    return f"unknown key {start}{path}" + (f". Did you mean {start}{near}?" if near else "")
