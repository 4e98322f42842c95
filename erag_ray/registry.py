"""Names in a config -> the functions and classes behind them.

Each room keeps a plain dict at its foot (`SCORES`, `MEASURES`, `READERS`, ...). Code outside the package is
named ``package.module:name``.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Iterable, Mapping
from typing import TypeVar

from erag_ray.user_code import fault_of

T = TypeVar("T")


def find(kind: str, name: str, known: Mapping[str, T]) -> T:
    """The entry of ``known`` called ``name``, or the object that ``package.module:name`` points to.

    Raises:
        ValueError: no such entry; or the module or the object in it does not exist.
    """
    if name in known:
        return known[name]
    if ":" not in name:
        text = f"unknown {kind} {name!r}; known: {', '.join(sorted(known))}, or package.module:name"
        raise ValueError(text + suggestion(name, known))
    module, _, attribute = name.partition(":")
    try:
        found: T = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise ValueError(f"{kind} {name!r} cannot be loaded: {fault_of(error, module)}") from error
    return found


def suggestion(name: str, known: Iterable[str]) -> str:
    """``. Did you mean ...?`` with the nearest of the known names, in whatever case; "" where none is near."""
    near = nearest(name, known)
    return f". Did you mean {near!r}?" if near else ""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is written most alike, in whatever case; None where none is near."""
    by_lower_case = {one.lower(): one for one in known}
    matches = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
    return by_lower_case[matches[0]] if matches else None


def find_instance(kind: str, name: str, known: Mapping[str, T], wanted: type[T], rest: str) -> T:
    """`find`, for entries that are instances of one class.

    Args:
        kind: what is looked for.
        name: its name.
        known: the entries of this package.
        wanted: their class, which has the fields ``name`` and ``function``.
        rest: its other arguments, as one writes them; for the message about a plain function.

    Raises:
        ValueError: as `find`; or it is something else.
    """
    found: object = find(kind, name, known)
    if isinstance(found, wanted):
        return found
    place, made = ".".join(wanted.__module__.split(".")[:2]), wanted.__name__
    text = f"{kind} {name!r} is a {type(found).__name__}, not an {place}.{made}"
    raise ValueError(f"{text}; {_lines(name, place, made, rest)}" if inspect.isroutine(found) else text)


def _lines(name: str, place: str, made: str, rest: str) -> str:
    """What to write where a plain function is named."""
    module, _, function = name.partition(":")
    constant = function.upper() if function.upper() != function else f"{function}_{made.upper()}"
    first = f"from {place} import {made}"
    second = f'{constant} = {made}(name="{function}", function={function}, {rest})'
    return f"write these two lines, `{first}` and `{second}`, and name {module}:{constant}"
