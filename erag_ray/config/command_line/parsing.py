"""A YAML file and a command line -> one config."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

import yaml

from erag_ray.config.command_line.yaml_files import Locations, Tree, compose_text, insert, overlay, read_yaml
from erag_ray.config.keys import (
    KeysError,
    Written,
    build,
    config_in,
    inner_hint,
    is_config,
    is_raw,
    split_key,
    unknown_key,
)
from erag_ray.masking import masked_message
from erag_ray.uris import searched_in, uri_fault

Config = TypeVar("Config")
PRINT = "--print_config"
HELP = ("-h", "--help", "--help.all")


def parse(kind: type[Config], description: str, argv: Sequence[str] | None = None) -> Config:
    """Return the job's config from ``--config FILE.yaml`` and options; exit with code 2 and messages if it is wrong."""
    words = list(sys.argv[1:] if argv is None else argv)
    if helps := [
        word for word in words if word in HELP or (word.startswith("--") and word.endswith(".help"))
    ]:
        # the library that lays out the help takes a moment to import
        from erag_ray.config.command_line.help import show_help

        show_help(kind, description, helps)
    locations: Locations = {}
    try:
        tree = _tree(kind, [word for word in words if word != PRINT], locations)
        config: Config = expand(build(kind, tree))
    except KeysError as error:
        _refuse([f"{_location(problem.key, locations)}{problem.text}" for problem in error.keyed])
    except (OSError, ValueError) as error:
        _refuse([str(error)])
    if PRINT in words:
        sys.stdout.write(yaml.safe_dump(dataclasses.asdict(config), sort_keys=False))  # type: ignore[call-overload]
        raise SystemExit(0)
    return config


def _refuse(problems: Sequence[str]) -> NoReturn:
    usage = f"usage: {os.path.basename(sys.argv[0])} --config FILE.yaml [--KEY VALUE ...], or --help.all\n"
    lines = "".join(f"error: {' '.join(masked_message(text).split())}\n" for text in problems)
    sys.stderr.write((usage + lines).encode(errors="backslashreplace").decode())
    raise SystemExit(2)


def _location(key: str, locations: Locations) -> str:
    """Return the line of a key, or of the nearest one above it; "" if no file sets it."""
    while key and key not in locations:
        key = re.sub(r"(^|\.)[^.\[]*$|\[\d+\]$", "", key)
    return locations.get(key, "")


def _tree(kind: type, words: Sequence[str], locations: Locations) -> Tree:
    """Return all keys that files and options set; later ones win.

    Raises:
        ValueError: an option is unknown or has no value, or a file cannot be used.
    """
    tree: Tree = {}
    unknown, rest = list[str](), list(words)
    while rest:
        option, has_value, value = rest.pop(0).partition("=")
        if not option.startswith("--"):
            raise ValueError(f"{option} belongs to no key; a config file is named by --config")
        if not has_value and not (rest and not rest[0].startswith("--")):
            if _is_key(kind, option[2:]) or option == "--config":
                raise ValueError(f"{option} has no value. Write {option} VALUE")
        elif not has_value:
            value = rest.pop(0)
        if option == "--config":
            _add_file(kind, tree, value, locations)
        elif _is_key(kind, option[2:]):
            _add_option(kind, tree, option[2:], value, locations)
        else:
            unknown.append(unknown_key(option[2:], kind, mark="--"))
    if unknown:
        raise ValueError("; ".join(unknown))
    return tree


def _add_file(kind: type, tree: Tree, file: str, locations: Locations) -> None:
    try:
        keys = read_yaml(file, kind, locations)
    except OSError as error:
        text = (
            f"--config: {file} is not a file that can be read: {error.strerror or error}{searched_in(file)}"
        )
        raise ValueError(text) from error
    overlay(kind, tree, keys, locations, file)


def _add_option(kind: type, tree: Tree, option: str, text: str, locations: Locations) -> None:
    option, appends, _ = option.partition("+")
    names, hint, current = split_key(kind, option), kind, tree
    for name in names:
        default = _default(hint, name)
        hint = inner_hint(hint, name)
        current = current.get(name, default) if isinstance(current, dict) else default
    value = Written(text, is_quoted=not text) if is_raw(hint, text) else compose_text(text)
    if appends:
        value = [*(current or []), *(value if isinstance(value, list) else [value])]
    for key in [key for key in locations if key == option or key.startswith((f"{option}.", f"{option}["))]:
        # what the command line sets has no line
        del locations[key]
    locations[option] = ""
    insert(kind, tree, names, value, locations, "")


def _default(hint: Any, name: str) -> Any:
    """Return the list that a key has if nobody sets it; None for other keys."""
    config = config_in(hint)
    fields = dataclasses.fields(config) if is_config(config) else ()
    factory = next((field.default_factory for field in fields if field.name == name), None)
    is_list = str(inner_hint(hint, name)).startswith("list")
    return factory() if is_list and callable(factory) else None


def _is_key(kind: Any, option: str) -> bool:
    """Return whether an option is a key, or a key of a list with ``+``, which adds to it."""
    key, appends, _ = option.partition("+")
    hint = kind
    for name in split_key(kind, key):
        hint = inner_hint(hint, name)
    return hint is not None and (not appends or (option.endswith("+") and str(hint).startswith("list")))


def expand(config: Config) -> Config:
    """The config with ``$NAME`` and ``~`` in its paths (the fields that its ``PATHS`` name) replaced.

    Raises:
        ValueError: an environment variable is not set, or a path holds a secret or options.
    """
    return map_paths(config, _expand_path)


def map_paths(config: Config, change: Callable[[str], str]) -> Config:
    """The config with every path (in the fields that its ``PATHS`` name, and in the configs inside it) changed."""
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}  # type: ignore[arg-type]
    paths = getattr(config, "PATHS", ())
    changed = {
        name: _mapped(value, change) if name in paths else _inside(value, change)
        for name, value in values.items()
        if name in paths or _has_configs(value)
    }
    return dataclasses.replace(config, **changed)  # type: ignore[type-var]


def paths_of(config: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the key and the path of every path of a config, and of the configs inside it."""
    for name in (field.name for field in dataclasses.fields(config)):
        value, key = getattr(config, name), f"{prefix}{name}"
        if name in getattr(config, "PATHS", ()):
            yield from ((key, path) for path in _flat(value))
        elif _has_configs(value):
            inside = value if isinstance(value, dict) else {"": value}
            for item_name, item in inside.items():
                yield from paths_of(item, f"{key}.{item_name}.".replace("..", "."))


def _flat(value: Any) -> Iterator[str]:
    if isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _flat(item)
    elif value is not None:
        yield value


def _has_configs(value: Any) -> bool:
    member = next(iter(value.values()), None) if isinstance(value, dict) else value
    return dataclasses.is_dataclass(member)


def _inside(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {name: map_paths(item, change) for name, item in value.items()}
    return map_paths(value, change)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    if isinstance(value, dict):
        return {name: _mapped(item, change) for name, item in value.items()}
    return value if value is None else change(value)


def _expand_path(path: str) -> str:
    expanded = os.path.expanduser(os.path.expandvars(path))
    unset = re.search(r"\$\{?(\w+)", expanded)
    if unset:
        raise ValueError(f"{path}: the environment variable {unset[1]} is not set")
    if "\0" in expanded:
        raise ValueError(f"{path!r}: a path cannot hold this character")
    if fault := uri_fault(expanded):
        raise ValueError(fault)
    return expanded
