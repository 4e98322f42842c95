"""MEANS, CORRELATIONS and what the reading took -> tables on a console and one Markdown file. Pure but for printing.

A new table is one function that returns a `Grid` and one line in `pages`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from erag_ray.report.costs import cost_grid, work_grid
from erag_ray.report.dual import dual_grids
from erag_ray.report.grid import Grid, number, with_interval
from erag_ray.report.paper import table_1
from erag_ray.report.render import markdown, open_console, show
from erag_ray.report.retrievers import best_first, which_retriever
from erag_ray.report.sanity import sanity_grids
from erag_ray.report.speed import speed_grid
from erag_ray.report.trust import across_runs_grid, correlation_grid

__all__ = [
    "Grid",
    "dual_grids",
    "markdown",
    "number",
    "open_console",
    "pages",
    "sanity_grids",
    "show",
    "speed_grid",
    "with_interval",
]


def pages(
    means: pl.DataFrame,
    correlations: pl.DataFrame,
    costs: pl.DataFrame,
    stages: Sequence[Mapping[str, object]],
    confidence: float,
) -> list[Grid]:
    """Every table of the report, in reading order.

    With several datasets the console shows the paper's Table 1 over all of them, with one that dataset's own grids.
    """
    grids = []
    datasets = means["dataset"].unique().sort()
    for dataset in datasets:
        runs = best_first(means.filter(pl.col("dataset") == dataset))
        depths = correlations.filter(pl.col("dataset") == dataset)["depth"].unique().sort(descending=True)
        grids.append(which_retriever(means, dataset, confidence))
        grids += [
            correlation_grid(
                correlations,
                dataset,
                depth,
                statistic,
                runs,
                on_console=depth == depths[0] and len(datasets) == 1,
            )
            for depth in depths
            for statistic in correlations["statistic"].unique(maintain_order=True)
        ]
        grids += [across_runs_grid(correlations, dataset, depths[0])] if len(depths) and len(runs) > 1 else []
    grids += _tables_1(correlations, several=len(datasets) > 1)
    grids += [work_grid(stage) for stage in stages]
    return [*grids, cost_grid(costs)] if costs.height else grids


def _tables_1(correlations: pl.DataFrame, *, several: bool) -> Iterator[Grid]:
    """For every depth, deepest first, and every run."""
    over_queries = correlations.filter(pl.col("over") == "queries")
    deepest = over_queries["depth"].max()
    lists = over_queries.select("depth", "run_id").unique().sort("depth", "run_id", descending=[True, False])
    for depth, run in lists.iter_rows():
        yield from table_1(correlations, run, depth, on_console=several and depth == deepest)
