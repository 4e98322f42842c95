"""JSON Lines of lists with their texts: one record a question.

``{"query_id": ..., "documents": [{"doc_id", "text", "title"?, "score"?}], "seconds"?}``
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import polars as pl

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.documents import ListIds, document_of, with_text
from erag_ray.data.files.ids import QUERY_IDS, shown
from erag_ray.data.files.jsonl import Record
from erag_ray.data.runs.entries import as_entries, records_by_query

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

    A document without an id gets one (see `files.documents.text_id`). A document without text is an error.
    """
    rows: list[tuple[Any, ...]] = []
    for record, query_id in records_by_query(path, QUERY_IDS, name, diagnostics):
        seconds, documents = _seconds(record), list(_documents(record, query_id, name))
        if record.faulty:
            continue
        rows.extend((query_id, seconds, rank, *entry) for rank, entry in enumerate(documents, 1))
        if not documents and seconds is not None:
            rows.append((query_id, seconds, 0, None, None, None, None))
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
    ids = ListIds()
    for rank, values in enumerate(record.objects("documents"), 1):
        try:
            document = with_text(document_of(values))
        except ValueError as error:
            record.fault("wrong documents", f"document {rank}: {error}")
            continue
        try:
            doc_id = ids.next(document)
        except ValueError as error:
            record.fault("repeated documents", f"run {name!r}, query {query_id!r}: {error}")
            continue
        yield doc_id, document.title, str(document.text), document.score
