"""A YAML file -> its keys with values as they are written, and the line of each."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from erag_ray.config.keys import Written, config_in, field_hints, inner_hint, is_config, split_key

HINTS = {
    "found character '\\t' that cannot start any token": "indent with blanks, not with tabs",
    "mapping values are not allowed here": "a colon is missing in the line before, or this value needs quotes",
    "could not find expected ':'": "a colon is missing",
}
VALUE = "tag:yaml.org,2002:value"
"""The tag of a text that is ``=``."""
Tree = dict[str, Any]
"""Key -> value: `Written`, a list or another tree."""
Locations = dict[str, str]
"""Key, with dots and places in lists (``curriculum[1].epochs``) -> ``FILE:LINE: ``."""


def read_yaml(file: str, kind: type, locations: Locations, key: str = "") -> Tree:
    """Return the keys of a file, with those of the files that it names (``config`` is read first).

    Args:
        file: path of a YAML file.
        kind: the config that it is read for.
        locations: receives the line of each key.
        key: of the config, if it is one inside another.

    Raises:
        ValueError: the file is not YAML, or a key comes twice. The message names the line.
        OSError: it cannot be read.
    """
    try:
        root = _composed(file)
        if not isinstance(root, yaml.MappingNode):
            raise ValueError(f"{file}:1: holds no keys; write lines of the form KEY: VALUE")
        lines: Locations = {}
        written = _tree(root, file, key, lines)
        tree: Tree = {}
        if not key and "config" in written and "config" not in field_hints(kind):
            first = _named_file(written.pop("config"), file)
            if first is None:
                raise ValueError(f"{lines['config']}config: expected the path of a YAML file")
            overlay(kind, tree, read_yaml(first, kind, locations), locations, file)
        locations.update(lines)
        overlay(kind, tree, written, locations, file, key)
    except RecursionError:
        raise ValueError(f"{file}: is nested too deep, or holds itself") from None
    return tree


def overlay(
    hint: Any, tree: Tree, keys: Mapping[str, Any], locations: Locations, file: str, key: str = ""
) -> None:
    """Set the keys in a tree: configs key by key, everything else as a whole; ``reader.model`` is a key of ``reader``.

    A config that is given by the path of a YAML file gets the keys of this file.
    """
    for name, value in keys.items():
        names = split_key(hint, name) or [name]
        insert(hint, tree, names, value, locations, file, key)


def insert(
    hint: Any, tree: Tree, names: list[str], value: Any, locations: Locations, file: str, key: str = ""
) -> None:
    """Set one key, by the names on the way to it (see `overlay`)."""
    name, inside = names[0], inner_hint(hint, names[0])
    key = f"{key}.{name}" if key else name
    if len(names) > 1:
        below = tree.get(name)
        tree[name] = dict(below) if isinstance(below, dict) else {}
        insert(inside, tree[name], names[1:], value, locations, file, key)
        return
    config = config_in(inside)
    if is_config(config) and isinstance(value, Written) and (inside is config or value.text.startswith("{")):
        path = _named_file(value, file)
        value = read_yaml(path, config, locations, key) if path else value
    if is_config(config) and isinstance(value, dict):
        below = tree.get(name)
        tree[name] = dict(below) if isinstance(below, dict) else {}
        overlay(config, tree[name], value, locations, file, key)
    else:
        tree[name] = value


def _named_file(value: Any, file: str) -> str | None:
    """Return the path that a value names, from the folder of ``file`` or the working folder; None without a file."""
    if not isinstance(value, Written):
        return None
    paths = [pathlib.Path(file).parent / value.text, pathlib.Path(value.text)]
    try:
        return next((str(path) for path in paths if path.is_file()), None)
    except (OSError, ValueError):
        return None


def compose_text(text: str) -> Any:
    """Return the value in one text of YAML, as `read_yaml` has values; the text itself if it is not YAML."""
    try:
        node = _checked(lambda: yaml.compose(text, Loader=yaml.SafeLoader), "", text.encode(errors="replace"))
        return Written(text) if node is None else _tree(node, "", "", {})
    except (ValueError, RecursionError):
        return Written(text)


def _composed(file: str) -> yaml.Node | None:
    data = pathlib.Path(file).read_bytes()
    return _checked(lambda: yaml.compose(data.decode(), Loader=yaml.SafeLoader), file, data)


def _checked(compose: Callable[[], yaml.Node | None], file: str, data: bytes) -> yaml.Node | None:
    try:
        return compose()
    except UnicodeDecodeError as error:
        line, reason = data.count(b"\n", 0, error.start) + 1, f"not UTF-8: {error.reason}"
    except yaml.reader.ReaderError as error:
        line = data.decode().count("\n", 0, error.position) + 1
        reason = f"not YAML: the character #x{error.character:04x} is not allowed"
    except yaml.MarkedYAMLError as error:
        line, reason = _syntax_error(error)
    raise ValueError(f"{file}:{line}: {reason}")


def _syntax_error(error: yaml.MarkedYAMLError) -> tuple[int, str]:
    """Return the line of a syntax error, and what is wrong there."""
    mark, start = error.problem_mark or error.context_mark, error.context_mark
    line = mark.line + 1 if mark else 1
    problem = error.problem or ""
    since = f" from line {start.line + 1} on" if start and start.line + 1 != line else ""
    context = f" ({error.context}{since})" if error.context else ""
    hint = f"; {HINTS[problem]}" if problem in HINTS else ""
    return line, f"not YAML: {problem}{context}{hint}"


def _tree(node: yaml.Node, file: str, key: str, lines: Locations) -> Any:
    """Return the value of a node; ``lines`` receives the lines of the keys in it.

    Raises:
        ValueError: a tag is not YAML's own, a key is not a text, or comes twice.
    """

    def fault(at: yaml.Node, text: str) -> ValueError:
        return ValueError(f"{file}:{at.start_mark.line + 1}: {text}")

    if node.tag not in (*yaml.SafeLoader.yaml_constructors, VALUE):
        raise fault(node, f"not plain YAML: the tag {node.tag} is not read")
    if isinstance(node, yaml.ScalarNode):
        return Written(node.value, is_quoted=node.style is not None)
    if isinstance(node, yaml.SequenceNode):
        items = [(f"{key}[{index}]", item) for index, item in enumerate(node.value)]
        lines.update((name, f"{file}:{item.start_mark.line + 1}: ") for name, item in items)
        return [_tree(item, file, name, lines) for name, item in items]
    tree, seen = Tree(), set[str]()
    for name, value in node.value:
        if not isinstance(name, yaml.ScalarNode):
            raise fault(name, "a key must be a text")
        if name.value == "<<" and name.style is None:
            for merged in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                below = _tree(merged, file, key, lines)
                if not isinstance(below, dict):
                    raise fault(merged, "<< must be followed by keys")
                tree = {**below, **tree}
            continue
        if name.value in seen:
            raise fault(name, f"the key {name.value} comes twice")
        seen.add(name.value)
        full = f"{key}.{name.value}" if key else name.value
        lines[full] = f"{file}:{name.start_mark.line + 1}: "
        tree[name.value] = _tree(value, file, full, lines)
    return tree
