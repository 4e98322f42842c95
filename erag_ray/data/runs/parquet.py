"""Parquet runs: ``query_id, doc_id`` and ``rank`` or ``score``; with ``text`` a list brings its documents along."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from erag_ray.data.files.diagnostics import NUM_NAMED, Diagnostics
from erag_ray.data.files.documents import TEXT_KEYS, numbered_id, text_id, unread_id
from erag_ray.data.files.ids import DOCUMENT_IDS, ROW_QUERY_IDS, RUN_IDS, lookalikes
from erag_ray.data.files.parquet import (
    READ_ERRORS,
    column_names,
    id_column,
    number_column,
    report_unreadable,
    scan_parquet,
    text_column,
)
from erag_ray.data.runs.entries import ENTRY_COLUMNS, as_entries, in_trec_order, of_run, report_repeats
from erag_ray.data.runs.orders import BY_ROW, report_rising


def read_parquet(
    name: str, path: str, diagnostics: Diagnostics, precision: type[pl.DataType]
) -> pl.DataFrame:
    """Read a Parquet run: ``query_id, doc_id`` and ``rank`` (1..n in each list) or, without it, ``score``.

    A list that found nothing may have one row of rank 0, without a document, for its ``seconds``. Optional columns:
    ``run_id`` (several runs in one file), ``text`` and ``title`` (then ``doc_id`` may be null or
    missing: see `entries.text_id`), and ``seconds``, the latency of the query's retrieval, the same in all rows of
    a list.
    """
    empty = pl.DataFrame(schema=ENTRY_COLUMNS)
    frame = scan_parquet(path, (), diagnostics)
    columns = None if frame is None else _run_columns(frame, path, diagnostics)
    if frame is None or columns is None:
        return empty
    try:
        chosen = _chosen_run(frame, name, path, diagnostics)
        table = chosen.select("row", **columns).collect()
    except READ_ERRORS as error:
        report_unreadable(path, error, diagnostics)
        return empty
    is_empty = _found_nothing(table)
    found_nothing, table = table.filter(is_empty), _without_constant_rank(table.filter(~is_empty))
    good = _with_ids(_checked(table, path, diagnostics))
    if "rank" not in columns:
        report_rising(good.with_columns(rank="row"), name, path, diagnostics, BY_ROW)
    ranked = _ranked(good, name, path, diagnostics, precision)
    report_repeats(ranked, name, path, diagnostics)
    lists = _with_seconds(ranked, name, path, diagnostics)
    return pl.concat([as_entries(lists, name), as_entries(found_nothing, name)])


def _run_columns(frame: pl.LazyFrame, path: str, diagnostics: Diagnostics) -> dict[str, pl.Expr] | None:
    num_before, names = diagnostics.num_errors, column_names(frame)
    columns = {"query_id": id_column(frame, ROW_QUERY_IDS, path, diagnostics)}
    text = next((name for name in TEXT_KEYS if name in names), None)
    if text is None or DOCUMENT_IDS.among(names):
        columns["doc_id"] = id_column(frame, DOCUMENT_IDS, path, diagnostics)
    else:
        columns["doc_id"] = pl.lit(None, dtype=pl.String)
        unread = [f"{path}: {unread_id(f'the column {name!r}')}" for name in lookalikes(names)]
        diagnostics.error(f"unread ids in {path}", *unread)
    if "rank" not in names and "score" not in names:
        fault = f"{path}: no column 'rank' or 'score'; it has {', '.join(names)}"
        diagnostics.error(f"missing columns in {path}", fault)
    for column, source in (("text", text), ("title", "title")):
        if source in names:
            columns[column] = text_column(frame, str(source), path, diagnostics)
    if "rank" in names:
        columns["rank"] = number_column(frame, "rank", path, diagnostics, whole=True)
    for column in ("score", "seconds"):
        columns[column] = pl.lit(None, dtype=pl.Float64)
        if column in names:
            columns[column] = number_column(frame, column, path, diagnostics, whole=False)
    good = {name: column for name, column in columns.items() if column is not None}
    return good if diagnostics.num_errors == num_before else None


def _chosen_run(frame: pl.LazyFrame, name: str, path: str, diagnostics: Diagnostics) -> pl.LazyFrame:
    """Select the run called ``name`` from a file with several values of ``run_id`` (or another of `RUN_IDS`)."""
    if not RUN_IDS.among(column_names(frame)):
        return frame
    column = id_column(frame, RUN_IDS, path, diagnostics)
    return frame if column is None else of_run(frame, column, name, path, diagnostics)


def _checked(table: pl.DataFrame, path: str, diagnostics: Diagnostics) -> pl.DataFrame:
    """Return the good rows; record an error for each row without an id or a text, or with a wrong number."""
    names = table.columns
    is_good = {
        "query_id is missing": _is_filled("query_id"),
        **({} if "text" in names else {"doc_id is missing": _is_filled("doc_id")}),
        **({"text is missing": _is_filled("text")} if "text" in names else {}),
        "score is not a finite number": pl.col("score").is_finite().fill_null("rank" in names),
        **({"rank is missing": pl.col("rank").is_not_null()} if "rank" in names else {}),
        "seconds is not a finite number of at least 0": _is_duration().fill_null(True),
    }
    for fault, good in is_good.items():
        rows = table.filter(~good)["row"]
        texts = [f"{path}: row {row}: {fault}" for row in rows.head(NUM_NAMED)]
        diagnostics.error(f"{fault} in {path}", *texts, count=len(rows))
    return table.filter(*is_good.values())


def _is_filled(column: str) -> pl.Expr:
    return pl.col(column).fill_null("").str.strip_chars() != ""


def _is_duration() -> pl.Expr:
    return pl.col("seconds").is_finite() & (pl.col("seconds") >= 0)


def _found_nothing(table: pl.DataFrame) -> pl.Series:
    """Return which rows say that a list has no documents: of rank 0, with ``seconds`` and without id and text."""
    if "rank" not in table.columns:
        return pl.repeat(False, table.height, eager=True)
    texts = [name for name in ("doc_id", "text") if name in table.columns]
    has_document = pl.any_horizontal(_is_filled(name) for name in texts)
    return table.select(((pl.col("rank") == 0) & ~has_document & _is_duration()).fill_null(False)).to_series()


def _with_ids(table: pl.DataFrame) -> pl.DataFrame:
    """Give each document without an id the hash of its title and text."""
    if "text" not in table.columns or table.select(_is_filled("doc_id").all()).item():
        return table
    titles: Iterable[str | None] = table["title"] if "title" in table.columns else [None] * table.height
    hashes = [text_id(title, text) for title, text in zip(titles, table["text"], strict=True)]
    hashed = table.with_columns(
        hashed=pl.when(~_is_filled("doc_id")).then(pl.Series(hashes, dtype=pl.String))
    )
    order = "rank" if "rank" in table.columns else "row"
    counts = hashed.select(pl.col("hashed").cum_count().over("query_id", "hashed", order_by=order))["hashed"]
    numbered = [
        doc_id and numbered_id(doc_id, count) for doc_id, count in zip(hashed["hashed"], counts, strict=True)
    ]
    return table.with_columns(doc_id=pl.coalesce(pl.Series(numbered, dtype=pl.String), "doc_id"))


def _without_constant_rank(table: pl.DataFrame) -> pl.DataFrame:
    """Drop a rank that is the same in all rows of longer lists: it is not an order, and the scores are."""
    if "rank" not in table.columns or not table["score"].count():
        return table
    is_constant = (pl.col("rank").n_unique() == 1) & (pl.len() > 1)
    lists = (
        table.group_by("query_id").agg(is_constant.alias("constant"), num=pl.len()).filter(pl.col("num") > 1)
    )
    return table.drop("rank") if lists.height and lists["constant"].all() else table


def _ranked(
    table: pl.DataFrame, name: str, path: str, diagnostics: Diagnostics, precision: type[pl.DataType]
) -> pl.DataFrame:
    if "rank" in table.columns:
        return _renumbered(table.sort("query_id", "rank"), name, path, diagnostics)
    return in_trec_order(table, precision)


def _renumbered(ranked: pl.DataFrame, name: str, path: str, diagnostics: Diagnostics) -> pl.DataFrame:
    """Number the lists 1, 2, ...; record an error for each list with other ranks, unless all begin with 0."""
    first = ranked["rank"].min()
    expected = pl.int_range(pl.len()).over("query_id") + (0 if first == 0 else 1)
    wrong = ranked.filter(pl.col("rank") != expected).unique("query_id", keep="first", maintain_order=True)
    texts = [
        f"{path}: run {name!r}, query {query!r}: ranks must be 1, 2, ... without gaps or repeats, got {rank}"
        for query, rank in wrong.select("query_id", "rank").head(NUM_NAMED).iter_rows()
    ]
    diagnostics.error(f"lists with wrong ranks in run {name!r}", *texts, count=wrong.height)
    return ranked.with_columns(rank=pl.int_range(1, pl.len() + 1).over("query_id"))


def _with_seconds(ranked: pl.DataFrame, name: str, path: str, diagnostics: Diagnostics) -> pl.DataFrame:
    """Spread the latency of a list over its rows; record an error for each list with several."""
    values = ranked.drop_nulls("seconds").group_by("query_id", maintain_order=True)
    several = values.agg(pl.col("seconds").unique(maintain_order=True)).filter(
        pl.col("seconds").list.len() > 1
    )
    texts = [
        f"{path}: run {name!r}, query {query!r}: seconds must be the same in all rows of a list, got "
        f"{', '.join(map(str, seconds[:2]))}"
        for query, seconds in several.head(NUM_NAMED).iter_rows()
    ]
    diagnostics.error(f"lists with several latencies in run {name!r}", *texts, count=several.height)
    return ranked.with_columns(pl.col("seconds").drop_nulls().first().over("query_id"))
