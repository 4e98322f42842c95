"""Figures 1 to 3 of the papers."""

from __future__ import annotations

import polars as pl

from erag_ray.analyses.order import STATISTIC_NAMES
from erag_ray.analyses.parts.model import Figure
from erag_ray.analyses.parts.shapes import part_name

ENDS = ("value", "low", "high")


def figure_1(curves: pl.DataFrame, run: str, statistic: str) -> Figure | None:
    """Plot agreement with utility by number of documents: a line per annotator, a panel per dataset.

    The paper's Figure 1 (Salemi & Zamani, SIGIR 2024).

    Args:
        curves: `agreement_by_depth` of all datasets of one run, with a column dataset.
        run: the run.
        statistic: statistic of agreement.
    """
    data = curves.drop_nulls("value").select(
        "dataset", "annotator", "measure", pl.col("depth").alias("documents"), *ENDS, questions="num_queries"
    )
    if data.is_empty():
        return None
    symbol = STATISTIC_NAMES.get(statistic, statistic)
    return Figure(
        name=part_name("figure_1", run),
        title=f"Figure 1: {run}, {symbol} with the end-to-end utility by number of documents",
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
        y_title=f"{symbol} with end-to-end utility",
        caption="The measure of each annotator that agrees best in Table 1, with its interval.",
        is_main=True,
    )


def agreement_of_readers(rows: pl.DataFrame, title: str, statistic: str) -> Figure | None:
    """Plot `agreement_by_reader`: a point and interval per reader, a panel per dataset and run.

    The paper's Figures 2 and 3 (Salemi & Zamani, SIGIR 2024).

    Args:
        rows: `agreement_by_reader`.
        title: title, such as ``Figure 2, 50 documents``.
        statistic: statistic of agreement.
    """
    data = rows.drop_nulls("value").select(
        "reader", *ENDS, "measure", lists=pl.format("{}: {}", "dataset", "run_id"), questions="num_queries"
    )
    if data.is_empty():
        return None
    symbol = STATISTIC_NAMES.get(statistic, statistic)
    return Figure(
        name=part_name(title.split(",")[0].lower().replace(" ", "_")),
        title=f"{title}: {symbol} of eRAG with the end-to-end utility",
        data=data,
        mark="interval",
        x="value",
        y="reader",
        low="low",
        high="high",
        facet="lists",
        x_title=f"{symbol} with end-to-end utility",
        caption="The measure that agrees best over these readers, with its interval.",
        is_main=True,
    )
