"""Paths in the records of query files: conditions (``meta.split=test``, ``fever_fm2:meta.split=test``) and slices."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from erag_ray.files import Diagnostics, Record

_FORM = re.compile(r"(?:([^:=]+):)?([^:=]+)=(.*)", re.DOTALL)
_MISSING = object()


@dataclass(kw_only=True)
class Condition:
    """One condition, and whether a record has shown that its data set and its path are there at all."""

    text: str
    dataset: str | None
    path: str
    value: str
    is_found: bool = False

    def holds(self, record: Record, dataset: str) -> bool:
        """Whether the record is to be kept; one of another data set is, one without the path is not."""
        if self.dataset not in (None, dataset):
            return True
        value = _at(record.values, self.path)
        self.is_found |= value is not _MISSING
        return value is not _MISSING and _text(value) == self.value


@dataclass(kw_only=True)
class Where:
    """All conditions of a job: a record must satisfy every one."""

    diagnostics: Diagnostics
    conditions: list[Condition] = field(default_factory=list)

    def keeps(self, record: Record, query_id: str, dataset: str) -> bool:
        """Whether the record is kept; one that is not goes to the notes."""
        # every condition looks, so that each learns whether its path is there
        failed = [one.text for one in self.conditions if not one.holds(record, dataset)]
        if failed:
            self.diagnostics.warning(f"questions left out by filters {failed[0]}", query_id)
        return not failed

    def check(self) -> None:
        """A path that no record has is a slip of the pen: it would leave out everything."""
        for one in self.conditions:
            if not one.is_found:
                of = f" of data set {one.dataset!r}" if one.dataset else ""
                text = f"filters: {one.text}: no record{of} has {one.path}"
                self.diagnostics.error("config key filters", text)


@dataclass(kw_only=True)
class SlicePaths:
    """Paths whose values put questions into slices, and which of them a record has shown to be there."""

    diagnostics: Diagnostics
    paths: Sequence[str] = ()
    is_found: set[str] = field(default_factory=set)

    def values(self, record: Record) -> dict[str, str]:
        """Path -> the record's value as text; a path that is missing, null or blank is left out."""
        found = {path: _at(record.values, path) for path in self.paths}
        self.is_found |= {path for path, value in found.items() if value is not _MISSING}
        texts = {path: _text(value) for path, value in found.items() if value not in (_MISSING, None)}
        return {path: text for path, text in texts.items() if text.strip()}

    def check(self) -> None:
        """A path that no record has is a slip of the pen."""
        for path in self.paths:
            if path not in self.is_found:
                self.diagnostics.error("config key slices", f"slices: {path}: no record has {path}")


def conditions_of(texts: Iterable[str], diagnostics: Diagnostics) -> Where:
    """The conditions, each ``path=value`` or ``dataset:path=value``; other texts are problems.

    The path's dots go down into the record's objects. A value that is no text is compared as JSON (``true``, ``3``).
    """
    conditions = []
    for text in texts:
        found = _FORM.fullmatch(text)
        if found:
            dataset, path, value = found.groups()
            conditions.append(Condition(text=text, dataset=dataset, path=path, value=value))
        else:
            diagnostics.error("config key filters", f"filters: {text!r} is not of the form path=value")
    return Where(diagnostics=diagnostics, conditions=conditions)


def _at(values: Any, path: str) -> Any:
    for key in path.split("."):
        if not isinstance(values, dict) or key not in values:
            return _MISSING
        values = values[key]
    return values


def _text(value: Any) -> str:
    try:
        return value if isinstance(value, str) else json.dumps(value)
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deep to be compared"
