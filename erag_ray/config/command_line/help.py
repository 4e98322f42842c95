"""Text of ``--help``: a config's everyday keys by topic, and with ``--help.all`` the others after them."""

import ast
import dataclasses
import functools
import inspect
import itertools
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from erag_ray.config.keys import names

ALL = "--help.all"
INDENT = 24
OPTIONS = {
    "-h, --help": "Show this help and exit.",
    ALL: "Show all keys, not only those of every day, and exit.",
    "--config FILE": "YAML file with any of the keys; of several, later ones win.",
    "--print_config": "Print all keys with their values, and exit.",
}
SIGNS = {"ge": "from", "gt": "above", "le": "to", "lt": "below"}


def help_text(kind: type, description: str, words: Sequence[str]) -> str:
    """Return the help that options ask for, such as ``--help``, ``--help.all`` and ``--retrievers.help``.

    Raises:
        ValueError: the key of ``--KEY.help`` has no keys below it.
    """
    groups = [word.removeprefix("--").removesuffix(".help") for word in words if word.endswith(".help")]
    name = os.path.basename(sys.argv[0])
    lines = [f"usage: {name} --config FILE.yaml [--KEY VALUE ...]", "", description.strip("\n")]
    if groups:
        if not names.is_config(config := _config_at(kind, groups[0])):
            raise ValueError(names.unknown_key(f"{groups[0]}.help", kind, mark="--"))
        return "\n".join([*lines, *_group(config, groups[0])]) + "\n"
    lines += ["", "options:", *(line for key, text in OPTIONS.items() for line in _entry(key, text))]
    everyday = getattr(kind, "EVERYDAY", {})
    shown = [key for keys in everyday.values() for key in keys]
    for title, keys in everyday.items():
        lines += ["", f"{title}:", *(line for key in keys for line in _key(kind, key))]
    if ALL in words or not everyday:
        lines += _group(kind, "", shown)
    return "\n".join(lines) + "\n"


def _group(kind: type, path: str, shown: Sequence[str] = (), title: str = "") -> Iterator[str]:
    """Yield the lines of the keys of a config, and of those always there inside it, but for those shown already."""
    title = title or inspect.cleandoc(str(kind.__doc__)).splitlines()[0]
    yield from ("", f"{title.removesuffix('.')}:")
    inside = [name for name, hint in names.field_hints(kind).items() if names.is_config(hint)]
    for name in sorted(names.field_hints(kind), key=lambda name: name != "kind"):
        if name not in inside and names.below(path, name) not in shown:
            yield from _key(kind, name, path)
    for name in inside:
        yield from _group(names.field_hints(kind)[name], names.below(path, name), shown, _texts(kind)[name])


def _config_at(kind: Any, path: str) -> Any:
    """Return the config below a key with dots, also one of several by name."""
    hint = functools.reduce(names.inner_hint, path.split("."), kind)
    return names.config_in(names.inner_hint(hint, "") or hint)


def _key(kind: Any, key: str, path: str = "") -> Iterator[str]:
    """Yield the lines of a key: its text, its type with bounds, and its default."""
    parent, _, name = key.rpartition(".")
    config = _config_at(kind, parent) if parent else kind
    hint, full = names.field_hints(config)[name], names.below(path, key)
    if names.is_config(_config_at(config, name)):
        yield from _entry(f"--{full}.help", "Show its keys and exit.")
    bounds = names.bounds_in(names.field_hints(config, with_bounds=True)[name])
    signs = " ".join(f"{SIGNS[sign]} {bound}" for sign, bound in bounds.items())
    kinds = ", ".join(filter(None, [names.type_text(hint), signs]))
    default = names.default_of(config.__dataclass_fields__[name])
    if default is not dataclasses.MISSING:
        text = default if isinstance(default, str) else json.dumps(default, default=dataclasses.asdict)
        kinds += f", default: {text}"
    yield from _entry(f"--{full} {name.upper()}", f"{_texts(config)[name]} ({kinds})")


@functools.cache
def _texts(kind: Hashable) -> dict[str, str]:
    """Return the docstring below each field of a config and of those that it inherits from."""
    texts = {}
    parents = reversed(kind.__mro__)  # type: ignore[attr-defined]
    for one in [one for one in parents if "__dataclass_fields__" in vars(one)]:
        (definition,) = ast.parse(inspect.getsource(one)).body
        for field, text in itertools.pairwise(getattr(definition, "body", ())):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                texts[ast.unparse(field.target)] = " ".join(ast.literal_eval(text.value).split())
    return texts


def _entry(key: str, text: str) -> Iterator[str]:
    width = min(shutil.get_terminal_size().columns, 120) - 2
    space = " " * INDENT
    wrapped = textwrap.wrap(text, max(width - INDENT, 20), break_long_words=False, break_on_hyphens=False)
    first = f"  {key}"
    if len(first) > INDENT - 2:
        yield first
    elif wrapped:
        yield first.ljust(INDENT) + wrapped.pop(0)
    yield from (space + line for line in wrapped)
