"""What was asked of the reader, what was known, and what the reading took."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from erag_ray.report.grid import NOTHING, Grid, number


def work_grid(stage: Mapping[str, object]) -> Grid:
    """What was asked, what was known, what was read; pairs and lists apart.

    Args:
        stage: the manifest of a reading stage (`steps.reading`).
    """
    counts = stage["counts"]
    assert isinstance(counts, list)
    columns = ("reader", "kind", "asked", "distinct", "cached", "new")
    rows = tuple(
        tuple(f"{row[name]:,}" if isinstance(row[name], int) else str(row[name]) for name in columns)
        for row in counts
    )
    return Grid(
        title=f"Readings of the stage {stage['stage']}",
        columns=("reader", "kind", "asked", "distinct (union)", "cached", "new"),
        rows=rows,
        caption="pairs: one document alone (eRAG). lists: several documents (end to end). Equal questions with equal "
        f"texts are read once. {stage['summary']}",
        num_names=2,
    )


def cost_grid(costs: pl.DataFrame) -> Grid:
    """COSTS of the stages of this job."""
    rows = tuple(
        (
            row["stage"],
            f"{row['num_requests']:,}",
            f"{row['num_reader_calls']:,}",
            f"{row['num_prompt_tokens']:,}",
            f"{row['num_output_tokens']:,}",
            number(row["seconds"], 1),
            number(row["device_seconds"], 1),
            number(row["peak_memory_bytes"] / 2**30, 2) if row["peak_memory_bytes"] else NOTHING,
        )
        for row in costs.iter_rows(named=True)
    )
    heads = (
        "requests",
        "reader calls",
        "tokens in",
        "tokens out",
        "seconds",
        "reader seconds",
        "peak GiB a reader",
    )
    caption = "What the last run of each stage did itself; readings found in the store cost nothing again."
    return Grid(title="Costs", columns=("stage", *heads), rows=rows, caption=caption)
