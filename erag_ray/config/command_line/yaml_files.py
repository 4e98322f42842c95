"""A YAML file -> its keys with values unchanged, and the line of each."""

import pathlib
import re
from collections.abc import Callable
from typing import Any

import yaml

from erag_ray.config.keys.scalars import Written, written

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


def read_yaml(file: str, locations: Locations, key: str = "") -> Tree:
    """Return the keys of a YAML file, of the config or of the one under ``key``, and note the line of each.

    Raises:
        ValueError: the file is not YAML, or a key comes twice. The message names the line.
        OSError: it cannot be read.
    """
    data = pathlib.Path(file).read_bytes()
    try:
        root = _checked(lambda: yaml.compose(data.decode(), Loader=yaml.SafeLoader), file, data)
        if not isinstance(root, yaml.MappingNode):
            raise ValueError(f"{file}:1: holds no keys; write lines of the form KEY: VALUE")
        return Tree(_tree(root, file, key, locations))
    except RecursionError:
        raise ValueError(f"{file}: is nested too deep, or holds itself") from None


def location_of(key: str, locations: Locations) -> str:
    """Return ``FILE:LINE: `` of a key, of one below it, or of the nearest one above it; "" if no file sets it."""
    for name, line in locations.items():
        if name == key or name.startswith(f"{key}."):
            return line
    shorter = key[: key.rindex("[")] if re.search(r"\[\d+\]$", key) else key.rpartition(".")[0]
    return location_of(shorter, locations) if shorter else ""


def compose_text(text: str) -> Any:
    """Return the value in one text of YAML, as `read_yaml` has values; the text itself if it is not YAML.

    Raises:
        ValueError: it starts as a list or as keys, and is not YAML.
    """
    try:
        node = _checked(lambda: yaml.compose(text, Loader=yaml.SafeLoader), "", text.encode(errors="replace"))
        return written(text) if node is None else _tree(node, "", "", {})
    except (ValueError, RecursionError) as error:
        if isinstance(error, ValueError) and text.startswith(("[", "{")):
            raise ValueError(str(error).lstrip(":0123456789 ")) from error
        return Written(text)


def _checked(compose: Callable[[], yaml.Node | None], file: str, data: bytes) -> yaml.Node | None:
    try:
        return compose()
    except UnicodeDecodeError as error:
        line, reason = data.count(b"\n", 0, error.start) + 1, f"not UTF-8: {error.reason}"
    except yaml.reader.ReaderError as error:
        line = data.decode().count("\n", 0, error.position) + 1
        reason = f"not YAML: the character #x{error.character:04x} is not allowed"
    except yaml.MarkedYAMLError as error:
        mark, start = error.problem_mark or error.context_mark, error.context_mark
        line, problem = mark.line + 1 if mark else 1, error.problem or ""
        since = f" from line {start.line + 1} on" if start and start.line + 1 != line else ""
        context = f" ({error.context}{since})" if error.context else ""
        reason = f"not YAML: {problem}{context}" + (f"; {HINTS[problem]}" if problem in HINTS else "")
    raise ValueError(f"{file}:{line}: {reason}")


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
        return written(node.value, is_quoted=node.style is not None)
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
                below = _tree(merged, file, key, merged_lines := Locations())
                lines.update(merged_lines | lines)
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
