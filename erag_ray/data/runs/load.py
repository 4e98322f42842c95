"""Loading of run files: TREC, Parquet, KILT predictions, JSON Lines of lists with their texts, and scores by id.

`load_run` returns *entries* (`entries.ENTRY_COLUMNS`): RUNS, pages of KILT predictions, texts and latencies.
`predictions.resolve_pages` turns entries into RUNS once the passages are loaded. Ties are broken by
`entries.in_trec_order` and nowhere else. A new format is one function and one line in `RUN_FORMATS`.
"""

import os
import re
from collections.abc import Callable
from typing import Any

import polars as pl

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.documents import finite
from erag_ray.data.files.ids import QUERY_IDS
from erag_ray.data.files.jsonl import FIELD, Path, read_json, read_lines
from erag_ray.data.files.parquet import separator_of
from erag_ray.data.files.records import read_records, whole_json
from erag_ray.data.runs import entries
from erag_ray.data.runs.orders import BY_SCORE, report_rising
from erag_ray.data.runs.parquet import read_parquet
from erag_ray.data.runs.predictions import read_predictions

# trec_eval keeps scores in single precision up to version 9, in double precision from version 10
TIES: dict[str, type[pl.DataType]] = {"trec9": pl.Float32, "trec10": pl.Float64}
TREC_COLUMNS = {"line": pl.Int64, **dict.fromkeys(("query_id", "doc_id", "rank", "score", "tag"), pl.String)}
LIST_COLUMNS = ("query_id", "seconds", "rank", "doc_id", "title", "text", "score")


def load_run(name: str, path: Path, diagnostics: Diagnostics, *, ties: str = "trec9") -> pl.DataFrame:
    """Load the complete ranked lists of one retriever: a row per query and document, best first, ranks 1..n.

    Columns are `ENTRY_COLUMNS`: those of RUNS, pages of KILT predictions, texts and latencies. With errors in the file
    the lists may be incomplete. ``name`` becomes the ``run_id``, and chooses among several runs in the file. Scores tie
    if equal in single precision ("trec9": trec_eval up to version 9 and pytrec_eval) or in double ("trec10"); ties are
    ordered by descending id, as in trec_eval.
    """
    file, num_before = os.fspath(path), diagnostics.num_errors
    run = entries.RunFile(name=name, path=file, diagnostics=diagnostics, precision=TIES[ties])
    lists = RUN_FORMATS[format_of(file)](run)
    report_rising(run, lists)
    if lists.filter(pl.col("rank") > 0).is_empty() and diagnostics.num_errors == num_before:
        diagnostics.error(f"empty run {name}", f"{file}: run {name!r} has no list with a document")
    return lists


def read_trec(file: entries.RunFile) -> pl.DataFrame:
    """Read a TREC run: ``query Q0 document rank score tag``. As in trec_eval, only the scores define the order.

    The tag may contain blanks: it is everything after the score. Of a file with several tags the lines with the tag
    ``file.name`` are read. Three columns are query, document, and its rank (MS MARCO) or score (Tevatron).
    """
    rows: list[tuple[int, str, str, str, str, str]] = []
    run, diagnostics = f"run {file.name!r}", file.diagnostics
    for number, line in read_lines(file.path, diagnostics):
        fields = FIELD.findall(line)
        is_short = not rows[0][-1] if rows else len(fields) == 3
        if (len(fields) != 3) if is_short else (len(fields) < 6):
            form = "3 are expected, as before" if is_short else "6 are expected (query Q0 doc rank score tag)"
            text = f"{file.path}:{number}: {len(fields)} columns where {form}"
            diagnostics.error(f"lines without 6 columns in {file.path}", text)
            continue
        fields = [fields[0], "", fields[1], "", fields[2], ""] if is_short else fields
        rows.append((number, fields[0], *fields[2:5], " ".join(fields[5:])))
        if len(fields) > 6:
            kind = f"{run}: lines with more than 6 columns; the sixth and later ones count as the tag"
            diagnostics.warning(kind, f"{file.path}:{number}")
    lines = pl.DataFrame(rows, schema=TREC_COLUMNS, orient="row")
    table = lines.filter(entries.is_of_run(file, pl.col("tag"), lines["tag"])).with_columns(
        pl.col("rank").cast(pl.Float64, strict=False),
        score=pl.col("score").cast(pl.Float64, strict=False),
        score_text="score",
    )
    good = pl.col("score").is_finite().fill_null(False)
    text = "{path}:{line}: score {score_text!r} is not a finite number"
    kind = f"scores that are no numbers in {file.path}"
    diagnostics.error_rows(kind, table.filter(~good), text, path=file.path)
    table, position = table.filter(good), pl.int_range(1, pl.len() + 1).over("query_id")
    short, rises = table.filter(tag=""), pl.col("score").diff().over("query_id") > 0
    if short.height and table.select((pl.col("score") == position).all()).item():
        table = table.with_columns(score=-pl.col("score"))
    elif short.height:
        text = "line {line}: {score:g} is neither a rank (1, 2, ...) nor a score that falls from line to line"
        file.error_rows(f"numbers of no order in {file.path}", short.filter(rises), text)
    ranked = entries.in_trec_order(table.with_columns(claimed_rank="rank"), file.precision)
    # a rank that is the same in the whole list is no order: the lines are
    is_order = pl.col("claimed_rank").n_unique().over("query_id") > 1
    order = pl.when(is_order).then("claimed_rank").otherwise(pl.col("line").rank().over("query_id"))
    if not report_rising(file, ranked.with_columns(rank=order), BY_SCORE):
        # equal ranks do not contradict the scores
        contradicts = pl.col("claimed_rank").diff().over("query_id") < 0
        differing = ranked.filter(contradicts)["query_id"].unique(maintain_order=True)
        kind = f"{run}: queries whose rank column differs from the order by score, which is used"
        diagnostics.warn_each(kind, differing)
    entries.report_repeats(file, ranked)
    return entries.as_entries(ranked, file.name)


