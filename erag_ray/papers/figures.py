"""Figures 1 to 3 of the papers, and figures of the benchmarks: CPU times and request rates."""

from __future__ import annotations

import polars as pl

from erag_ray.report import Figure, part_name
from erag_ray.report.tables import STATISTIC_NAMES

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
        "reader",
        *ENDS,
        "measure",
        lists=pl.format("{}: {}", "dataset", "run_id"),
        questions="num_queries",
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
        y_title="reader",
        caption="The measure that agrees best over these readers, with its interval.",
        is_main=True,
    )


def host_figure(table: pl.DataFrame) -> Figure | None:
    """Plot the CPU time per pair by step.

    Args:
        table: result of `host_grid`: columns by, count, cpu_seconds; the row ``all`` is their sum.
    """
    parts = table.filter(pl.col("by") != "all").sort("cpu_seconds", descending=True)
    if parts.is_empty():
        return None
    return Figure(
        name="host",
        title="CPU time of the host",
        data=parts.select(part="by", microseconds=pl.col("cpu_seconds") / pl.col("count") * 1e6),
        mark="bar",
        x="microseconds",
        y="part",
        x_title="CPU time of a pair (microseconds)",
        y_title="part",
        caption="One actor, with an engine that takes no time; kernel launches are not included.",
    )


def served_figure(table: pl.DataFrame) -> Figure | None:
    """Plot the requests per second of each client of a server.

    Args:
        table: result of `served_grid`: columns by, count, seconds.
    """
    if table.is_empty():
        return None
    return Figure(
        name="served",
        title="Requests to a server",
        data=table.select(client="by", rate=pl.col("count") / pl.col("seconds"), requests="count"),
        mark="bar",
        x="rate",
        y="client",
        x_title="requests a second",
        y_title="client",
        caption="The server answers after 50 ms; each client has 64 requests under way.",
    )
