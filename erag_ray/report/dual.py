"""The dual-label paper's Table 3: one row for each retriever, the five probabilities."""

from __future__ import annotations

import polars as pl

from erag_ray.evaluate import PROBABILITIES
from erag_ray.report.grid import Grid, number
from erag_ray.report.published import published_table_3

HEADS = ("P(Doc)", "P(Word)", "P(Doc \u2229 Word)", "P(Doc | Word)", "P(Word | Doc)")


def dual_grids(table: pl.DataFrame, confidence: float) -> list[Grid]:
    """One grid for each dataset of DUAL_LABELS, in the layout of Park & Lim's Table 3, with intervals; then theirs."""
    own = [
        _grid(str(name[0]), part, confidence) for name, part in table.group_by("dataset", maintain_order=True)
    ]
    return [*own, published_table_3(HEADS)]


def _grid(dataset: str, part: pl.DataFrame, confidence: float) -> Grid:
    rows = []
    for run in part["run_id"].unique(maintain_order=True).to_list():
        own = part.filter(run_id=run)
        cells = {row["probability"]: _cell(row) for row in own.iter_rows(named=True)}
        rows.append((run, *(cells[name] for name in PROBABILITIES)))
    count = int(part.filter(probability="doc")["num_queries"][0])
    return Grid(
        title=f"{dataset}: the best passage of {count:,} questions, by document and by word",
        columns=("model", *HEADS),
        rows=tuple(rows),
        caption=f"With {confidence:.0%} Wilson intervals. A conditional probability is over the questions where its "
        "condition holds; a dash where it never does. A question without a list has neither.",
    )


def _cell(row: dict[str, float | None]) -> str:
    value = number(row["value"], 4)
    return value if row["value"] is None else f"{value} [{number(row['low'])}, {number(row['high'])}]"
