"""Loading of run files: TREC, Parquet, KILT predictions, and JSON Lines of lists with their texts.

`load_run` returns *entries* (`entries.ENTRY_COLUMNS`): RUNS, pages of KILT predictions, texts and latencies.
`predictions.resolve_pages` turns entries into RUNS once the passages are loaded. Ties are broken by
`entries.in_trec_order` and nowhere else. A new format is one function and one line in `RUN_FORMATS`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import polars as pl

from erag_ray.data.files.diagnostics import NUM_NAMED, Diagnostics
from erag_ray.data.files.jsonl import FIELD, Path, read_lines
from erag_ray.data.files.records import read_records
from erag_ray.data.runs.entries import ENTRY_COLUMNS, as_entries, in_trec_order, of_run, report_repeats
from erag_ray.data.runs.lists import read_lists
from erag_ray.data.runs.orders import BY_RANK_COLUMN, report_rising
from erag_ray.data.runs.parquet import read_parquet
from erag_ray.data.runs.predictions import read_predictions
from erag_ray.support.registry import find

# trec_eval keeps scores in single precision up to version 9, in double precision from version 10
TIES: dict[str, type[pl.DataType]] = {"trec9": pl.Float32, "trec10": pl.Float64}


def load_run(
    name: str, path: Path, diagnostics: Diagnostics, *, format: str = "auto", ties: str = "trec9"
) -> pl.DataFrame:
    """Load the complete ranked lists of one retriever: a row per query and document, best first, ranks 1..n.

    Columns are `ENTRY_COLUMNS`: those of RUNS, pages of KILT predictions, texts and latencies. With errors in the file
    the lists may be incomplete.

    Args:
        name: the ``run_id``; it chooses among several runs in the file, and is otherwise independent of the file.
        path: the file, plain or gzip.
        diagnostics: receives all errors and warnings.
        format: a key of `RUN_FORMATS`, or "auto" to detect it by the file's name, and for JSON by its first record.
        ties: when scores tie: "trec9" (equal in single precision: trec_eval up to version 9 and pytrec_eval) or
            "trec10" (equal in double precision). Ties are ordered by descending id, as in trec_eval.

    Raises:
        ValueError: ``format`` or ``ties`` is unknown. Bad input does not raise: it goes to ``diagnostics``.
    """
    file, num_before = os.fspath(path), diagnostics.num_errors
    read = find("run format", format_of(file) if format == "auto" else format, RUN_FORMATS)
    precision = find("tie rule", ties, TIES)
    entries = read(name, file, diagnostics, precision)
    report_rising(entries, name, file, diagnostics)
    if not entries.height and diagnostics.num_errors == num_before:
        diagnostics.error(f"empty run {name}", f"{file}: run {name!r} has no lists")
    return entries.select(ENTRY_COLUMNS.names()).cast(ENTRY_COLUMNS)


def read_trec(name: str, path: str, diagnostics: Diagnostics, precision: type[pl.DataType]) -> pl.DataFrame:
    """Read a TREC run: ``query Q0 document rank score tag``. As in trec_eval, only the scores define the order.

    The tag may contain blanks: it is everything after the score. Of a file with several tags the lines with the tag
    ``name`` are read.
    """
    rows: list[tuple[int, str, str, str, str, str]] = []
    for number, line in read_lines(path, diagnostics):
        fields = FIELD.findall(line)
        if len(fields) >= 6:
            rows.append((number, fields[0], *fields[2:5], " ".join(fields[5:])))
            if len(fields) > 6:
                kind = (
                    f"run {name!r}: lines with more than 6 columns; the sixth and later ones count as the tag"
                )
                diagnostics.warning(kind, f"{path}:{number}")
        else:
            text = (
                f"{path}:{number}: {len(fields)} columns where 6 are expected (query Q0 doc rank score tag)"
            )
            diagnostics.error(f"lines without 6 columns in {path}", text)
    table = pl.DataFrame(
        rows, schema={"line": pl.Int64, **dict.fromkeys(TREC_TEXTS, pl.String)}, orient="row"
    ).with_columns(
        score=pl.col("score_text").cast(pl.Float64, strict=False),
        file_rank=pl.col("rank_text").cast(pl.Float64, strict=False),
    )
    table = of_run(table.lazy(), pl.col("tag"), name, path, diagnostics).collect()
    good = pl.col("score").is_finite().fill_null(False)
    _report_bad_scores(table.filter(~good), path, diagnostics)
    ranked = in_trec_order(table.filter(good), precision)
    claimed = ranked.with_columns(rank="file_rank")
    if not report_rising(claimed, name, path, diagnostics, BY_RANK_COLUMN):
        _warn_of_ranks(ranked, name, diagnostics)
    report_repeats(ranked, name, path, diagnostics)
    return as_entries(ranked, name)


TREC_TEXTS = ("query_id", "doc_id", "rank_text", "score_text", "tag")


def _report_bad_scores(bad: pl.DataFrame, path: str, diagnostics: Diagnostics) -> None:
    texts = [
        f"{path}:{line}: score {text!r} is not a finite number"
        for line, text in bad.select("line", "score_text").head(NUM_NAMED).iter_rows()
    ]
    diagnostics.error(f"scores that are no numbers in {path}", *texts, count=bad.height)


def _warn_of_ranks(ranked: pl.DataFrame, name: str, diagnostics: Diagnostics) -> None:
    """Warn of lists whose ranks contradict the scores; equal ranks do not."""
    step = pl.col("file_rank").diff().over("query_id")
    differing = ranked.filter(step < 0)["query_id"].unique(maintain_order=True)
    if len(differing):
        kind = f"run {name!r}: queries whose rank column differs from the order by score, which is used"
        diagnostics.warning(kind, *differing.head(NUM_NAMED), count=len(differing))


def read_kilt(name: str, path: str, diagnostics: Diagnostics, precision: type[pl.DataType]) -> pl.DataFrame:
    """Read KILT predictions; the order of a provenance list is the rank, so there are no ties."""
    return read_predictions(name, path, diagnostics)


def read_texts(name: str, path: str, diagnostics: Diagnostics, precision: type[pl.DataType]) -> pl.DataFrame:
    """Read lists with their texts; the order of a list is the rank, so there are no ties."""
    return read_lists(name, path, diagnostics)


def format_of(path: str) -> str:
    """Return the format by the file's extension, a key of `RUN_FORMATS`; of JSON by the first record; else trec."""
    extension = re.sub(r"\.gz$", "", path.lower()).rpartition(".")[2]
    if extension in ("json", "jsonl"):
        first = next(iter(read_records(path, Diagnostics())), None)
        return "lists" if first is not None and "documents" in first.values else "kilt"
    return extension if extension in RUN_FORMATS else "trec"


RUN_FORMATS: dict[str, Callable[[str, str, Diagnostics, type[pl.DataType]], pl.DataFrame]] = {
    "trec": read_trec,
    "parquet": read_parquet,
    "kilt": read_kilt,
    "lists": read_texts,
}
