"""Parquet runs: ``query_id, doc_id`` and ``rank`` or ``score``; with ``text`` a list brings its documents along."""

import polars as pl

from erag_ray.data.files.documents import TEXT_KEYS, numbered_id, text_id, unread_id
from erag_ray.data.files.ids import DOCUMENT_IDS, ROW_QUERY_IDS, RUN_IDS, lookalikes
from erag_ray.data.files.parquet import NO_TEXT, ParquetFile, is_filled, scan_parquet
from erag_ray.data.runs import entries
from erag_ray.data.runs.orders import BY_SCORE, report_rising


def read_parquet(file: entries.RunFile) -> pl.DataFrame:
    """Read a Parquet run: ``query_id, doc_id`` and ``rank`` (1..n in each list) or, without it, ``score``.

    A list that found nothing may have one row of rank 0, without a document, for its ``seconds``. Optional columns:
    ``run_id`` (several runs in one file), ``text`` and ``title`` (then ``doc_id`` may be null or missing: see
    `text_id`), and ``seconds``, the latency of the query's retrieval, the same in all rows of a list.
    """
    scanned = scan_parquet(file.path, file.diagnostics)
    table = None if scanned is None else _rows(file, scanned.of_documents())
    if table is None:
        return pl.DataFrame(schema=entries.ENTRY_COLUMNS)
    is_empty = _found_nothing(table)
    found_nothing, table = table.filter(is_empty), _without_constant_rank(table.filter(~is_empty))
    good = _with_ids(_checked(file, table))
    if "rank" not in table.columns:
        report_rising(file, good.with_columns(rank="row"), BY_SCORE)
    ranked = (
        _renumbered(file, good) if "rank" in good.columns else entries.in_trec_order(good, file.precision)
    )
    entries.report_repeats(file, ranked)
    lists = _with_seconds(file, ranked)
    return pl.concat([entries.as_entries(lists, file.name), entries.as_entries(found_nothing, file.name)])


def _rows(file: entries.RunFile, scanned: ParquetFile) -> pl.DataFrame | None:
    """Return the rows of the run, with ``row``; None, and errors, if the file lacks columns or cannot be read."""
    columns = _run_columns(scanned)
    frame = scanned.frame
    if RUN_IDS.among(scanned.names):
        column = scanned.ids(RUN_IDS)
        run_ids = scanned.collect(frame.select(column.unique()))
        if run_ids is None:
            return None
        frame = frame.filter(entries.is_of_run(file, column, run_ids.to_series()))
    return scanned.collect(frame.select("row", **columns))


def _run_columns(scanned: ParquetFile) -> dict[str, pl.Expr]:
    names = scanned.names
    columns = {"query_id": scanned.ids(ROW_QUERY_IDS)}
    text = next((name for name in TEXT_KEYS if name in names), None)
    if text is None or DOCUMENT_IDS.among(names):
        columns["doc_id"] = scanned.ids(DOCUMENT_IDS)
    else:
        columns["doc_id"] = NO_TEXT
        unread = [f"{scanned.path}: {unread_id(f'the column {name!r}')}" for name in lookalikes(names)]
        scanned.diagnostics.error(f"unread ids in {scanned.path}", *unread)
    if "rank" not in names and "score" not in names:
        scanned.report_missing("'rank' or 'score'")
    if text is not None:
        columns["text"] = scanned.texts(text)
    columns["title"] = scanned.texts("title") if "title" in names else NO_TEXT
    if "rank" in names:
        columns["rank"] = scanned.numbers("rank", are_whole=True)
    for name in ("score", "seconds"):
        columns[name] = scanned.numbers(name) if name in names else pl.lit(None, pl.Float64())
    return columns


