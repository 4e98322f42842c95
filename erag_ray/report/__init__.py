"""MEANS, CORRELATIONS, COMPARISONS and costs -> tables on a console and in one Markdown file. Pure but for printing.

A new table is one function that returns a `Grid` and one line in `pages` or `_of_dataset`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from erag_ray.report.costs import cost_grid, work_grid
from erag_ray.report.curves import agreement_by_depth, agreement_by_reader
from erag_ray.report.differences import comparison_grid, contrast_grid
from erag_ray.report.dual import dual_grids
from erag_ray.report.experiments import by_reader_grid, figure_1_grid, reproduction_grid
from erag_ray.report.grid import Grid, number, with_interval
from erag_ray.report.harm import harm_notes, harm_warnings
from erag_ray.report.outputs import (
    depth_grid,
    judgement_grid,
    judgement_warnings,
    output_grid,
    output_warnings,
)
from erag_ray.report.paper import table_1
from erag_ray.report.pooled import pooling_grid
from erag_ray.report.published import published_reproduction, published_table_1, published_table_2
from erag_ray.report.render import markdown, open_console, show
from erag_ray.report.retrievers import best_first, which_retriever
from erag_ray.report.sanity import sanity_grids
from erag_ray.report.speed import (
    costs_grid,
    device_grid,
    host_grid,
    precision_grid,
    served_grid,
    speed_grid,
    vllm_grid,
)
from erag_ray.report.trust import across_runs_grid, correlation_grid
from erag_ray.schemas import JUDGEMENTS
from erag_ray.store import as_frame

__all__ = [
    "Grid",
    "Results",
    "agreement_by_depth",
    "agreement_by_reader",
    "by_reader_grid",
    "costs_grid",
    "device_grid",
    "dual_grids",
    "figure_1_grid",
    "harm_notes",
    "harm_warnings",
    "host_grid",
    "judgement_warnings",
    "markdown",
    "number",
    "open_console",
    "output_warnings",
    "pages",
    "precision_grid",
    "published_reproduction",
    "published_table_1",
    "published_table_2",
    "reproduction_grid",
    "sanity_grids",
    "served_grid",
    "show",
    "speed_grid",
    "table_1",
    "vllm_grid",
    "with_interval",
]


@dataclass(frozen=True, kw_only=True)
class Results:
    """The tables that a report is made of: rows of the tables of these names."""

    means: pl.DataFrame
    correlations: pl.DataFrame
    comparisons: pl.DataFrame
    contrasts: pl.DataFrame
    pooling: pl.DataFrame
    best_depths: pl.DataFrame
    costs: pl.DataFrame
    outputs: pl.DataFrame
    common_outputs: pl.DataFrame
    judgements: pl.DataFrame = dataclasses.field(default_factory=lambda: as_frame(JUDGEMENTS.empty()))


def pages(results: Results, stages: Sequence[Mapping[str, object]], confidence: float) -> list[Grid]:
    """Every table of the report, in reading order.

    With several datasets, agreement at every depth stands in the paper's Table 1 over all of them, and the console
    shows that; with one, in that dataset's own grids. Grids that would repeat each other are left out.
    """
    datasets = results.means["dataset"].unique().sort()
    grids: list[Grid] = []
    for dataset in datasets:
        grids += _of_dataset(results, dataset, confidence, alone=len(datasets) == 1)
    if len(datasets) > 1:
        grids += _tables_1(results.correlations)
    grids += published_table_1(datasets.to_list())
    grids += [work_grid(stage) for stage in stages]
    return [*grids, cost_grid(results.costs)] if results.costs.height else grids


def _of_dataset(results: Results, dataset: str, confidence: float, *, alone: bool) -> Iterator[Grid]:
    runs = best_first(results.means.filter(pl.col("dataset") == dataset))
    correlations = results.correlations
    depths = correlations.filter(pl.col("dataset") == dataset)["depth"].unique().sort(descending=True)
    statistics = correlations["statistic"].unique(maintain_order=True)
    yield which_retriever(results.means, dataset, confidence)
    if dataset in results.outputs["dataset"]:
        yield output_grid(results.outputs, results.common_outputs, dataset)
    if dataset in results.judgements["dataset"]:
        yield judgement_grid(results.judgements, dataset)
    if (results.best_depths["depth"] != results.best_depths["deepest"]).any():
        yield depth_grid(results.best_depths, dataset)
    if len(runs) > 1:
        yield comparison_grid(results.comparisons, dataset, on_console=alone)
    for depth, statistic in itertools.product(depths if alone else depths[:1], statistics):
        on_console = alone and depth == depths[0]
        yield correlation_grid(correlations, dataset, depth, statistic, runs, on_console=on_console)
    if "erag" in results.contrasts["annotator_a"]:
        for depth, statistic in itertools.product(depths[:1], statistics):
            yield contrast_grid(results.contrasts, dataset, depth, statistic, runs, on_console=False)
    if len(depths) and len(runs) > 1:
        yield across_runs_grid(correlations, dataset, depths[0])
    if len(runs) > 1:
        yield pooling_grid(results.pooling, dataset, runs)


def _tables_1(correlations: pl.DataFrame) -> Iterator[Grid]:
    """For every depth, deepest first, and every run."""
    over_queries = correlations.filter(pl.col("over") == "queries")
    deepest = over_queries["depth"].max()
    lists = over_queries.select("depth", "run_id").unique().sort("depth", "run_id", descending=[True, False])
    for depth, run in lists.iter_rows():
        yield from table_1(correlations, run, depth, on_console=depth == deepest)
