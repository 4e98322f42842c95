"""Table of pool bias: how measures with a pooled ideal change when a run leaves the pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from erag_ray.evaluate import POOL
from erag_ray.report.formats import number
from erag_ray.report.model import Table, Value
from erag_ray.report.tables.correlations import reasons
from erag_ray.report.tables.sorting import by_measure
from erag_ray.report.values import across, columns, names, part_name, plain


def pool_bias_table(pool_bias: pl.DataFrame, dataset: str, runs: Sequence[str]) -> Table:
    """Return, per annotator and measure, how the other runs change when a run leaves the pool."""
    selected = pool_bias.filter(pl.col("dataset") == dataset)
    rows = []
    for annotator, name, part in by_measure(selected.with_columns(ideal=pl.lit(POOL))):
        cells = {row["run_id"]: _cell(row) for row in part.iter_rows(named=True)}
        rows.append((*plain(annotator, name), *across(cells, runs)))
    return Table(
        name=part_name("pool_bias", dataset),
        title=f"{dataset}: when one run leaves the pool",
        columns=(*names("annotator", "measure"), *columns(f"without {run}" for run in runs)),
        rows=tuple(rows),
        caption="tau of the order of the other runs with and without this one in the pool; in brackets the largest "
        "change of a mean among them; then the share of this run's own documents that have a label, where not all "
        f"have. {reasons(selected)}",
        dataset=dataset,
    )


def _cell(row: Mapping[str, Any]) -> Value:
    judged = row["judged"]
    share = "" if judged is None or judged == 1 else f", {judged:.0%} judged"
    return Value(row["tau"], note=f"({number(row['shift'])}){share}", reason=row["reason"] or "")
