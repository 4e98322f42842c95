"""Entries: RUNS before the passages are loaded, with what a file says of pages, texts and latency.

Every reader of a run format returns entries, best first, ranks 1..n. `predictions.resolve_pages` turns pages into
passages, `texts` takes texts and latencies.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from erag_ray.data.files.diagnostics import NUM_NAMED, Diagnostics
from erag_ray.data.files.documents import ListIds, document_of, with_text
from erag_ray.data.files.ids import RUN_IDS, IdKeys, identifier, shown
from erag_ray.data.files.jsonl import Record
from erag_ray.data.files.records import read_records
from erag_ray.store.schemas import RUNS, STRING, frame_schema

RUN_COLUMNS = RUNS.empty().schema
ENTRY_COLUMNS = pl.Schema(
    {**RUN_COLUMNS, **frame_schema("page_id page_text title text seconds", page_text=STRING)}
)
"""RUNS; for a KILT prediction without a document its page, and the text of the passage that it means; for a list with
texts the document's title (null: unknown) and text; the latency of the query's retrieval. A list that found nothing,
and whose latency is known, is a row of rank 0 without a document."""


LIST_KEYS = ("documents", "doc_ids")
ListedDocument = tuple[int, str, str | None, str | None, float | None]


@dataclass(frozen=True, kw_only=True)
class RunFile:
    """A file of ranked lists to read, plain or gzip.

    ``name``, the ``run_id``, chooses among several runs in it; scores are compared in a ``precision``.
    """

    name: str
    path: str
    diagnostics: Diagnostics
    precision: type[pl.DataType]

    def entries(self, rows: Sequence[tuple[Any, ...]], columns: Sequence[str]) -> pl.DataFrame:
        """Return rows with these columns as entries, sorted by query and rank."""
        schema = {column: ENTRY_COLUMNS[column] for column in columns}
        return as_entries(pl.DataFrame(rows, schema=schema, orient="row").sort("query_id", "rank"), self.name)

    def error_rows(self, kind: str, rows: pl.DataFrame, text: str) -> None:
        """Record an error for each row: ``text`` with its columns in braces, about the list of its query."""
        form = "{path}: run {name!r}, query {query_id!r}: " + text
        self.diagnostics.error_rows(kind, rows, form, path=self.path, name=self.name)


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


def report_repeats(file: RunFile, ranked: pl.DataFrame) -> None:
    """Record an error for each document that is in a list twice."""
    repeated = ranked.filter(~pl.struct("query_id", "doc_id").is_first_distinct())
    kind = f"repeated documents in the lists of run {file.name!r}"
    file.error_rows(kind, repeated, "document {doc_id!r} is in the list more than once")


def is_of_run(file: RunFile, column: pl.Expr, run_ids: pl.Series) -> pl.Expr:
    """Return which rows of a file are of the run, if ``column`` names several (``run_ids``); of one run all rows."""
    names = run_ids.unique().sort().to_list()
    if len(names) < 2:
        return pl.lit(True)
    if file.name not in names:
        shown = ", ".join([*map(str, names[:NUM_NAMED]), *(["..."] if len(names) > NUM_NAMED else [])])
        text = f"{file.path}: no run {file.name!r}; the file has {shown}"
        advice = "Name the run as one of these, or write a file for each"
        file.diagnostics.error(f"no such run in {file.path}", f"{text}. {advice}")
    return column == file.name


def records_by_query(file: RunFile, keys: IdKeys) -> Iterator[tuple[Record, str]]:
    """Yield the records of a JSON Lines run with their query, under ``keys``; a query that comes twice is an error."""
    locations: dict[str, str] = {}
    firsts: dict[str | None, str] = {}
    for record in read_records(file.path, file.diagnostics):
        query_id = record.identifier(keys)
        first = locations.setdefault(query_id, record.location)
        if query_id and first != record.location:
            text = f"query {query_id!r} of run {file.name!r} repeats the one at {first}"
            record.fault("repeated ids", text)
        run_id = identifier(next((record.values[key] for key in RUN_IDS.among(record.values)), None))
        if run_id not in firsts and firsts:
            other, location = next(iter(firsts.items()))
            text = f"a list of run {run_id!r}, and that at {location} is of run {other!r}. Write a file for each run"
            record.fault("several runs", text)
        firsts.setdefault(run_id, record.location)
        yield record, query_id


def documents_in(record: Record) -> Iterator[ListedDocument]:
    """Yield rank, id, title, text and score of the documents of a record's list: objects or ids, best first."""
    name = next((key for key in LIST_KEYS if record.values.get(key)), LIST_KEYS[0])
    entries = record.values.get(name) or []
    if not isinstance(entries, list):
        record.fault(f"wrong {name}", f"{name} is {shown(entries)}; it must be a list")
        return
    ids = ListIds()
    for rank, values in enumerate(entries, 1):
        try:
            document = document_of(values, bare="doc_id")
            document = document if document.text is None else with_text(document)
            yield rank, ids.next(document), document.title, document.text, document.score
        except ValueError as error:
            record.fault("wrong documents", f"document {rank}: {error}")


def pairs(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the distinct (query_id, doc_id) of all runs, sorted: the pairs to label."""
    return runs.select("query_id", "doc_id").unique().sort("query_id", "doc_id")
