"""The benchmark's CPU times and request rates, as figures."""

import polars as pl

from erag_ray.analyses.parts.model import Figure


def host_figure(table: pl.DataFrame) -> Figure | None:
    """Plot the CPU time of a pair by its parts.

    Args:
        table: of `host_grid`: columns by, count, cpu_seconds; the row ``all`` is their sum.
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
        caption="One actor, with an engine that takes no time; kernel launches are not included.",
    )


def served_figure(table: pl.DataFrame) -> Figure | None:
    """Plot how many requests a second each client sends to a server.

    Args:
        table: of `served_grid`: columns by, count, seconds.
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
        caption="The server answers after 50 ms; each client has 64 requests under way.",
    )
