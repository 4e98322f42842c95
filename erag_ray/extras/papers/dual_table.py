"""Table 3 of the dual-label paper: the five probabilities, one row per retriever."""

from __future__ import annotations

import polars as pl

from erag_ray.analyses.parts.model import Format, Table
from erag_ray.analyses.parts.shapes import across, columns, estimate, names, part_name, plain
from erag_ray.extras.papers.dual_labels import PROBABILITIES
from erag_ray.extras.papers.published import published_table_3

HEADS = ("P(Doc)", "P(Word)", "P(Doc \u2229 Word)", "P(Doc | Word)", "P(Word | Doc)")


def dual_tables(table: pl.DataFrame, confidence: float) -> list[Table]:
    """Return a table per dataset of DUAL_LABELS in the layout of Park & Lim's Table 3, then their table."""
    measured = [
        _of_dataset(str(name[0]), part, confidence)
        for name, part in table.group_by("dataset", maintain_order=True)
    ]
    return [*measured, published_table_3(HEADS)]


def _of_dataset(dataset: str, part: pl.DataFrame, confidence: float) -> Table:
    rows = []
    for run in part["run_id"].unique(maintain_order=True).to_list():
        probabilities = part.filter(run_id=run)
        cells = {row["probability"]: estimate(row) for row in probabilities.iter_rows(named=True)}
        rows.append((*plain(run), *across(cells, PROBABILITIES)))
    count = int(part.filter(probability="doc")["num_queries"][0])
    return Table(
        name=part_name("dual_labels", dataset),
        title=f"{dataset}: the best passage of {count:,} questions, by document and by word",
        columns=(*names("model"), *columns(HEADS, Format.NUMBER_4)),
        rows=tuple(rows),
        caption=f"With {confidence:.0%} Wilson intervals. A conditional probability is over the questions where its "
        "condition holds; a dash where it never does. A question without a list has neither.",
        is_main=True,
        dataset=dataset,
    )
