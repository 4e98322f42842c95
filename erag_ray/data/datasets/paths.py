"""Paths in the records of questions: filters, slices, and fields under other names than the plain format's.

Filters: ``meta.split=test``, ``fever_fm2:meta.split=test``. Fields: ``question: q``, ``answers: a.text``.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from erag_ray.data.datasets.answers import READ, is_alias, unread_fields
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.ids import identifier, is_missing
from erag_ray.data.files.jsonl import Record

_FORM = re.compile(r"(?:([^:=]+):)?([^:=]+)=(.*)", re.DOTALL)
_MISSING = object()
NO_VALUE = "(none)"
"""Slice value of questions whose record lacks the path, or has null or blank there."""
MAX_SLICE_VALUES = 50


@dataclass
class Condition:
    """A condition on records; ``is_found``: whether any so far belongs to its data set and has its path."""

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


class Filters:
    """The conditions of a job, ``path=value`` or ``dataset:path=value``: a record must satisfy all.

    Dots in a path descend into nested objects. Values other than strings are compared as JSON (``true``, ``3``).
    Anything else than such a text is an error in ``diagnostics``.
    """

    def __init__(self, texts: Iterable[str], diagnostics: Diagnostics) -> None:
        self.diagnostics = diagnostics
        self.conditions = list[Condition]()
        for text in texts:
            if match := _FORM.fullmatch(text):
                dataset, path, value = match.groups()
                self.conditions.append(Condition(text, dataset, path, value))
            else:
                diagnostics.error("config key filters", f"filters: {text!r} is not of the form path=value")

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
    """Paths whose values assign questions to slices, or to clusters."""

    diagnostics: Diagnostics
    paths: Mapping[str, str] = field(default_factory=dict)
    """Each with the config key that names it."""
    is_found: set[str] = field(default_factory=set)
    """The paths that at least one record has."""
    rows: list[tuple[str, str, str]] = field(default_factory=list)
    """Of SLICES: query_id, path and the record's value as text, `NO_VALUE` if it is missing, null or blank."""

    def add(self, query_id: str, record: Record) -> None:
        """Add the values of a question."""
        for path in self.paths:
            value = _at(record.values, path)
            self.is_found |= {path} if value is not _MISSING else set()
            text = "" if value is _MISSING or is_missing(value) else _text(value)
            self.rows.append((query_id, path, text if text.strip() else NO_VALUE))

    def check(self) -> None:
        """Record an error for each path that no record has, or that has too many values to group questions."""
        for path, key in self.paths.items() if self.rows else ():
            count = len({value for _, one, value in self.rows if one == path})
            if path not in self.is_found:
                self.diagnostics.error(f"config key {key}", f"{key}: {path}: no record has {path}")
            elif key == "slices" and count > MAX_SLICE_VALUES:
                text = f"slices: {path}: {count:,} values, more than {MAX_SLICE_VALUES}: it does not group questions"
                self.diagnostics.error("config key slices", f"{text}. Name another path")


def _at(values: Any, path: str) -> Any:
    for key in path.split("."):
        if not isinstance(values, dict) or key not in values:
            return _MISSING
        values = values[key]
    return values


def _text(value: Any) -> str:
    try:
        # 2020.0 is 2020, as where a column of whole numbers has gaps
        return value if isinstance(value, str) else identifier(value) or json.dumps(value, ensure_ascii=False)
    except TypeError:
        # a date, of Parquet
        return str(value)
    except RecursionError:
        return f"a {type(value).__name__}, nested too deeply to compare"


def with_fields(record: Record, fields: Mapping[str, str]) -> Record:
    """Return the record with the fields of the plain format next to its own; one that it lacks is an error.

    ``fields``: name of a plain field -> path in the record. Dots descend into objects, also into those of a list.
    """
    # other fields with answers must not be read or named: the config names another
    unread = {*READ, *filter(is_alias, record.values), *unread_fields(record.values, [])}
    hidden = unread if "answers" in fields else unread & {*fields.values()}
    values = {name: value for name, value in record.values.items() if name not in hidden}
    for name, path in fields.items():
        try:
            values[name] = _each_at(record.values, path.split("."))
        except LookupError:
            known = ", ".join(record.values) or "none"
            text = f"question_fields.{name}: no field {path}; the record has {known}"
            record.fault(f"missing field {path}", text)
    return replace(record, values=values)


def _each_at(value: Any, keys: list[str]) -> Any:
    """Return the value at a path, of a list those in each of its items; raise a `LookupError` if there is nothing."""
    if not keys:
        return value
    if isinstance(value, list):
        return [_each_at(item, keys) for item in value]
    if not isinstance(value, dict):
        raise LookupError
    return _each_at(value[keys[0]], keys[1:])
