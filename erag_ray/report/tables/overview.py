"""Main tables over all datasets: utility of each run, the best run against the others, the best agreements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from erag_ray.report.formats import MISSING
from erag_ray.report.model import Column, Format, Table, Value
from erag_ray.report.tables.correlations import STATISTIC_NAMES, agreement
from erag_ray.report.tables.curves import table_depths, whole_lists
from erag_ray.report.tables.differences import DIFFERENCE_COLUMNS, difference_values, paired_caption
from erag_ray.report.tables.retrievers import (
    best_first,
    count_queries,
    percent,
    reference_columns,
    references_of,
    utility_rows,
)
from erag_ray.report.tables.sorting import in_reading_order, measure_name
from erag_ray.report.values import across, columns, names, part_name, plain
from erag_ray.runs import END_TO_END

MEASURE = ["annotator", "measure", "cutoff", "ideal"]
MAX_RUNS = 8
"""Runs that have a column in the main tables."""


def utility_overview(means: pl.DataFrame, confidence: float | None) -> Table:
    """Return the utility of the best runs and of the reference runs, by dataset and depth."""
    runs, references = best_first(means), references_of(means)
    shown = runs[:MAX_RUNS]
    rows = []
    for (dataset,), part in means.sort("dataset").group_by("dataset", maintain_order=True):
        count = count_queries(part)
        rows += [(*plain(str(dataset), count), *row) for row in utility_rows(part, shown, references, count)]
    return Table(
        name="utility",
        title="Which retriever serves the reader best",
        columns=(
            *names("dataset"),
            Column("queries", Format.COUNT),
            *(Column("score", Format.TEXT), Column("mean", Format.TEXT)),
            *columns(shown),
            *reference_columns(references),
        ),
        rows=tuple(rows),
        caption=f"utility@k: mean score of the reader's output with the first k documents, with its "
        f"{percent(confidence)}bootstrap interval. Best run first, by utility at the largest depth. "
        f"{_only_best(runs)}n: over so many queries only.",
        is_main=True,
    )


def _only_best(runs: Sequence[str]) -> str:
    return f"The {MAX_RUNS} best of {len(runs)} runs. " if len(runs) > MAX_RUNS else ""


def comparison_overview(comparisons: pl.DataFrame, means: pl.DataFrame, confidence: float | None) -> Table:
    """Compare the best run of each dataset with the next best ones, by utility at the largest depth."""
    rows = []
    for (dataset,), part in means.sort("dataset").group_by("dataset", maintain_order=True):
        selected = comparisons.filter(dataset=dataset, annotator=END_TO_END)
        deepest = selected.filter(pl.col("depth") == pl.col("depth").max())
        rows += list(_against_best(deepest, str(dataset), best_first(part)[:MAX_RUNS]))
    return Table(
        name="comparisons",
        title="The best run against the others, by utility",
        columns=(*names("dataset", "runs"), Column("by", Format.TEXT), *DIFFERENCE_COLUMNS),
        rows=tuple(rows),
        caption=paired_caption(confidence).strip(),
        is_main=True,
    )


def _against_best(
    comparisons: pl.DataFrame, dataset: str, runs: Sequence[str]
) -> Iterator[tuple[Value, ...]]:
    pairs = {frozenset((row["run_a"], row["run_b"])): row for row in comparisons.iter_rows(named=True)}
    for other in runs[1:]:
        row = pairs.get(frozenset((runs[0], other)))
        if row is not None:
            exchanged = row if row["run_a"] == runs[0] else _exchanged(row)
            name = f"utility@{row['depth']}"
            yield (*plain(dataset, f"{runs[0]} - {other}", name), *difference_values(exchanged))


def _exchanged(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of COMPARISONS with the two runs exchanged."""
    ends = {"low": "high", "high": "low", "low_adjusted": "high_adjusted", "high_adjusted": "low_adjusted"}
    other = {"difference": "difference", "effect_size": "effect_size", **ends}
    negative = {name: None if row[key] is None else 0.0 - row[key] for name, key in other.items()}
    return {**row, **negative}


def agreement_overview(correlations: pl.DataFrame, runs: Sequence[str], statistic: str) -> Table:
    """Return each annotator's measure with the best agreement with utility, by dataset, runs across.

    Measures are over the whole list with the run's own list as ideal, at the depth of `table_depths`.
    """
    shown = runs[:MAX_RUNS]
    selected = whole_lists(correlations).filter(pl.col("run_id").is_in(shown), statistic=statistic)
    rows = []
    for (dataset,), part in selected.sort("dataset").group_by("dataset", maintain_order=True):
        rows += [(*plain(str(dataset)), *row) for row in _agreement_rows(part, shown)]
    symbol = STATISTIC_NAMES.get(statistic, statistic)
    return Table(
        name=part_name("agreement", statistic),
        title=f"How well each label agrees with the end-to-end utility, {symbol} over queries",
        columns=(*names("dataset", "annotator", "measure"), *columns(shown)),
        rows=tuple(rows),
        caption=f"{symbol} [interval] /ceiling, of the measure of each annotator that agrees best over these runs; "
        "since it is chosen by the same queries, its agreement is a little too high.",
        is_main=True,
    )


def _agreement_rows(correlations: pl.DataFrame, runs: Sequence[str]) -> Iterator[tuple[Value, ...]]:
    """Yield each annotator, its best measure and its agreement per run; without any value, the reason."""
    candidates = correlations.join(table_depths(correlations), on=["annotator", "depth"], how="semi")
    means = candidates.group_by(MEASURE, maintain_order=True).agg(pl.col("value").mean()).drop_nulls("value")
    best = means.sort("value", "measure", descending=[True, False]).unique("annotator", keep="first")
    for row in in_reading_order(best).iter_rows(named=True):
        part = candidates.filter(pl.col(key) == row[key] for key in MEASURE)
        cells = {candidate["run_id"]: agreement(candidate) for candidate in part.iter_rows(named=True)}
        name = measure_name(row["measure"], row["cutoff"], row["ideal"])
        yield (*plain(row["annotator"], name), *across(cells, runs))
    without = correlations.filter(pl.col("annotator").is_in(best["annotator"].implode()).not_())
    for (annotator,), part in without.sort("annotator").group_by("annotator", maintain_order=True):
        reason = part["reason"].drop_nulls().mode().sort().to_list()
        yield (*plain(str(annotator), MISSING), *across({}, runs, reason[0] if reason else ""))
