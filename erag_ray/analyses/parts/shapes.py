"""Shapes of report tables: a listing of rows, and a cross table; their columns, values and names.

A `listing` has a row for each row of a frame, and a `Field` for each column. A `crosstab` has a row for each group of
rows, such as an annotator's measure, and a column for each key of a group, such as a run.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl
import xxhash

from erag_ray.analyses.parts.model import Column, Figure, Format, Plain, Report, Table, Value

MAX_NAME = 60
ABSENT = Value()
Row = Mapping[str, Any]


def part_name(*words: object) -> str:
    """Return a unique name for a table, figure or section, of letters, digits, ``-`` and ``_`` only."""
    text = "-".join(map(str, words))
    safe = re.sub(r"[^A-Za-z0-9_-]+", "_", text)[:MAX_NAME]
    return safe if safe == text else f"{safe}-{xxhash.xxh3_64_hexdigest(text.encode())[:8]}"


def about(dataset: str, kind: str, title: str, *words: object) -> dict[str, Any]:
    """Return name, title and dataset of a part about one dataset, as fields of `Table` and `Figure`."""
    return {"name": part_name(kind, dataset, *words), "title": f"{dataset}: {title}", "dataset": dataset}


def parts_of(report: Report) -> list[Table | Figure]:
    return [part for section in report.sections for part in section.parts]


def tables_of(report: Report) -> list[Table]:
    return [part for part in parts_of(report) if isinstance(part, Table)]


def figures_of(report: Report) -> list[Figure]:
    return [part for part in parts_of(report) if isinstance(part, Figure)]


def names(*heads: str) -> tuple[Column, ...]:
    return tuple(Column(head, Format.NAME) for head in heads)


def columns(heads: Iterable[str], form: Format = Format.NUMBER) -> tuple[Column, ...]:
    return tuple(Column(head, form) for head in heads)


def plain(*values: Plain) -> tuple[Value, ...]:
    """Return one table cell for each value (a number, a text, or None for an empty cell), without interval and note."""
    return tuple(map(Value, values))


def estimate(row: Row, name: str = "value", note: str = "") -> Value:
    """Return the value of a row with its interval and reason; a missing value has no note."""
    value = row[name]
    if value is None:
        return Value(reason=row.get("reason") or "")
    return Value(value, row.get("low"), row.get("high"), note=note, reason=row.get("reason") or "")


class Field(NamedTuple):
    """A column of a listing, and how its value follows from a row."""

    column: Column
    value: Callable[[Row], Value]


def field(
    head: str, key: str | Callable[[Row], Plain | Value], form: Format = Format.NUMBER, meaning: str = ""
) -> Field:
    """Return a field: its header, then a column of the frame or a function of the row.

    Where the column lacks a value, the row's reason says why.
    """

    def value(row: Row) -> Value:
        one = row[key] if isinstance(key, str) else key(row)
        if isinstance(one, Value):
            return one
        return Value(one, reason=row.get("reason") or "" if one is None else "")

    return Field(Column(head, form, meaning), value)


def name_field(head: str, key: str | Callable[[Row], Plain | Value]) -> Field:
    return field(head, key, Format.NAME)


def rows_of(frame: pl.DataFrame) -> Iterator[dict[str, Any]]:
    return frame.iter_rows(named=True)


def listing(rows: Iterable[Row], fields: Sequence[Field], **about: Any) -> Table:
    """Return a table with a row for each row, and a column for each field; ``about``: fields of `Table`."""
    cells = tuple(tuple(one.value(row) for one in fields) for row in rows)
    return Table(columns=tuple(one.column for one in fields), rows=cells, **about)


def crosstab(
    groups: Iterable[tuple[Sequence[Plain | Value], pl.DataFrame]],
    heads: Sequence[Column],
    key: str,
    keys: Mapping[Any, Column],
    value: Callable[[Row], Value] = estimate,
    absent: Value = ABSENT,
    **about: Any,
) -> Table:
    """Return a table with a row for each group, and a column for each key.

    A group is what names its row, under ``heads``, and rows of a frame, of which ``value`` makes the cells: each in the
    column that ``keys`` has for its value of ``key``. The cell of a key without a row is ``absent``.
    """
    rows = []
    for given, part in groups:
        first = (one if isinstance(one, Value) else Value(one) for one in given)
        cells = {row[key]: value(row) for row in rows_of(part)}
        rows.append((*first, *(cells.get(one, absent) for one in keys)))
    return Table(columns=(*heads, *keys.values()), rows=tuple(rows), **about)
