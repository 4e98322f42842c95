"""The papers' figures and the reproduction's table, from finished jobs: measured values, as tables with intervals."""

from __future__ import annotations

import polars as pl

from erag_ray.evaluate import END_TO_END
from erag_ray.report.curves import whole_lists
from erag_ray.report.grid import NOTHING, Grid, number, with_interval
from erag_ray.report.trust import STATISTIC_NAMES

REPRODUCED = ("P", "Success")


def figure_1_grid(curves: pl.DataFrame, run: str, statistic: str) -> Grid:
    """Agreement by number of documents.

    Args:
        curves: `agreement_by_depth` of all datasets, with a column dataset.
        run: whose lists.
        statistic: of the agreement.
    """
    depths = sorted(curves["depth"].unique())
    rows = [
        (str(dataset), f"{annotator}, {measure}", *_cells(part, "depth", depths))
        for (dataset, annotator, measure), part in curves.group_by(
            "dataset", "annotator", "measure", maintain_order=True
        )
    ]
    symbol = STATISTIC_NAMES.get(statistic, statistic)
    return Grid(
        title=f"Figure 1: {run}, {symbol} with the end-to-end utility by number of documents",
        columns=("dataset", "annotator, measure", *(f"k = {depth}" for depth in depths)),
        rows=tuple(rows),
        caption="The measure of each annotator that agrees best in Table 1, with its interval.",
        num_names=2,
    )


def by_reader_grid(rows: pl.DataFrame, title: str, statistic: str) -> Grid:
    """`agreement_by_reader` as a table: datasets and runs down, readers across."""
    readers = rows["reader"].unique(maintain_order=True).to_list()
    lines = [
        (str(dataset), str(run), str(measure), *_cells(part, "reader", readers))
        for (dataset, run, measure), part in rows.group_by(
            "dataset", "run_id", "measure", maintain_order=True
        )
    ]
    return Grid(
        title=f"{title}: {STATISTIC_NAMES.get(statistic, statistic)} of eRAG with the end-to-end utility",
        columns=("dataset", "run", "measure", *readers),
        rows=tuple(lines),
        caption="The measure that agrees best over these readers, with its interval.",
        num_names=3,
    )


def _cells(part: pl.DataFrame, column: str, keys: list[object]) -> list[str]:
    found = {row[column]: with_interval(row["value"], row["low"], row["high"]) for row in part.to_dicts()}
    return [found.get(key, NOTHING) for key in keys]


def reproduction_grid(correlations: pl.DataFrame, means: pl.DataFrame, depth: int) -> Grid:
    """The reproduction's table for every dataset and run: agreement of P and Success by eRAG, and how low all is.

    Args:
        correlations: CORRELATIONS.
        means: MEANS.
        depth: number of documents; the reproduction has 40.
    """
    own = whole_lists(correlations).filter(
        pl.col("annotator") == "erag",
        pl.col("depth") == depth,
        pl.col("measure").is_in(REPRODUCED),
        pl.col("statistic").is_in(list(STATISTIC_NAMES)),
    )
    at = means.filter(pl.col("depth") == depth, pl.col("cutoff") == depth)
    used = {(row["dataset"], row["run_id"]): row for row in at.filter(annotator=END_TO_END).to_dicts()}
    measured = {
        (row["dataset"], row["run_id"], row["measure"]): row["mean"]
        for row in at.filter(annotator="erag").to_dicts()
    }
    rows = []
    keys = ("dataset", "run_id", "measure")
    for (dataset, run, measure), part in own.sort(keys).group_by(keys, maintain_order=True):
        end = used.get((dataset, run), {})
        rows.append(
            (
                str(dataset),
                str(run),
                f"{measure}@{depth}",
                *_cells(part, "statistic", list(STATISTIC_NAMES)),
                number(measured.get((dataset, run, measure)), 4),
                str(end.get("num_queries", NOTHING)),
                f"{end.get('score', '')} {number(end.get('mean'), 4)}",
            )
        )
    return Grid(
        title=f"The reproduction's table: eRAG, {depth} documents",
        columns=("dataset", "run", "measure", *STATISTIC_NAMES.values(), "mean", "queries", "end to end"),
        rows=tuple(rows),
        caption="With intervals; where nearly no answer is right, no agreement can be told.",
        num_names=3,
    )
