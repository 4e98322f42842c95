"""MEANS, CORRELATIONS and what the reading took -> tables on a console and one Markdown file. Pure but for printing.

A new table is one function that returns a `Grid` and one line in `pages`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from erag_ray.report.costs import cost_grid, work_grid
from erag_ray.report.grid import Grid, number, with_interval
from erag_ray.report.render import markdown, open_console, show
from erag_ray.report.retrievers import best_first, which_retriever
from erag_ray.report.trust import across_runs_grid, correlation_grid

__all__ = ["Grid", "markdown", "number", "open_console", "pages", "show", "with_interval"]


def pages(
    means: pl.DataFrame,
    correlations: pl.DataFrame,
    costs: pl.DataFrame,
    stages: Sequence[Mapping[str, object]],
    confidence: float,
) -> list[Grid]:
    """Every table of the report, in reading order."""
    grids = []
    for dataset in means["dataset"].unique().sort():
        runs = best_first(means.filter(pl.col("dataset") == dataset))
        depths = correlations.filter(pl.col("dataset") == dataset)["depth"].unique().sort(descending=True)
        grids.append(which_retriever(means, dataset, confidence))
        grids += [
            correlation_grid(correlations, dataset, depth, statistic, runs, deepest=depth == depths[0])
            for depth in depths
            for statistic in correlations["statistic"].unique(maintain_order=True)
        ]
        grids += [across_runs_grid(correlations, dataset, depths[0])] if len(depths) and len(runs) > 1 else []
    grids += [work_grid(stage) for stage in stages]
    return [*grids, cost_grid(costs)] if costs.height else grids
