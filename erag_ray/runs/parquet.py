"""Parquet runs: ``query_id, doc_id`` and ``rank`` or ``score``; with ``text`` a list brings its documents along."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from erag_ray.files import (
    NUM_NAMED,
    READ_ERRORS,
    Diagnostics,
    has_columns,
    number_column,
    report_unreadable,
    scan_parquet,
    text_column,
)
from erag_ray.runs.entries import (
    ENTRY_COLUMNS,
    as_entries,
    in_trec_order,
    numbered_id,
    report_repeats,
    text_id,
)

OPTIONAL_TEXTS = ("doc_id", "title", "text")
"""Columns of strings that a file may lack; ``doc_id`` only where it has ``text``."""


def read_parquet(
    name: str, path: str, diagnostics: Diagnostics, precision: type[pl.DataType]
) -> pl.DataFrame:
    """Read a Parquet run: ``query_id, doc_id`` and ``rank`` (1..n in each list) or, without it, ``score``.

    Optional columns: ``run_id`` (several runs in one file), ``text`` and ``title`` (then ``doc_id`` may be null or
    missing: see `entries.text_id`), and ``seconds``, the latency of the query's retrieval, the same in all rows of
    a list.
    """
    empty = pl.DataFrame(schema=ENTRY_COLUMNS)
    frame = _scanned(path, diagnostics)
    columns = None if frame is None else _run_columns(frame, path, diagnostics)
    if frame is None or columns is None:
        return empty
    try:
        chosen = _chosen_run(frame, name, path, diagnostics)
        table = chosen.select("row", **columns).collect()
    except READ_ERRORS as error:
        report_unreadable(path, error, diagnostics)
        return empty
    ranked = _ranked(_with_ids(_checked(table, path, diagnostics)), name, path, diagnostics, precision)
    report_repeats(ranked, name, path, diagnostics)
    return as_entries(_with_seconds(ranked, name, path, diagnostics), name)


def _scanned(path: str, diagnostics: Diagnostics) -> pl.LazyFrame | None:
    frame = scan_parquet(path, (), diagnostics)
    if frame is None:
        return None
    needed = ("query_id",) if "text" in frame.collect_schema().names() else ("query_id", "doc_id")
    return frame if has_columns(frame, needed, path, diagnostics) else None


def _run_columns(frame: pl.LazyFrame, path: str, diagnostics: Diagnostics) -> dict[str, pl.Expr] | None:
    names = frame.collect_schema().names()
    if "rank" not in names and "score" not in names:
        text = f"{path}: no column 'rank' or 'score'; it has {', '.join(names[1:])}"
        diagnostics.error(f"missing columns in {path}", text)
        return None
    texts = ["query_id", *(name for name in OPTIONAL_TEXTS if name in names)]
    columns = {name: text_column(frame, name, path, diagnostics) for name in texts}
    if "rank" in names:
        columns["rank"] = number_column(frame, "rank", path, diagnostics, whole=True)
    for column in ("score", "seconds"):
        columns[column] = pl.lit(None, dtype=pl.Float64)
        if column in names:
            columns[column] = number_column(frame, column, path, diagnostics, whole=False)
    if "text" in columns and "doc_id" not in columns:
        columns["doc_id"] = pl.lit(None, dtype=pl.String)
    good = {name: column for name, column in columns.items() if column is not None}
    return good if len(good) == len(columns) else None


def _chosen_run(frame: pl.LazyFrame, name: str, path: str, diagnostics: Diagnostics) -> pl.LazyFrame:
    """Select the run called ``name`` from a file with several values of ``run_id``."""
    if "run_id" not in frame.collect_schema().names():
        return frame
    column = text_column(frame, "run_id", path, diagnostics)
    if column is None:
        return frame
    run_ids = frame.select(column.unique().sort()).collect()["run_id"].to_list()
    if len(run_ids) > 1 and name not in run_ids:
        text = f"{path}: no run {name!r}; the file has {', '.join(map(str, run_ids))}"
        diagnostics.error(f"no such run in {path}", text)
    return frame.filter(column == name) if len(run_ids) > 1 else frame


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


def _ranked(
    table: pl.DataFrame, name: str, path: str, diagnostics: Diagnostics, precision: type[pl.DataType]
) -> pl.DataFrame:
    if "rank" not in table.columns:
        return in_trec_order(table, precision)
    return _renumbered(table.sort("query_id", "rank"), name, path, diagnostics)


def _renumbered(ranked: pl.DataFrame, name: str, path: str, diagnostics: Diagnostics) -> pl.DataFrame:
    """Number the lists 1, 2, ...; record an error for each list with other ranks."""
    expected = pl.int_range(1, pl.len() + 1).over("query_id")
    wrong = ranked.filter(pl.col("rank") != expected).unique("query_id", keep="first", maintain_order=True)
    texts = [
        f"{path}: run {name!r}, query {query!r}: ranks must be 1, 2, ... without gaps or repeats, got {rank}"
        for query, rank in wrong.select("query_id", "rank").head(NUM_NAMED).iter_rows()
    ]
    diagnostics.error(f"lists with wrong ranks in run {name!r}", *texts, count=wrong.height)
    return ranked.with_columns(rank=expected)


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
