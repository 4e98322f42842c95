"""A YAML file before its values are looked at: whether it is YAML, whether its keys are known, where each stands."""

from __future__ import annotations

import dataclasses
import pathlib
import types
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from erag_ray.config.command_line.renamed import RENAMED
from erag_ray.registry import nearest

NULL = "tag:yaml.org,2002:null"
HINTS = {
    "found character '\\t' that cannot start any token": "indent with blanks, not with tabs",
    "mapping values are not allowed here": "a colon is missing in the line before, or this value needs quotes",
    "could not find expected ':'": "a colon is missing",
}


class Key(NamedTuple):
    """A key of a file.

    Attributes:
        path: with dots: ``reader.model``, ``runs.bm25``; keys of all objects in a list have the same.
        value: as it is written, of a text or number.
        location: ``FILE:LINE: ``, to stand before a message.
    """

    path: str
    value: str | None
    location: str


def keys_of(file: str, kind: type) -> list[Key]:
    """The keys of a file, in its order.

    Args:
        file: the path of a YAML file.
        kind: the dataclass whose fields are the keys.

    Raises:
        ValueError: the file is no YAML, or a key is unknown, comes twice or has no value. The message names the line.
    """
    try:
        root = _composed(file)
        if isinstance(root, yaml.MappingNode):
            return list(_Walk(file, kind).below(root, kind, ""))
    except RecursionError:
        raise ValueError(f"{file}: is nested too deep, or holds itself") from None
    raise ValueError(f"{file}:1: holds no keys; write lines of the form KEY: VALUE")


def unknown_key(path: str, kind: type, mark: str = "") -> str:
    """Return the message about a key that there is not: with its new name, or with the nearest key.

    Args:
        path: the key, with dots.
        kind: the dataclass whose fields are the keys.
        mark: what stands before a key where it is written.
    """
    known = list(all_keys(kind))
    if RENAMED.get(path) in known:
        return f"unknown key {mark}{path}: it is called {mark}{RENAMED[path]} now"
    parent, _, name = path.rpartition(".")
    beside = nearest(name, _names_at(kind, parent))
    by_name = {key.rpartition(".")[2]: key for key in reversed(known)}
    elsewhere = None if beside else nearest(name, by_name)
    near = f"{parent}.{beside}".lstrip(".") if beside else by_name.get(elsewhere or "")
    return f"unknown key {mark}{path}" + (f". Did you mean {mark}{near}?" if near else "")


def all_keys(kind: type, path: str = "") -> Iterator[str]:
    """The keys of a config and of the configs inside it, with dots, in their order."""
    for name, hint in _field_hints(kind).items():
        full = f"{path}.{name}" if path else name
        yield full
        yield from all_keys(_without_null(hint), full)


def _names_at(kind: Any, path: str) -> list[str]:
    """The names of the keys below a key; none below what holds none."""
    hint = kind
    for name in filter(None, path.split(".")):
        hints, inside = _field_hints(_without_null(hint)), typing.get_args(_without_null(hint))
        # a name in a dict of configs is of the user's choice
        hint = hints.get(name) if hints else inside[1] if len(inside) == 2 else None
    return list(_field_hints(_without_null(hint)))


def _composed(file: str) -> yaml.Node | None:
    data = pathlib.Path(file).read_bytes()
    try:
        return yaml.compose(data.decode(), Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        line, reason = data.count(b"\n", 0, error.start) + 1, f"not UTF-8: {error.reason}"
    except yaml.reader.ReaderError as error:
        line = data.decode().count("\n", 0, error.position) + 1
        reason = f"not YAML: the character #x{error.character:04x} is not allowed"
    except yaml.MarkedYAMLError as error:
        line, reason = _syntax_error(error)
    raise ValueError(f"{file}:{line}: {reason}")


def _syntax_error(error: yaml.MarkedYAMLError) -> tuple[int, str]:
    """The line of a syntax error, and what is wrong there."""
    mark, start = error.problem_mark or error.context_mark, error.context_mark
    line = mark.line + 1 if mark else 1
    problem = error.problem or ""
    since = f" from line {start.line + 1} on" if start and start.line + 1 != line else ""
    context = f" ({error.context}{since})" if error.context else ""
    hint = f"; {HINTS[problem]}" if problem in HINTS else ""
    return line, f"not YAML: {problem}{context}{hint}"


@dataclasses.dataclass(frozen=True)
class _Walk:
    """Goes down the keys of a file together with the types that they have in the config."""

    file: str
    kind: type

    def below(self, node: yaml.Node, hint: Any, path: str) -> Iterator[Key]:
        """Every key below a node."""
        takes_text = str in typing.get_args(hint)
        hint = _without_null(hint)
        if node.tag not in yaml.SafeLoader.yaml_constructors:
            raise self._fault(node, f"not plain YAML: the tag {node.tag} is not read")
        if isinstance(node, yaml.SequenceNode) and typing.get_origin(hint) is list:
            for item in node.value:
                yield from self.below(item, typing.get_args(hint)[0], path)
        elif isinstance(node, yaml.MappingNode) and (_is_config(hint) or typing.get_origin(hint) is dict):
            yield from self._keys(node, hint, path)
        elif isinstance(node, yaml.ScalarNode) and takes_text:
            return
        elif _is_config(hint) and (isinstance(node, yaml.SequenceNode) or "." in path):
            # its own first, then those that it shares with others
            names = sorted(_field_hints(hint), key=lambda name: name not in hint.__annotations__)
            keys = ", ".join(names[:3])
            raise self._fault(node, f"{path} must hold keys ({keys}, ...)")

    def _keys(self, node: yaml.MappingNode, hint: Any, path: str) -> Iterator[Key]:
        seen: set[str] = set()
        for key, value in node.value:
            if key.value == "<<":
                for merged in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    yield from self.below(merged, hint, path)
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise self._fault(key, "a key must be a text")
            if key.value in seen:
                raise self._fault(key, f"the key {key.value} comes twice")
            seen.add(key.value)
            full = f"{path}.{key.value}" if path else key.value
            text = value.value if isinstance(value, yaml.ScalarNode) else None
            yield Key(full, text, f"{self.file}:{key.start_mark.line + 1}: ")
            # a file may name another one to read first
            if full != "config":
                inner = self._inner(key, hint, full)
                if value.tag == NULL and _without_null(inner) is inner:
                    raise self._fault(key, f"{full} has no value; give one, or leave the key out")
                yield from self.below(value, inner, full)

    def _inner(self, key: yaml.ScalarNode, hint: Any, path: str) -> Any:
        """The type of a key's value."""
        if not _is_config(hint):
            return typing.get_args(hint)[1]
        # reader.model: x is short for reader: {model: x}
        for name in key.value.split("."):
            hints = _field_hints(hint)
            if name not in hints:
                raise self._fault(key, unknown_key(path, self.kind))
            hint = hints[name]
        return hint

    def _fault(self, node: yaml.Node, text: str) -> ValueError:
        return ValueError(f"{self.file}:{node.start_mark.line + 1}: {text}")


def _is_config(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint)


def _field_hints(config: Any) -> dict[str, Any]:
    if not _is_config(config):
        return {}
    hints = typing.get_type_hints(config)
    return {field.name: hints[field.name] for field in dataclasses.fields(config)}


def _without_null(hint: Any) -> Any:
    """A type without ``| None``; the same object where it has none."""
    kinds = typing.get_args(hint)
    if typing.get_origin(hint) in (types.UnionType, typing.Union) and types.NoneType in kinds:
        return next((one for one in kinds if _is_config(one)), kinds[0])
    return hint
