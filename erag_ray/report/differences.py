"""Which runs differ, and which annotator agrees better with utility: paired differences with their certainty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from erag_ray.agreement.differences import ALPHA, POWER
from erag_ray.evaluate import END_TO_END
from erag_ray.report.grid import NOTHING, Grid, number, p_number, with_interval
from erag_ray.report.order import by_measure
from erag_ray.report.trust import STATISTIC_NAMES, reasons

PAIR = ["run_a", "run_b"]


def comparison_grid(comparisons: pl.DataFrame, dataset: str, *, on_console: bool) -> Grid:
    """Every two runs by utility at every depth, and by the first measure of each annotator at the full depth."""
    own = comparisons.filter(pl.col("dataset") == dataset)
    rows = [
        (f"{row['run_a']} - {row['run_b']}", name, *_figures(row))
        for name, part in _quantities(own)
        for row in part.sort(PAIR).iter_rows(named=True)
    ]
    return Grid(
        title=f"{dataset}: which runs differ",
        columns=("runs", "by", "difference", "p", "p (Holm)", "effect size", "detectable"),
        rows=tuple(rows),
        caption="Paired over queries: mean difference with its bootstrap interval; p by random sign flips, and with "
        "Holm's correction over all pairs of runs by this quantity; effect size: the difference in standard deviations;"
        f" detectable: the least true difference that one test would find in {POWER:.0%} of cases (alpha {ALPHA:.0%},"
        f" two-sided). {reasons(own)}Other measures and cut-offs are in the table comparisons.",
        num_names=2,
        on_console=on_console,
    )


def _quantities(own: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    used = own.filter(pl.col("annotator") == END_TO_END).sort("reader", "depth")
    for (_, depth), part in used.group_by("reader", "depth", maintain_order=True):
        yield f"utility@{depth}", part
    labels = own.filter(
        pl.col("annotator") != END_TO_END,
        pl.col("depth") == pl.col("depth").max(),
        pl.col("cutoff") == pl.col("depth"),
    )
    seen = set()
    for annotator, name, part in by_measure(labels):
        if annotator not in seen:
            seen.add(annotator)
            yield f"{annotator} {name}", part


def _figures(row: Mapping[str, float | None]) -> tuple[str, ...]:
    is_constant = row["difference"] is not None and row["effect_size"] is None
    size = "no variation" if is_constant else number(row["effect_size"], 2)
    difference = with_interval(row["difference"], row["low"], row["high"])
    return (
        difference,
        p_number(row["p_value"]),
        p_number(row["p_adjusted"]),
        size,
        number(row["detectable"]),
    )


def contrast_grid(
    contrasts: pl.DataFrame,
    dataset: str,
    depth: int,
    statistic: str,
    runs: Sequence[str],
    *,
    on_console: bool,
) -> Grid:
    """By how much eRAG agrees better with utility than each other annotator, measure by measure, runs across."""
    own = contrasts.filter(
        pl.col("dataset") == dataset,
        pl.col("depth") == depth,
        pl.col("statistic") == statistic,
        pl.col("annotator_a") == "erag",
    ).rename({"annotator_b": "annotator"})
    rows = []
    for annotator, name, part in by_measure(own):
        cells = {
            row["run_id"]: with_interval(row["difference"], row["low"], row["high"])
            for row in part.iter_rows(named=True)
        }
        rows.append((f"erag - {annotator}", name, *(cells.get(run, NOTHING) for run in runs)))
    symbol = STATISTIC_NAMES.get(statistic, statistic)
    return Grid(
        title=f"{dataset}: how much better eRAG agrees with utility, {symbol}, {depth} documents",
        columns=("annotators", "measure", *runs),
        rows=tuple(rows),
        caption=f"Difference of two {symbol} over the queries that both label, with its paired bootstrap interval: "
        "above 0 eRAG agrees better. - where a column is constant there. Other depths are in the table contrasts.",
        num_names=2,
        on_console=on_console,
    )
