"""What runs find, as a table for each dataset."""

from __future__ import annotations

import polars as pl

from erag_ray.report.grid import Grid, number

NAMES = {
    "gold_passage": "gold passage",
    "gold_page": "gold page",
    "contains_answer": "contains answer",
    "kilt_recall": "recall of pages (KILT)",
    "kilt_r_precision": "R-precision of pages (KILT)",
}


def sanity_grids(table: pl.DataFrame) -> list[Grid]:
    """One grid for each dataset of SANITY: measures by runs."""
    return [_grid(str(name[0]), part) for name, part in table.group_by("dataset", maintain_order=True)]


def _grid(dataset: str, part: pl.DataFrame) -> Grid:
    runs = part["run_id"].unique(maintain_order=True).to_list()
    rows = []
    for measure, label in NAMES.items():
        for (cutoff, count), own in (
            part.filter(measure=measure).sort("cutoff").group_by("cutoff", "num_queries", maintain_order=True)
        ):
            values = dict(own.select("run_id", "value").rows())
            name = f"{label}@{cutoff}" if cutoff else label
            rows.append((name, f"{count:,}", *(number(values.get(run)) for run in runs)))
    return Grid(
        title=f"{dataset}: what the runs find",
        columns=("share of questions", "questions", *runs),
        rows=tuple(rows),
        caption="gold passage, gold page, contains answer: among the first k passages. Of pages: a list's pages in "
        "order, without repeats. A question without a list counts 0.",
    )