def read_lists(file: entries.RunFile) -> pl.DataFrame:
    """Read lists, one record a question; the order of a list is the rank, so there are no ties.

    ``{"query_id": ..., "documents": [{"doc_id", "text"?, "title"?, "score"?}], "seconds"?}``, or ids in ``documents``.
    A document without an id gets one (see `files.documents.text_id`).
    """
    rows: list[tuple[Any, ...]] = []
    for record, query_id in entries.records_by_query(file, QUERY_IDS):
        if not any(key in record.values for key in entries.LIST_KEYS):
            text = f"query {query_id!r} of run {file.name!r} has no documents"
            record.fault("lists without documents", text)
        seconds, documents = record.number("seconds", float), list(entries.documents_in(record))
        if record.faulty:
            continue
        rows.extend((query_id, seconds, *entry) for entry in documents)
        if not documents and seconds is not None:
            rows.append((query_id, seconds, 0, None, None, None, None))
    return file.entries(rows, LIST_COLUMNS)


def read_scores(file: entries.RunFile) -> pl.DataFrame:
    """Read ``{query_id: {doc_id: score}}`` in one object, as ranx and BEIR write it; the scores define the order."""
    lists = read_json(file.path, file.diagnostics).items()
    rows = [(query, doc_id, finite(score)) for query, scores in lists for doc_id, score in scores.items()]
    schema = {name: entries.ENTRY_COLUMNS[name] for name in ("query_id", "doc_id", "score")}
    table = pl.DataFrame(rows, schema=schema, orient="row").with_row_index("rank")
    text = "the score of {doc_id!r} is not a finite number"
    file.error_rows(
        f"scores that are no numbers in {file.path}", table.filter(pl.col("score").is_null()), text
    )
    report_rising(file, table, BY_SCORE)
    return entries.as_entries(
        entries.in_trec_order(table.drop_nulls().drop("rank"), file.precision), file.name
    )


def format_of(path: str) -> str:
    """Return the format by the file's extension, a key of `RUN_FORMATS`; of JSON by the first record; else trec."""
    extension = re.sub(r"\.gz$", "", path.lower()).rpartition(".")[2]
    if extension in ("json", "jsonl"):
        first = next(iter(read_records(path, Diagnostics())), None)
        values = whole_json(path) if first is None else first.values
        are_scores = isinstance(values, dict) and {*map(type, values.values())} == {dict}
        are_lists = any(key in (values or ()) for key in entries.LIST_KEYS)
        return "scores" if are_scores else "lists" if are_lists else "kilt"
    return "parquet" if separator_of(path) else extension if extension in RUN_FORMATS else "trec"


RUN_FORMATS: dict[str, Callable[[entries.RunFile], pl.DataFrame]] = {
    "trec": read_trec,
    "parquet": read_parquet,
    "kilt": read_predictions,
    "lists": read_lists,
    "scores": read_scores,
}
