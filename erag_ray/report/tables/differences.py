"""Tables of paired differences: between runs, and between annotators in their agreement with utility."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from erag_ray.agreement import POWER
from erag_ray.report.formats import counted, number
from erag_ray.report.model import Column, Format, Table, Value
from erag_ray.report.tables.correlations import STATISTIC_NAMES, reasons
from erag_ray.report.tables.sorting import by_measure
from erag_ray.report.values import across, columns, estimate, names, part_name, plain
from erag_ray.runs import END_TO_END

PAIR = ["run_a", "run_b"]
MAX_RUNS = 20
"""With more runs, only pairs with the best run are shown."""
TEST_COLUMNS = (
    Column("difference", Format.NUMBER, "Mean over queries of the difference, with its interval"),
    Column("p", Format.P_VALUE, "By sign flips; the interval excludes 0 exactly if it is significant"),
    Column("interval (Holm)", Format.TEXT, "The interval that excludes 0 exactly if p (Holm) is significant"),
    Column("p (Holm)", Format.P_VALUE, "Corrected over all pairs of runs by this quantity"),
)
DIFFERENCE_COLUMNS = (
    *TEST_COLUMNS,
    Column("effect size", Format.NUMBER_2, "The difference in standard deviations"),
    Column(
        "detectable",
        Format.NUMBER,
        f"The least true difference that one test would find in {POWER:.0%} of cases",
    ),
)


def paired_caption(confidence: float | None) -> str:
    """Return how `DIFFERENCE_COLUMNS` were computed."""
    alpha = "" if confidence is None else f" (alpha {number(1 - confidence, 2)}, two-sided)"
    return (
        "Paired over queries: mean difference with its interval; p by sign flips (scores of 0 and 1: the exact sign "
        "test). Holm: both corrected over all pairs of runs by this quantity, of utility at all depths; equal pairs "
        "count once, and those without any difference not at all. An interval excludes 0 exactly if its p "
        "is significant. "
        "Effect size: the difference in standard "
        f"deviations; detectable: the least true difference that one test would find in {POWER:.0%} of cases{alpha}. "
    )


def comparison_table(
    comparisons: pl.DataFrame,
    dataset: str,
    runs: Sequence[str],
    confidence: float | None,
    *,
    is_main: bool = False,
) -> Table:
    """Compare all pairs of runs by utility at every depth, and by the first measure of each annotator at full depth.

    Args:
        comparisons: COMPARISONS.
        dataset: the dataset.
        runs: all runs, best first; with more than `MAX_RUNS`, only pairs with the first are shown.
        confidence: of the intervals.
        is_main: see `Table`.
    """
    selected = comparisons.filter(pl.col("dataset") == dataset)
    is_cut = len(runs) > MAX_RUNS
    shown = (
        selected.filter((pl.col("run_a") == runs[0]) | (pl.col("run_b") == runs[0])) if is_cut else selected
    )
    left_out = f"Only pairs with {runs[0]}; the others are in the table comparisons. " if is_cut else ""
    rows = [
        (*plain(f"{row['run_a']} - {row['run_b']}", name), *difference_values(row))
        for name, part in _quantities(shown)
        for row in part.sort(PAIR).iter_rows(named=True)
    ]
    return Table(
        name=part_name("comparisons", dataset),
        title=f"{dataset}: which runs differ",
        columns=(*names("runs", "by"), *DIFFERENCE_COLUMNS),
        rows=tuple(rows),
        caption=f"{paired_caption(confidence)}{reasons(selected)}{left_out}Other measures and cut-offs are in the "
        "table comparisons.",
        is_main=is_main,
        dataset=dataset,
    )


def _quantities(selected: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    used = selected.filter(pl.col("annotator") == END_TO_END).sort("reader", "depth")
    for (_, depth), part in used.group_by("reader", "depth", maintain_order=True):
        yield f"utility@{depth}", part
    labels = selected.filter(
        pl.col("annotator") != END_TO_END,
        pl.col("depth") == pl.col("depth").max(),
        pl.col("cutoff") == pl.col("depth"),
    )
    seen = set()
    for annotator, name, part in by_measure(labels):
        if annotator not in seen:
            seen.add(annotator)
            yield f"{annotator} {name}", part


def difference_values(row: Mapping[str, Any]) -> tuple[Value, ...]:
    """Return the values of `DIFFERENCE_COLUMNS` for a row of COMPARISONS."""
    is_constant = row["p_value"] is not None and row["effect_size"] is None
    reason = row["reason"] or ""
    rest = ("no variation" if is_constant else row["effect_size"], row["detectable"])
    return (*test_values(row), *(Value(value, reason=reason) for value in rest))


def test_values(row: Mapping[str, Any]) -> tuple[Value, ...]:
    """Return the values of `TEST_COLUMNS`."""
    reason = row["reason"] or ""
    ends = [row["low_adjusted"], row["high_adjusted"]]
    interval = None if None in ends else f"[{', '.join(map(number, ends))}]"
    rest = (row["p_value"], interval, row["p_adjusted"])
    return (estimate(row, "difference"), *(Value(value, reason=reason) for value in rest))


def contrast_table(
    contrasts: pl.DataFrame,
    correlations: pl.DataFrame,
    dataset: str,
    depth: int,
    statistic: str,
    runs: Sequence[str],
) -> Table:
    """Return how much better eRAG agrees with utility than each other annotator, by measure and run.

    Args:
        contrasts: CONTRASTS.
        correlations: CORRELATIONS, `informative`: agreements that are not shown are not contrasted.
        dataset: the dataset.
        depth: of the lists.
        statistic: a key of `agreement.STATISTICS`.
        runs: in the order of the columns.
    """
    shown = correlations.filter(dataset=dataset, depth=depth, statistic=statistic).drop_nulls("value")
    agreements = set(shown.select("annotator", "run_id").rows())
    selected = contrasts.filter(
        pl.col("dataset") == dataset,
        pl.col("depth") == depth,
        pl.col("statistic") == statistic,
        pl.col("annotator_a") == "erag",
    ).rename({"annotator_b": "annotator"})
    rows = []
    for annotator, name, part in by_measure(selected):
        cells = {row["run_id"]: _contrast(row, agreements) for row in part.iter_rows(named=True)}
        rows.append((*plain(f"erag - {annotator}", name), *across(cells, runs)))
    symbol = STATISTIC_NAMES.get(statistic, statistic)
    return Table(
        name=part_name("contrasts", dataset, depth, statistic),
        title=f"{dataset}: how much better eRAG agrees with utility, {symbol}, {counted(depth, 'document')}",
        columns=(*names("annotators", "measure"), *columns(runs)),
        rows=tuple(rows),
        caption=f"Difference of two {symbol} over the queries that both label, with its paired bootstrap interval: "
        "above 0 eRAG agrees better. - where a column is constant there, or hardly varies. Other "
        "depths are in the table contrasts.",
        dataset=dataset,
    )


def _contrast(row: Mapping[str, Any], agreements: Container[tuple[str, str]]) -> Value:
    if not all((row[name], row["run_id"]) in agreements for name in ("annotator_a", "annotator")):
        return Value(reason="one of the two agreements says nothing")
    if row["difference"] is None:
        return Value(reason="a column is constant")
    return estimate(row, "difference")