def _checked(file: entries.RunFile, table: pl.DataFrame) -> pl.DataFrame:
    """Return the good rows; record an error for each row without an id or a text, or with a wrong number."""
    has_rank = "rank" in table.columns
    document = "text" if "text" in table.columns else "doc_id"
    is_good = {
        "query_id is missing": is_filled("query_id"),
        f"{document} is missing": is_filled(document),
        "score is not a finite number": pl.col("score").is_finite().fill_null(has_rank),
        **({"rank is missing": pl.col("rank").is_not_null()} if has_rank else {}),
        "seconds is not a finite number of at least 0": _is_duration().fill_null(True),
    }
    for fault, good in is_good.items():
        text = f"{{path}}: row {{row}}: {fault}"
        rows = table.filter(~good).select("row")
        file.diagnostics.error_rows(f"{fault} in {file.path}", rows, text, path=file.path)
    return table.filter(*is_good.values())


def _is_duration() -> pl.Expr:
    return pl.col("seconds").is_finite() & (pl.col("seconds") >= 0)


def _found_nothing(table: pl.DataFrame) -> pl.Series:
    """Return which rows say that a list has no documents: of rank 0, with ``seconds`` and without id and text."""
    if "rank" not in table.columns:
        return pl.repeat(False, table.height, eager=True)
    texts = [name for name in ("doc_id", "text") if name in table.columns]
    has_document = pl.any_horizontal(is_filled(name) for name in texts)
    return table.select(((pl.col("rank") == 0) & ~has_document & _is_duration()).fill_null(False)).to_series()


def _with_ids(table: pl.DataFrame) -> pl.DataFrame:
    """Give each document without an id the hash of its title and text."""
    if table.select(is_filled("doc_id").all()).item():
        return table
    hashes = [text_id(title, text) for title, text in table.select("title", "text").iter_rows()]
    hashed = table.with_columns(hashed=pl.when(~is_filled("doc_id")).then(pl.Series(hashes, dtype=pl.String)))
    order = "rank" if "rank" in table.columns else "row"
    counts = hashed.select(pl.col("hashed").cum_count().over("query_id", "hashed", order_by=order))["hashed"]
    pairs = zip(hashed["hashed"], counts, strict=True)
    numbered = [doc_id and numbered_id(doc_id, count) for doc_id, count in pairs]
    return table.with_columns(doc_id=pl.coalesce(pl.Series(numbered, dtype=pl.String), "doc_id"))


def _without_constant_rank(table: pl.DataFrame) -> pl.DataFrame:
    """Drop a rank that is the same in all rows of longer lists: it is not an order, and the scores are."""
    if "rank" not in table.columns or not table["score"].count():
        return table
    is_constant = (pl.col("rank").n_unique() == 1) & (pl.len() > 1)
    lists = table.group_by("query_id").agg(is_constant.alias("constant"), num=pl.len())
    lists = lists.filter(pl.col("num") > 1)
    return table.drop("rank") if lists.height and lists["constant"].all() else table


def _renumbered(file: entries.RunFile, table: pl.DataFrame) -> pl.DataFrame:
    """Number the lists 1, 2, ...; record an error for each list with other ranks, unless all begin with 0."""
    ranked = table.sort("query_id", "rank")
    expected = pl.int_range(pl.len()).over("query_id") + (0 if ranked["rank"].min() == 0 else 1)
    wrong = ranked.filter(pl.col("rank") != expected).unique("query_id", keep="first", maintain_order=True)
    kind = f"lists with wrong ranks in run {file.name!r}"
    file.error_rows(kind, wrong, "ranks must be 1, 2, ... without gaps or repeats, got {rank}")
    return ranked.with_columns(rank=pl.int_range(1, pl.len() + 1).over("query_id"))


def _with_seconds(file: entries.RunFile, ranked: pl.DataFrame) -> pl.DataFrame:
    """Spread the latency of a list over its rows; record an error for each list with several."""
    values = ranked.drop_nulls("seconds").group_by("query_id", maintain_order=True)
    lists = values.agg(pl.col("seconds").unique(maintain_order=True))
    several = lists.filter(pl.col("seconds").list.len() > 1)
    kind = f"lists with several latencies in run {file.name!r}"
    text = "seconds must be the same in all rows of a list, got {seconds[0]}, {seconds[1]}"
    file.error_rows(kind, several, text)
    return ranked.with_columns(pl.col("seconds").drop_nulls().first().over("query_id"))
