"""The benchmark as a table: rates, and the ratio to the peer."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from erag_ray.report.grid import NOTHING, Grid

OWN = "erag_ray"


def speed_grid(table: pl.DataFrame) -> Grid:
    """One row for each measurement; ours against every peer that did the same."""
    rates = {
        (row["passages"], row["what"], row["by"]): row["count"] / row["seconds"]
        for row in table.iter_rows(named=True)
    }
    rows = []
    for row in table.iter_rows(named=True):
        own = rates.get((row["passages"], row["what"], OWN))
        rate = rates[row["passages"], row["what"], row["by"]]
        ratio = NOTHING if row["by"] == OWN or own is None else f"{own / rate:.2f}" + _spread(row)
        disk = NOTHING if row["disk_bytes"] is None else f"{row['disk_bytes'] / 1e6:,.0f}"
        memory = f"{row['peak_memory_bytes'] / 1e6:,.0f}"
        rows.append(
            (
                row["what"],
                row["by"],
                f"{row['passages']:,}",
                f"{row['seconds']:.2f}",
                f"{rate:,.0f}",
                ratio,
                disk,
                memory,
            )
        )
    return Grid(
        title="Speed",
        columns=(
            "what",
            "by",
            "size",
            "seconds",
            "a second",
            "ours / theirs",
            "MB on disk",
            "MB in memory",
        ),
        rows=tuple(rows),
        num_names=2,
        caption="size: passages, vectors, or queries with lists. a second: passages built or encoded, questions "
        "searched, documents measured, correlations with their intervals; in brackets the least and the most of all "
        "rounds. MB in memory: the most that the whole process held, with what it was made of.",
    )


def _spread(row: Mapping[str, object]) -> str:
    least, most = row["least_ratio"], row["most_ratio"]
    return "" if least is None else f" ({least:.2f} to {most:.2f})"
