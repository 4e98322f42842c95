"""KILT predictions as entries of a run, and their resolution to passages.

A prediction's provenance lists pages, but readers take passages: `resolve_pages` maps the one to the other.
"""

from collections.abc import Iterator
from typing import Any

import polars as pl

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.documents import Document, ListIds, finite
from erag_ray.data.files.ids import DOCUMENT_IDS, QUESTION_IDS, checked_id
from erag_ray.data.files.jsonl import Record
from erag_ray.data.files.squad import page_key
from erag_ray.data.runs.entries import RUN_COLUMNS, RunFile, records_by_query

PREDICTION_COLUMNS = ("query_id", "rank", "doc_id", "score", "page_id", "page_text")
_Entry = tuple[str | None, float | None, str | None, str | None]


def read_predictions(file: RunFile) -> pl.DataFrame:
    """Read the provenance lists of ``{"id", "output": [{"provenance": [...]}]}`` as entries; their order is the rank.

    An entry's ``doc_id`` (or another of `DOCUMENT_IDS`) is the document; without one, ``wikipedia_id`` and ``text``
    (the column ``page_text``) identify it.
    """
    rows: list[tuple[Any, ...]] = []
    for record, query_id in records_by_query(file, QUESTION_IDS):
        entries = list(_entries(record, query_id, file.name))
        if not record.faulty:
            rows.extend((query_id, rank, *entry) for rank, entry in enumerate(entries, 1))
    return file.entries(rows, PREDICTION_COLUMNS)


def _entries(record: Record, query_id: str, name: str) -> Iterator[_Entry]:
    if "output" not in record.values:
        values = {key: value for key, value in record.values.items() if isinstance(value, list)}
        named = [key for key, value in values.items() if any(isinstance(one, dict) for one in value)]
        rows = "Rows, ids and scores of single documents are read from Parquet or TREC"
        advice = f"Lists with texts are under documents, not {named[0]}" if named else rows
        text = f"query {query_id!r} of run {name!r} has no output. {advice}"
        record.fault("predictions without output", text)
    lists = [record.objects("provenance", output) for output in record.objects("output")]
    filled = [sources for sources in lists if sources]
    if len(filled) > 1:
        text = f"query {query_id!r} of run {name!r} has {len(filled)} provenance lists, not one"
        record.fault("several lists", text)
    ids = ListIds()
    for source in filled[0] if filled else ():
        try:
            entry = _entry(source)
            ids.check_rank(finite(source.get("rank")))
            if entry[0] is not None:
                ids.next(Document(entry[0]))
            yield entry
        except ValueError as error:
            record.fault("wrong documents", f"run {name!r}, query {query_id!r}: {error}")


def _entry(source: dict[str, Any]) -> _Entry:
    doc_id, _ = DOCUMENT_IDS.id_of(source)
    page_id = checked_id(source.get("wikipedia_id"), "wikipedia_id") if doc_id is None else None
    if doc_id is None and page_id is None:
        raise ValueError("an entry has neither doc_id, passage_id nor wikipedia_id")
    page = page_key(page_id) if page_id is not None else None
    page_text = source["text"] if page is not None and isinstance(source.get("text"), str) else None
    return doc_id, finite(source.get("score")), page, page_text


def resolve_pages(entries: pl.DataFrame, corpus: pl.DataFrame, diagnostics: Diagnostics) -> pl.DataFrame:
    """Return RUNS: entries identified only by page get a passage of CORPUS; other entries are unchanged.

    The passage is the page's passage with the entry's text, else the page's first. A passage that repeats in a list
    keeps its first rank, and ranks are renumbered 1..n. A page without passages in ``corpus`` is an error. Lists that
    found nothing (rank 0) are left out.
    """
    entries = entries.filter(pl.col("rank") > 0)
    if not entries["doc_id"].null_count():
        return entries.select(RUN_COLUMNS.names())
    passages = corpus.drop_nulls("page_id").with_columns(pl.col("text").str.strip_chars())
    texts = passages.unique(["page_id", "text"], keep="first", maintain_order=True)
    texts = texts.select("page_id", page_text="text", same_text="doc_id")
    firsts = passages.unique("page_id", keep="first", maintain_order=True)
    joined = (
        entries.with_columns(pl.col("page_text").str.strip_chars())
        .join(texts, on=["page_id", "page_text"], how="left")
        .join(firsts.select("page_id", first_passage="doc_id"), on="page_id", how="left")
        .with_columns(doc_id=pl.coalesce("doc_id", "same_text", "first_passage"))
    )
    unknown = joined.filter(pl.col("doc_id").is_null())
    text = "run {run_id!r}, query {query_id!r}: page {page_id!r} has no passage in the passages"
    diagnostics.error_rows("pages of runs without passages", unknown, text)
    list_key = ("run_id", "query_id")
    resolved = joined.drop_nulls("doc_id").sort(*list_key, "rank")
    first = pl.struct(*list_key, "doc_id").is_first_distinct()
    has_other_text = pl.col("page_id").is_not_null() & pl.col("page_text").is_not_null()
    for kind, rows in (
        ("repeated pages in a list, left out (query: page)", ~first),
        (
            "texts that equal no passage of their page, whose first passage is used (query: page)",
            has_other_text & pl.col("same_text").is_null(),
        ),
    ):
        name = pl.format("{}: {}", "query_id", pl.coalesce("page_id", "doc_id"))
        diagnostics.warn_each(kind, resolved.filter(rows).select(name).to_series())
    rank = pl.int_range(1, pl.len() + 1, dtype=pl.Int32).over(list_key)
    return resolved.filter(first).with_columns(rank=rank).select(RUN_COLUMNS.names())
