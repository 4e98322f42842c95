"""Filters of questions (``meta.split=test``, ``fever_fm2:meta.split=test``) and slices, by paths in their records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.jsonl import Record

_FORM = re.compile(r"(?:([^:=]+):)?([^:=]+)=(.*)", re.DOTALL)
_MISSING = object()


@dataclass(kw_only=True)
class Condition:
    """A condition on records.

    Attributes:
        is_found: whether any record so far belongs to its data set and has its path.
    """

    text: str
    dataset: str | None
    path: str
    value: str
    is_found: bool = False

    def holds(self, record: Record, dataset: str) -> bool:
        """Return whether the record passes. Records of other data sets do; records without the path do not."""
        if self.dataset not in (None, dataset):
            return True
        value = _at(record.values, self.path)
        self.is_found |= value is not _MISSING
        return value is not _MISSING and _text(value) == self.value


@dataclass(kw_only=True)
class Filters:
    """The conditions of a job: a record must satisfy all."""

    diagnostics: Diagnostics
    conditions: list[Condition] = field(default_factory=list)

    def keeps(self, record: Record, query_id: str, dataset: str) -> bool:
        """Return whether the record passes all conditions; warn where it does not."""
        # no short circuit: every condition has to see the record to set is_found
        failed = [condition.text for condition in self.conditions if not condition.holds(record, dataset)]
        if failed:
            self.diagnostics.warning(f"questions left out by filters {failed[0]}", query_id)
        return not failed

    def check(self) -> None:
        """Record an error for each path that no record has: likely a typo, which would drop every question."""
        for condition in self.conditions:
            if not condition.is_found:
                of = f" of data set {condition.dataset!r}" if condition.dataset else ""
                text = f"filters: {condition.text}: no record{of} has {condition.path}"
                self.diagnostics.error("config key filters", text)


@dataclass(kw_only=True)
class SlicePaths:
    """Paths whose values assign questions to slices.

    Attributes:
        is_found: the paths that at least one record has.
    """

    diagnostics: Diagnostics
    paths: Sequence[str] = ()
    is_found: set[str] = field(default_factory=set)

    def values(self, record: Record) -> dict[str, str]:
        """Return path -> the record's value as text, without paths that are missing, null or blank."""
        values = {path: _at(record.values, path) for path in self.paths}
        self.is_found |= {path for path, value in values.items() if value is not _MISSING}
        texts = {path: _text(value) for path, value in values.items() if value not in (_MISSING, None)}
        return {path: text for path, text in texts.items() if text.strip()}

    def check(self) -> None:
        """Record an error for each path that no record has."""
        for path in self.paths:
            if path not in self.is_found:
                self.diagnostics.error("config key slices", f"slices: {path}: no record has {path}")


def parse_filters(texts: Iterable[str], diagnostics: Diagnostics) -> Filters:
    """Parse conditions ``path=value`` or ``dataset:path=value``; anything else is an error in ``diagnostics``.

    Dots in a path descend into nested objects. Values other than strings are compared as JSON (``true``, ``3``).
    """
    conditions = []
    for text in texts:
        match = _FORM.fullmatch(text)
        if match:
            dataset, path, value = match.groups()
            conditions.append(Condition(text=text, dataset=dataset, path=path, value=value))
        else:
            diagnostics.error("config key filters", f"filters: {text!r} is not of the form path=value")
    return Filters(diagnostics=diagnostics, conditions=conditions)


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
        return f"a {type(value).__name__}, nested too deeply to compare"
