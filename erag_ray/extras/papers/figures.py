"""Figures 1 to 3 of the papers (Salemi & Zamani, SIGIR 2024), each with a table of its values and intervals."""

from __future__ import annotations

import polars as pl

from erag_ray.analyses.order import symbol_of
from erag_ray.analyses.parts.model import Column, Figure, Table
from erag_ray.analyses.parts.shapes import crosstab, names, part_name

ENDS = ("value", "low", "high")
BEST_IN_TABLE_1 = "The measure of each annotator that agrees best in Table 1, with its interval."
BEST_OF_READERS = "The measure that agrees best over these readers, with its interval."


def figure_1(curves: pl.DataFrame, run: str, statistic: str) -> Figure | None:
    """Plot agreement with utility by number of documents: a line per annotator, a panel per dataset.

    ``curves`` are `agreement_by_depth` of all datasets of one run, with a column dataset.
    """
    data = curves.drop_nulls("value").select(
        "dataset", "annotator", "measure", pl.col("depth").alias("documents"), *ENDS, questions="num_queries"
    )
    if data.is_empty():
        return None
    return Figure(
        name=part_name("figure_1", run),
        title=_title_1(run, statistic),
        data=data,
        mark="line",
        x="documents",
        y="value",
        low="low",
        high="high",
        color="annotator",
        color_names=tuple(data["annotator"].unique(maintain_order=True)),
        facet="dataset",
        x_title="documents (k)",
        y_title=f"{symbol_of(statistic)} with end-to-end utility",
        caption=BEST_IN_TABLE_1,
        is_main=True,
    )


def figure_1_table(curves: pl.DataFrame, run: str, statistic: str) -> Table:
    """Return the values of `figure_1`."""
    groups = curves.group_by("dataset", "annotator", "measure", maintain_order=True)
    return crosstab(
        (((str(dataset), f"{annotator}, {measure}"), part) for (dataset, annotator, measure), part in groups),
        names("dataset", "annotator, measure"),
        "depth",
        {depth: Column(f"k = {depth}") for depth in sorted(curves["depth"].unique())},
        name=part_name("figure_1", run, statistic),
        title=_title_1(run, statistic),
        caption=BEST_IN_TABLE_1,
    )


def _title_1(run: str, statistic: str) -> str:
    return f"Figure 1: {run}, {symbol_of(statistic)} with the end-to-end utility by number of documents"


def agreement_of_readers(rows: pl.DataFrame, title: str, statistic: str) -> Figure | None:
    """Plot `agreement_by_reader` (Figures 2 and 3): a point and interval per reader, a panel per dataset and run.

    The title is one such as ``Figure 2, 50 documents``.
    """
    data = rows.drop_nulls("value").select(
        "reader", *ENDS, "measure", lists=pl.format("{}: {}", "dataset", "run_id"), questions="num_queries"
    )
    if data.is_empty():
        return None
    return Figure(
        name=part_name(title.split(",")[0].lower().replace(" ", "_")),
        title=f"{title}: {symbol_of(statistic)} of eRAG with the end-to-end utility",
        data=data,
        mark="interval",
        x="value",
        y="reader",
        low="low",
        high="high",
        facet="lists",
        x_title=f"{symbol_of(statistic)} with end-to-end utility",
        caption=BEST_OF_READERS,
        is_main=True,
    )


def by_reader_table(rows: pl.DataFrame, title: str, statistic: str) -> Table:
    """Return the values of `agreement_of_readers`: datasets and runs down, readers across."""
    return crosstab(
        rows.group_by("dataset", "run_id", "measure", maintain_order=True),
        names("dataset", "run", "measure"),
        "reader",
        {reader: Column(reader) for reader in rows["reader"].unique(maintain_order=True)},
        name=part_name(title),
        title=f"{title}: {symbol_of(statistic)} of eRAG with the end-to-end utility",
        caption=BEST_OF_READERS,
    )
