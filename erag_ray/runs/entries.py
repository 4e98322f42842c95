"""Entries: RUNS before the passages are loaded, with what a file says of pages, texts and latency.

Every reader of a run format returns entries, best first, ranks 1..n. `predictions.resolve_pages` turns pages into
passages, `texts` takes texts and latencies.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import polars as pl
import xxhash

from erag_ray.files import NUM_NAMED, Diagnostics, Record, read_records

RUN_COLUMNS = pl.Schema(
    {
        "run_id": pl.String(),
        "query_id": pl.String(),
        "rank": pl.Int32(),
        "doc_id": pl.String(),
        "score": pl.Float64(),
    }
)
ENTRY_COLUMNS = pl.Schema(
    {
        **RUN_COLUMNS,
        "page_id": pl.String(),
        "page_text": pl.String(),
        "title": pl.String(),
        "text": pl.String(),
        "seconds": pl.Float64(),
    }
)
"""RUNS; for a KILT prediction without a document its page, and the text of the passage that it means; for a list with
texts the document's title (null: unknown) and text; the latency of the query's retrieval."""


def as_entries(ranked: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return ranked lists as entries of one run; columns that a format does not have are null."""
    absent = {column: kind for column, kind in ENTRY_COLUMNS.items() if column not in ranked.columns}
    filled = ranked.with_columns(pl.lit(None, kind).alias(column) for column, kind in absent.items())
    return filled.with_columns(run_id=pl.lit(name)).select(ENTRY_COLUMNS.names()).cast(ENTRY_COLUMNS)


def in_trec_order(entries: pl.DataFrame, precision: type[pl.DataType]) -> pl.DataFrame:
    """Sort by query, descending score, then descending doc_id (by bytes), and add ``rank``."""
    return (
        entries.with_columns(_score=pl.col("score").cast(precision))
        .sort("query_id", "_score", "doc_id", descending=[False, True, True])
        .with_columns(rank=pl.int_range(1, pl.len() + 1, dtype=pl.Int32).over("query_id"))
        .drop("_score")
    )


def report_repeats(ranked: pl.DataFrame, name: str, path: str, diagnostics: Diagnostics) -> None:
    """Record an error for each document that is in a list twice."""
    repeated = ranked.filter(~pl.struct("query_id", "doc_id").is_first_distinct())
    texts = [
        f"{path}: run {name!r}, query {query!r}: document {document!r} is in the list more than once"
        for query, document in repeated.select("query_id", "doc_id").head(NUM_NAMED).iter_rows()
    ]
    diagnostics.error(f"repeated documents in the lists of run {name!r}", *texts, count=repeated.height)


def records_by_query(
    path: str, key: str, name: str, diagnostics: Diagnostics
) -> Iterator[tuple[Record, str]]:
    """Yield the records of a JSON Lines run with their query, under ``key``; a query that comes twice is an error."""
    locations: dict[str, str] = {}
    for record in read_records(path, diagnostics):
        query_id = record.identifier(key)
        first = locations.setdefault(query_id, record.location)
        if query_id and first != record.location:
            record.fault("repeated ids", f"query {query_id!r} of run {name!r} repeats the one at {first}")
        yield record, query_id


def finite(score: Any) -> float | None:
    """Return the score as a finite float, else None: the list's order is the rank, scores are informative only."""
    if isinstance(score, bool) or not isinstance(score, int | float):
        return None
    try:
        return float(score) if math.isfinite(score) else None
    except OverflowError:
        return None


def text_id(title: str | None, text: str) -> str:
    """Return the id of a document that has none: a hash of its title and text."""
    content = "\0".join([title or "", text])
    return f"text-{xxhash.xxh3_64_hexdigest(content.encode())}"


def unnamed_id(title: str | None, text: str, counts: Counter[str]) -> str:
    """Return the id of a list's next document that has none; ``counts`` has its earlier ones by `text_id`."""
    doc_id = text_id(title, text)
    counts[doc_id] += 1
    return numbered_id(doc_id, counts[doc_id])


def numbered_id(doc_id: str, count: int) -> str:
    """Return the id of the ``count``-th document of a list with the same title and text, and without an id."""
    return doc_id if count == 1 else f"{doc_id}-{count}"
