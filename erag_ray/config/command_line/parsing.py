"""A YAML file and a command line -> one config."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import jsonargparse

from erag_ray.config.command_line.help import ALL, Formatter, help_groups
from erag_ray.config.command_line.keys import Key, keys_of, unknown_key
from erag_ray.uris import uri_fault

Config = TypeVar("Config")
SECRET = re.compile(r"://[^/@]*:[^/@]*@")


def parse(kind: type[Config], description: str, argv: Sequence[str] | None = None) -> Config:
    """The job's config from ``--config FILE.yaml`` and overrides; exits with code 2 and a message if it is wrong."""
    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = _parser(kind, description, list(sys.argv[1:] if argv is None else argv))
    try:
        parsed = parser.parse_args(parser.argv)
    except UnicodeDecodeError as error:
        parser.error(f"a file that the config names is not UTF-8: {error}")
    parsed.pop("config", None)
    try:
        config = kind(**parser.instantiate(parsed).as_dict())
        _refuse_nan(config)
        return expand(config)
    except (TypeError, ValueError) as error:
        parser.error(str(error))


def _parser(kind: type, description: str, argv: Sequence[str]) -> _Parser:
    usage = "%(prog)s --config FILE.yaml [--KEY VALUE ...]"
    parser = _Parser(
        description=description, usage=usage, formatter_class=Formatter, default_env=False, allow_abbrev=False
    )
    parser.kind, parser.argv = kind, argv
    parser.add_argument(ALL, action="help", help="Show all keys, not only those of every day, and exit.")
    parser.add_argument("--config", action=_ReadFile, help="YAML file with any of the keys")
    parser.add_class_arguments(kind, fail_untyped=True)
    return parser


class _Parser(jsonargparse.ArgumentParser):
    """A parser whose messages name file and line of a key that is wrong in a config file."""

    kind: type = object
    argv: Sequence[str] = ()

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.keys: list[Key] = []

    def format_help(self, *arguments: Any) -> str:
        """The help, with the everyday keys alone unless all are asked for."""
        groups, everyday = self._action_groups, getattr(self.kind, "EVERYDAY", {})
        self._action_groups = help_groups(self, everyday, show_all=ALL in self.argv)
        try:
            return super().format_help(*arguments)
        finally:
            self._action_groups = groups

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        # jsonargparse makes more parsers of this class, whose messages become part of the last one
        super().error(self._located(message) if self.exit_on_error else message, ex)

    def _located(self, message: str) -> str:
        """A message about a key in one line, after ``FILE:LINE`` if the key stands in a file."""
        if faults := self._of_command_line(message):
            return "; ".join(faults)
        message = _of_prompt(message)
        names = re.findall(r'Parser key "([\w.-]+)":', message)
        one = re.findall(r"Expected an? (.+)\. Got value: (.*)", message)
        kinds, value = re.findall(r"Expected an? (.+)", message), re.findall(r"Given value: (.*)", message)
        if names and (one or (kinds and value)):
            kinds, value = ([one[0][0]], one[0][1]) if one else (kinds, value[-1])
            key = self._key(names, value)
            path = key.path if key else ".".join(names)
            message = f'"{path}": expected {" or ".join(map(_type_name, kinds))}, got {value}'
        else:
            message = re.sub(r'Parser key "([\w.-]+)":\s*', r"\1: ", message)
            start = re.match(r"([\w.-]+)(?: must |: | is )(?:.*, got (.*))?", message)
            key = self._key(names or [start[1]], start[2]) if start else None
        return f"{key.location if key else ''}{' '.join(message.split())}"

    def _of_command_line(self, message: str) -> list[str]:
        """Return the errors of unknown options, and of words that belong to no option."""
        option = re.search(r"Option '(\w+)' is not accepted", message)
        words = message.removeprefix("unrecognized arguments: ").split()
        if option:
            words = [word for word in self._words if word.endswith(f".{option[1]}")]
        elif not message.startswith("unrecognized arguments: "):
            return []
        options = [word.partition("=")[0][2:] for word in words if word.startswith("--")]
        loose = f"{words[0]} belongs to no key; a config file is named by --config" if words else message
        return [unknown_key(name, self.kind, "--") for name in options] or [loose]

    def _key(self, names: Sequence[str], value: str | None) -> Key | None:
        """The key of a file that a message is about; None where the command line sets it.

        Args:
            names: the key, and that of a value inside it, if the message has both.
            value: the value that is wrong; it tells the keys of a list or of several retrievers apart.
        """
        path, *inside = names
        here = [key for key in self.keys if f"{key.path}.".startswith(f"{path}.")]
        by_value = [
            key
            for key in here
            if value and key.value == value and key.path.endswith(f".{inside[-1]}" if inside else "")
        ]
        if self._is_option(path) and (not by_value or value in self._words):
            return None
        exact = [key for key in here if key.path == path]
        # a retriever says what is wrong with one of its keys, but not what it is called
        others = [key for key in self.keys if key.path.endswith(f".{path}")]
        return next(reversed(by_value or exact or (others if len(others) == 1 else [])), None)

    @property
    def _words(self) -> list[str]:
        """The command line, options apart from their values."""
        return [part for word in self.argv for part in word.split("=", 1)]

    def _is_option(self, path: str) -> bool:
        """Whether the command line sets a key, one below it, or one above it."""
        options = [f"{word.removeprefix('--')}." for word in self._words if word.startswith("--")]
        return any(option.startswith(f"{path}.") or f"{path}.".startswith(option) for option in options)


class _ReadFile(jsonargparse.ActionConfigFile):  # type: ignore[name-defined, misc]
    """Reads a config file after a look at its form and its keys."""

    def __call__(self, parser: Any, cfg: Any, values: Any, option_string: str | None = None) -> None:
        if os.path.isfile(values):
            try:
                parser.keys += keys_of(values, parser.kind)
            except (OSError, ValueError) as error:
                parser.error(str(error))
        super().__call__(parser, cfg, values, option_string)


def _of_prompt(message: str) -> str:
    """Return the error of a prompt's keys in place of one for each type that a prompt may have; else the message."""
    if wrong := re.search(r"- (reader\.prompt\.\w+ must .*)", message):
        return wrong[1]
    inside = r"- Problem with given class_path '.*PromptConfig':\s*Parser key \"([\w.]+)\":\s*(.*)"
    if wrong := re.search(r"PromptConfig':\s*the following arguments are required: ([\w, ]+)", message):
        return f"reader.prompt must have the key {wrong[1].strip()}"
    if wrong := re.search(inside, message):
        return f'Parser key "reader.prompt.{wrong[1]}": {wrong[2]}'
    return message


def _type_name(text: str) -> str:
    """A type of jsonargparse's messages as a config has it."""
    if choices := re.fullmatch(r"typing\.Literal\[(.*)\]", text):
        return f"one of {choices[1]}"
    name = text.removeprefix("<class '").removesuffix("'>")
    return {"NoneType": "null", "str": "text", "dict": "keys with values"}.get(name, name)


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
    for key, member in inside:
        _refuse_nan(member, f"{name}.{key}" if name else str(key))
