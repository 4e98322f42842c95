"""A YAML file and a command line -> one config."""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jsonargparse
import yaml

from erag_ray.store import uri_fault

Config = TypeVar("Config")
SECRET = re.compile(r"://[^/@]*:[^/@]*@")


def parse(kind: type[Config], description: str, argv: Sequence[str] | None = None) -> Config:
    """The job's config from ``--config FILE.yaml`` and overrides; exits with code 2 and a message if it is wrong."""
    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    usage = "%(prog)s --config FILE.yaml [--KEY VALUE ...]"
    parser = jsonargparse.ArgumentParser(
        description=description, usage=usage, default_env=False, allow_abbrev=False
    )
    parser.add_argument("--config", action="config", help="YAML file with any of the keys below")
    parser.add_class_arguments(kind, fail_untyped=True)
    try:
        parsed = parser.parse_args(argv)
    except UnicodeDecodeError as error:
        parser.error(f"the config file is not UTF-8: {error}")
    files = parsed.pop("config", None) or []
    try:
        for file in files:
            _refuse_repeated_keys(yaml.compose(pathlib.Path(str(file)).read_text()), str(file))
        made = kind(**parser.instantiate(parsed).as_dict())
        _refuse_nan(made)
        return expand(made)
    except (TypeError, ValueError) as error:
        parser.error(str(error))


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


def _has_configs(value: Any) -> bool:
    some = next(iter(value.values()), None) if isinstance(value, dict) else value
    return dataclasses.is_dataclass(some)


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
    if SECRET.search(expanded):
        scheme = expanded.partition("://")[0]
        raise ValueError(
            f"a {scheme}:// path holds a secret before its @, which would stand in logs and manifests; give it by the "
            "environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS)"
        )
    if fault := uri_fault(expanded):
        raise ValueError(fault)
    return expanded


def _refuse_nan(value: Any, name: str = "") -> None:
    """NaN passes for a number, but nothing is above or below it."""
    if isinstance(value, float) and math.isnan(value):
        raise ValueError(f"{name} must be a number, got {value}")
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, held in inside:
        _refuse_nan(held, f"{name}.{key}" if name else str(key))


def _refuse_repeated_keys(node: yaml.Node | None, file: str) -> None:
    """YAML would keep the last of two equal keys, so that a run or a setting would vanish in silence."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(item, file)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                raise ValueError(f"{file}:{key.start_mark.line + 1}: the key {key.value} comes twice")
            seen.add(key.value)
            _refuse_repeated_keys(value, file)
