"""Names in a config -> the functions and classes behind them.

Each room keeps a plain dict at its foot (`SCORES`, `MEASURES`, `READERS`, ...). Code outside the package is
named ``package.module:name``.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from typing import TypeVar

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
    except (ImportError, AttributeError, TypeError, ValueError, SyntaxError, NameError) as error:
        raise ValueError(f"{kind} {name!r} cannot be loaded: {error}") from error
    return found


def suggestion(name: str, known: Iterable[str]) -> str:
    """``. Did you mean ...?`` with the nearest of the known names, in whatever case; "" where none is near."""
    by_lower_case = {one.lower(): one for one in known}
    nearest = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
    return f". Did you mean {by_lower_case[nearest[0]]!r}?" if nearest else ""
