"""JSON Lines of lists with their texts: one record a question.

``{"query_id": ..., "documents": [{"doc_id", "text", "title"?, "score"?}], "seconds"?}``
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import polars as pl

from erag_ray.files import Diagnostics, Record, identifier, shown
from erag_ray.runs.entries import as_entries, finite, records_by_query, unnamed_id

TEXT_COLUMNS = pl.Schema(
    {
        "query_id": pl.String(),
        "seconds": pl.Float64(),
        "rank": pl.Int32(),
        "doc_id": pl.String(),
        "title": pl.String(),
        "text": pl.String(),
        "score": pl.Float64(),
    }
)


def read_lists(name: str, path: str, diagnostics: Diagnostics) -> pl.DataFrame:
    """Read lists with their texts as entries; documents are best first.

    A document without ``doc_id`` gets one (see `entries.text_id`). A document without text is an error.
    """
    rows: list[tuple[Any, ...]] = []
    for record, query_id in records_by_query(path, "query_id", name, diagnostics):
        seconds, documents = _seconds(record), list(_documents(record, query_id, name))
        if not record.faulty:
            rows.extend((query_id, seconds, rank, *entry) for rank, entry in enumerate(documents, 1))
    ranked = pl.DataFrame(rows, schema=TEXT_COLUMNS, orient="row").sort("query_id", "rank")
    return as_entries(ranked, name)


def _seconds(record: Record) -> float | None:
    value = record.values.get("seconds")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (is_number and math.isfinite(value) and value >= 0):
        record.fault("wrong seconds", f"seconds is {shown(value)}; it must be a number of at least 0")
        return None
    return None if value is None else float(value)


def _documents(
    record: Record, query_id: str, name: str
) -> Iterator[tuple[str, str | None, str, float | None]]:
    if "documents" not in record.values:
        record.fault("lists without documents", f"query {query_id!r} of run {name!r} has no documents")
    seen: set[str] = set()
    unnamed: Counter[str] = Counter()
    for rank, values in enumerate(record.objects("documents"), 1):
        title, text = _text(record, values, "title", rank), _text(record, values, "text", rank)
        doc_id = _doc_id(record, values, rank)
        if doc_id is None:
            doc_id = unnamed_id(title, text, unnamed)
        if doc_id in seen:
            record.fault(
                "repeated documents",
                f"run {name!r}, query {query_id!r}: document {doc_id!r} is in the list more than once",
            )
        seen.add(doc_id)
        yield doc_id, title or None, text, finite(values.get("score"))


def _text(record: Record, values: dict[str, Any], key: str, rank: int) -> str:
    """Return the string under ``key`` of a document; the text must not be blank, the title may be missing."""
    value = values.get(key)
    is_optional = key == "title"
    if isinstance(value, str) and (is_optional or value.strip()):
        return value
    if value is not None or not is_optional:
        state = f"is {shown(value)}" if key in values else "is missing"
        required = "a string" if is_optional else "a string that is not blank"
        record.fault(f"wrong {key}", f"document {rank}: {key} {state}; it must be {required}")
    return ""


def _doc_id(record: Record, values: dict[str, Any], rank: int) -> str | None:
    value = values.get("doc_id")
    if identifier(value) is None and value is not None and not isinstance(value, str):
        text = f"document {rank}: doc_id is {shown(value)}; it must be a string or a number"
        record.fault("wrong doc_id", text)
    return identifier(value)
