"""Tables of paired differences: between runs, and between annotators in their agreement with utility."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from erag_ray.agreement import ALPHA, POWER
from erag_ray.report.model import Column, Format, Table, Value
from erag_ray.report.tables.correlations import STATISTIC_NAMES, reasons
from erag_ray.report.tables.sorting import by_measure
from erag_ray.report.values import across, columns, estimate, names, part_name, plain
from erag_ray.runs import END_TO_END

PAIR = ["run_a", "run_b"]
MAX_RUNS = 20
"""With more runs, only pairs with the best run are shown."""
DIFFERENCE_COLUMNS = (
    Column("difference", Format.NUMBER, "Mean over queries of the difference, with its bootstrap interval"),
    Column("p", Format.P_VALUE, "By random sign flips"),
    Column("p (Holm)", Format.P_VALUE, "With Holm's correction over all pairs of runs by this quantity"),
    Column("effect size", Format.NUMBER_2, "The difference in standard deviations"),
    Column(
        "detectable",
        Format.NUMBER,
        f"The least true difference that one test would find in {POWER:.0%} of cases",
    ),
)
PAIRED = (
    "Paired over queries: mean difference with its bootstrap interval; p by random sign flips, and with "
    "Holm's correction over all pairs of runs by this quantity; effect size: the difference in standard deviations;"
    f" detectable: the least true difference that one test would find in {POWER:.0%} of cases (alpha {ALPHA:.0%},"
    " two-sided). "
)


def comparison_table(
    comparisons: pl.DataFrame, dataset: str, runs: Sequence[str], *, is_main: bool = False
) -> Table:
    """Compare all pairs of runs by utility at every depth, and by the first measure of each annotator at full depth.

    Args:
        comparisons: COMPARISONS.
        dataset: the dataset.
        runs: all runs, best first; with more than `MAX_RUNS`, only pairs with the first are shown.
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
        caption=f"{PAIRED}{reasons(selected)}{left_out}Other measures and cut-offs are in the table comparisons.",
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
    is_constant = row["difference"] is not None and row["effect_size"] is None
    reason = row["reason"] or ""
    rest = (row["p_value"], row["p_adjusted"], "no variation" if is_constant else row["effect_size"])
    return (
        estimate(row, "difference"),
        *(Value(value, reason=reason) for value in (*rest, row["detectable"])),
    )


def contrast_table(
    contrasts: pl.DataFrame, dataset: str, depth: int, statistic: str, runs: Sequence[str]
) -> Table:
    """Return how much better eRAG agrees with utility than each other annotator, by measure and run."""
    selected = contrasts.filter(
        pl.col("dataset") == dataset,
        pl.col("depth") == depth,
        pl.col("statistic") == statistic,
        pl.col("annotator_a") == "erag",
    ).rename({"annotator_b": "annotator"})
    rows = []
    for annotator, name, part in by_measure(selected):
        cells = {row["run_id"]: _contrast(row) for row in part.iter_rows(named=True)}
        rows.append((*plain(f"erag - {annotator}", name), *across(cells, runs)))
    symbol = STATISTIC_NAMES.get(statistic, statistic)
    return Table(
        name=part_name("contrasts", dataset, depth, statistic),
        title=f"{dataset}: how much better eRAG agrees with utility, {symbol}, {depth} documents",
        columns=(*names("annotators", "measure"), *columns(runs)),
        rows=tuple(rows),
        caption=f"Difference of two {symbol} over the queries that both label, with its paired bootstrap interval: "
        "above 0 eRAG agrees better. - where a column is constant there. Other depths are in the table contrasts.",
        dataset=dataset,
    )


def _contrast(row: Mapping[str, Any]) -> Value:
    if row["difference"] is None:
        return Value(reason="a column is constant")
    return estimate(row, "difference")
