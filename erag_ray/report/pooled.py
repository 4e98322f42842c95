"""How much the comparison of runs depends on who is in the pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from erag_ray.evaluate import POOL
from erag_ray.report.grid import NOTHING, Grid, number
from erag_ray.report.order import by_measure
from erag_ray.report.trust import reasons


def pooling_grid(pooling: pl.DataFrame, dataset: str, runs: Sequence[str]) -> Grid:
    """For each annotator and measure: what becomes of the other runs when this one leaves the pool."""
    own = pooling.filter(pl.col("dataset") == dataset)
    rows = []
    for annotator, name, part in by_measure(own.with_columns(ideal=pl.lit(POOL))):
        cells = {row["run_id"]: _cell(row) for row in part.iter_rows(named=True)}
        rows.append((annotator, name, *(cells.get(run, NOTHING) for run in runs)))
    return Grid(
        title=f"{dataset}: when one run leaves the pool",
        columns=("annotator", "measure", *(f"without {run}" for run in runs)),
        rows=tuple(rows),
        caption="tau of the order of the other runs with and without this one in the pool; in brackets the largest "
        "change of a mean among them; then the share of this run's own documents that have a label, where not all "
        f"have. {reasons(own)}",
        num_names=2,
        on_console=False,
    )


def _cell(row: Mapping[str, float | None]) -> str:
    judged = row["judged"]
    share = "" if judged is None or judged == 1 else f", {judged:.0%} judged"
    return f"{number(row['tau'])} ({number(row['shift'])}){share}"
