"""Resolve names in a config to functions and classes.

Each room has a plain dict at the end of a file (`SCORES`, `MEASURES`, `MODELS`, ...). An installed package, or an
extra of this one, adds entries by entry points (`plugins`); other code is named ``package.module:name``.
"""

import difflib
import functools
import importlib
import importlib.metadata
import inspect
import sys
from collections.abc import Iterable, Mapping
from typing import TypeVar

from erag_ray.support.user_code import fault_of

T = TypeVar("T")
OF_MODELS = (
    "bm25s", "faiss", "huggingface_hub", "ray", "sentence_transformers", "Stemmer", "torch", "transformers",
)  # fmt: skip
"""Packages that come with the extras cpu and gpu."""


@functools.cache
def plugins(kind: str) -> Mapping[str, str]:
    """Return the entry points for a kind of entry (group ``erag_ray.annotators``, say): name -> ``module:name``."""
    points = importlib.metadata.entry_points(group=f"erag_ray.{kind.replace(' ', '_')}s")
    return {point.name: point.value for point in points}


def find(kind: str, name: str, entries: Mapping[str, T]) -> T:
    """Return the entry called ``name``, that of an entry point, or the object that ``package.module:name`` names.

    Raises:
        ValueError: no such entry; or the module or the object in it does not exist.
    """
    if name in entries:
        return entries[name]
    added = plugins(kind)
    if ":" not in name and name not in added:
        known = sorted({*entries, *added})
        text = f"unknown {kind} {name!r}; known: {', '.join(known)}, or package.module:name"
        raise ValueError(text + suggestion(name, known))
    module, _, attribute = added.get(name, name).partition(":")
    try:
        entry: T = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        advice = install_advice(error)
        raise ValueError(f"{kind} {name!r} cannot be loaded: {fault_of(error, module)}{advice}") from error
    return entry


def install_advice(error: BaseException) -> str:
    """Return how to install the package that an import misses; "" where no extra of this package brings it."""
    is_known = isinstance(error, ModuleNotFoundError) and error.name in OF_MODELS
    return ". To install it: pip install 'erag-ray[cpu]' (or [gpu])" if is_known else ""


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return ``. Did you mean ...?`` with the nearest of the names, ignoring case; "" if none is near."""
    match = nearest(name, names)
    return f". Did you mean {match!r}?" if match else ""


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar of the names, ignoring case; None if none is similar."""
    by_lower_case = {candidate.lower(): candidate for candidate in names}
    matches = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
    return by_lower_case[matches[0]] if matches else None


def find_instance(kind: str, name: str, entries: Mapping[str, T], entry_class: type[T], arguments: str) -> T:
    """Return what `find` returns, which must be an instance of a class with the fields ``name`` and ``function``.

    ``arguments`` are its other arguments as source code; for the message about a plain function.

    Raises:
        ValueError: as `find`; or the object is of another class.
    """
    entry: object = find(kind, name, entries)
    if isinstance(entry, entry_class):
        return entry
    class_name, names = entry_class.__name__, entry_class.__module__.split(".")
    rooms = (".".join(names[: end + 1]) for end in range(len(names)))
    room = next(room for room in rooms if hasattr(sys.modules[room], class_name))
    text = f"{kind} {name!r} is a {type(entry).__name__}, not an {room}.{class_name}"
    if inspect.isroutine(entry):
        # the two lines of source code that turn a plain function into an entry
        module, _, function = plugins(kind).get(name, name).partition(":")
        constant = function.upper() if function.upper() != function else f"{function}_{class_name.upper()}"
        first = f"from {room} import {class_name}"
        second = f'{constant} = {class_name}(name="{function}", function={function}, {arguments})'
        text += f"; write these two lines, `{first}` and `{second}`, and name {module}:{constant}"
    raise ValueError(text)
