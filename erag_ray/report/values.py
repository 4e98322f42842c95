"""Helpers that turn rows of sealed tables into the values, columns and names of report tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import xxhash

from erag_ray.report.model import Column, Figure, Format, Plain, Report, Table, Value

MAX_NAME = 60


def part_name(*words: object) -> str:
    """Return a unique name for a table, figure or section, of letters, digits, ``-`` and ``_`` only."""
    text = "-".join(map(str, words))
    safe = re.sub(r"[^A-Za-z0-9_-]+", "_", text)[:MAX_NAME]
    return safe if safe == text else f"{safe}-{xxhash.xxh3_64_hexdigest(text.encode())[:8]}"


def parts_of(report: Report) -> list[Table | Figure]:
    """Return all tables and figures of a report in reading order."""
    return [part for section in report.sections for part in section.parts]


def tables_of(report: Report) -> list[Table]:
    """Return all tables of a report in reading order."""
    return [part for part in parts_of(report) if isinstance(part, Table)]


def figures_of(report: Report) -> list[Figure]:
    """Return all figures of a report in reading order."""
    return [part for part in parts_of(report) if isinstance(part, Figure)]


def names(*heads: str) -> tuple[Column, ...]:
    """Return columns that name rows."""
    return tuple(Column(head, Format.NAME) for head in heads)


def columns(heads: Iterable[str], form: Format = Format.NUMBER, meaning: str = "") -> tuple[Column, ...]:
    """Return columns of one format."""
    return tuple(Column(head, form, meaning) for head in heads)


def plain(*values: Plain) -> tuple[Value, ...]:
    """Return one table cell for each value (a number, a text, or None for an empty cell), without interval and note."""
    return tuple(map(Value, values))


def estimate(row: Mapping[str, Any], name: str = "value", note: str = "") -> Value:
    """Return the value of a row with its interval and reason; a missing value has no note."""
    value = row[name]
    if value is None:
        return Value(reason=row.get("reason") or "")
    return Value(value, row.get("low"), row.get("high"), note=note, reason=row.get("reason") or "")


def across(cells: Mapping[Any, Value], keys: Iterable[Any], reason: str = "") -> tuple[Value, ...]:
    """Return one value per key; absent keys give an empty value with ``reason``."""
    return tuple(cells.get(key) or Value(reason=reason) for key in keys)
