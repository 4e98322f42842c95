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

from erag_ray.files import FIELD, NUM_NAMED, Diagnostics, Path, read_lines, read_records
from erag_ray.registry import find
from erag_ray.runs.entries import ENTRY_COLUMNS, as_entries, in_trec_order, report_repeats
from erag_ray.runs.lists import read_lists
from erag_ray.runs.parquet import read_parquet
from erag_ray.runs.predictions import read_predictions

# trec_eval keeps scores in single precision up to version 9, in double precision from version 10
TIES: dict[str, type[pl.DataType]] = {"trec9": pl.Float32, "trec10": pl.Float64}


def load_run(
    name: str, path: Path, diagnostics: Diagnostics, *, format: str = "auto", ties: str = "trec9"
) -> pl.DataFrame:
    """Load the complete ranked lists of one retriever: a row per query and document, best first, ranks 1..n.

    Columns are `ENTRY_COLUMNS`: those of RUNS, pages of KILT predictions, texts and latencies. With errors in the file
    the lists may be incomplete.

    Args:
        name: the ``run_id``; a tag in the file is ignored.
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
    if not entries.height and diagnostics.num_errors == num_before:
        diagnostics.error(f"empty run {name}", f"{file}: run {name!r} has no lists")
    return entries.select(ENTRY_COLUMNS.names()).cast(ENTRY_COLUMNS)


def read_trec(name: str, path: str, diagnostics: Diagnostics, precision: type[pl.DataType]) -> pl.DataFrame:
    """Read a TREC run: ``query Q0 document rank score tag``. As in trec_eval, only the scores define the order.

    The tag may contain blanks: everything after the score is ignored.
    """
    rows: list[tuple[int, str, str, str, str]] = []
    for number, line in read_lines(path, diagnostics):
        fields = FIELD.findall(line)
        if len(fields) >= 6:
            rows.append((number, fields[0], fields[2], fields[3], fields[4]))
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
    ).with_columns(score=pl.col("score_text").cast(pl.Float64, strict=False))
    good = pl.col("score").is_finite().fill_null(False)
    _report_bad_scores(table.filter(~good), path, diagnostics)
    ranked = in_trec_order(table.filter(good), precision)
    if not _report_rising(ranked, name, path, diagnostics):
        _warn_of_ranks(ranked, name, diagnostics)
    report_repeats(ranked, name, path, diagnostics)
    return as_entries(ranked, name)


RISING_FRACTION = 0.9
"""Fraction of the lists with scores that rise with the rank from which on this is an error, not chance."""
NUM_SHOWN = 3

TREC_TEXTS = ("query_id", "doc_id", "rank_text", "score_text")


def _report_bad_scores(bad: pl.DataFrame, path: str, diagnostics: Diagnostics) -> None:
    texts = [
        f"{path}:{line}: score {text!r} is not a finite number"
        for line, text in bad.select("line", "score_text").head(NUM_NAMED).iter_rows()
    ]
    diagnostics.error(f"scores that are no numbers in {path}", *texts, count=bad.height)


def _report_rising(ranked: pl.DataFrame, name: str, path: str, diagnostics: Diagnostics) -> bool:
    """Report and return whether scores rise with the rank in nearly all lists: they are then ranks or distances."""
    rows, num_lists = _rising(ranked)
    num_rising = rows["query_id"].n_unique()
    are_ranks = rows.select((pl.col("file_rank") == pl.col("score")).all()).item()
    # a single list of two documents is too little evidence, unless its scores are its ranks
    if num_rising < RISING_FRACTION * max(num_lists, 1) or not (are_ranks or rows["rises"].sum() > 1):
        return False
    first = rows.filter(query_id=rows["query_id"][0]).sort("file_rank").head(NUM_SHOWN)
    pairs = ", ".join(
        f"rank {rank} score {score}" for rank, score in first.select(TREC_TEXTS[2:]).iter_rows()
    )
    diagnostics.error(
        f"scores that rise with the rank in run {name!r}",
        f"{path}:{first['line'][0]}: run {name!r}: scores {'are ranks' if are_ranks else 'rise with the rank'} in "
        f"{num_rising:,} of {num_lists:,} lists, such as query {first['query_id'][0]!r}: {pairs} (lines "
        f"{', '.join(map(str, first['line']))}). The highest score is the best, so these lists would be read from "
        "their end. Write scores that fall with the rank, such as minus the rank or minus the distance; if the scores "
        "are right, write 0 for every rank.",
    )
    return True


def _rising(ranked: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return the rows of lists whose scores rise with the rank, and the number of lists with more than one score.

    The rows have ``file_rank``, the rank column as a number, and ``rises``. A rank column without information (all 0,
    not numbers) never counts as rising.
    """
    file_rank = pl.col("rank_text").cast(pl.Float64, strict=False)
    falls = (pl.col("score").diff().over("query_id") < 0).fill_null(False)
    rises = falls & (file_rank.diff().over("query_id") < 0).fill_null(False)
    steps = ranked.with_columns(file_rank=file_rank, falls=falls, rises=rises)
    lists = steps.group_by("query_id", maintain_order=True).agg(pl.col("falls", "rises").sum())
    differing = lists.filter(pl.col("falls") > 0)
    rising = differing.filter(pl.col("falls") == pl.col("rises"))
    return steps.join(rising, on="query_id", how="semi", maintain_order="left"), differing.height


def _warn_of_ranks(ranked: pl.DataFrame, name: str, diagnostics: Diagnostics) -> None:
    step = pl.col("rank_text").cast(pl.Float64, strict=False).diff().over("query_id")
    differing = ranked.filter(step <= 0)["query_id"].unique(maintain_order=True)
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
