"""A YAML file and a command line -> one config."""

import dataclasses
import functools
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import yaml

from erag_ray.config.command_line.help import help_text
from erag_ray.config.command_line.yaml_files import Locations, Tree, compose_text, location_of, read_yaml
from erag_ray.config.keys.messages import KeysError
from erag_ray.config.keys.names import config_in, inner_hint, is_config, is_raw, split_key, unknown_key
from erag_ray.config.keys.scalars import written
from erag_ray.config.keys.values import build
from erag_ray.support.masking import masked_message
from erag_ray.support.uris import searched_in

Config = TypeVar("Config")
PRINT = "--print_config"
HELP = ("-h", "--help", "--help.all")


def parse(kind: type[Config], description: str, argv: Sequence[str] | None = None) -> Config:
    """Return the job's config from ``--config FILE.yaml`` and options; exit with code 2 and messages if it is wrong."""
    words = list(sys.argv[1:] if argv is None else argv)
    helps = [word for word in words if word in HELP or (word.startswith("--") and word.endswith(".help"))]
    locations: Locations = {}
    try:
        if helps:
            sys.stdout.write(help_text(kind, description, helps))
            raise SystemExit(0)
        tree = _tree(kind, [word for word in words if word != PRINT], locations)
        config: Config = build(kind, tree)
    except KeysError as error:
        _refuse([f"{location_of(problem.key, locations)}{problem.text}" for problem in error.keyed])
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


def _tree(kind: type, words: Sequence[str], locations: Locations) -> Tree:
    """Return all keys that files and options set, later ones win; raise a `ValueError` for one that cannot be used."""
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
            try:
                _overlay(kind, tree, read_yaml(value, locations))
            except OSError as error:
                reason = f"{error.strerror or error}{searched_in(value)}"
                raise ValueError(f"--config: {value} is not a file that can be read: {reason}") from error
        elif _is_key(kind, option[2:]):
            _add_option(kind, tree, option[2:], value, locations)
        else:
            unknown.append(unknown_key(option[2:], kind, mark="--"))
    if unknown:
        raise ValueError("; ".join(unknown))
    return tree


def _add_option(kind: type, tree: Tree, option: str, text: str, locations: Locations) -> None:
    names = split_key(kind, option)
    hint = functools.reduce(inner_hint, names, kind)
    try:
        value = written(text, is_quoted=not text) if is_raw(hint, text) else compose_text(text)
    except ValueError as error:
        raise ValueError(f"--{option}: {text} is {error}") from None
    for key in [key for key in locations if key == option or key.startswith((f"{option}.", f"{option}["))]:
        # what the command line sets has no line
        del locations[key]
    locations[option] = ""
    _set(kind, tree, names, value)


def _overlay(hint: Any, tree: Tree, keys: Mapping[str, Any]) -> None:
    """Set keys in a tree: configs key by key, everything else as a whole; ``reader.model`` is a key of ``reader``."""
    for name, value in keys.items():
        _set(hint, tree, split_key(hint, name) or [name], value)


def _set(hint: Any, tree: Tree, names: Sequence[str], value: Any) -> None:
    """Set one key, by the names on the way to it."""
    name, *others = names
    inside = inner_hint(hint, name)
    if not others and not (is_config(config_in(inside)) and isinstance(value, dict)):
        tree[name] = value
        return
    tree[name] = dict(tree[name]) if isinstance(tree.get(name), dict) else {}
    if others:
        _set(inside, tree[name], others, value)
    else:
        _overlay(config_in(inside), tree[name], value)


def _is_key(kind: Any, option: str) -> bool:
    hint = functools.reduce(inner_hint, split_key(kind, option), kind)
    return hint not in (None, kind) and not option.endswith(".")
