"""What was asked of models, what was cached, and what the rest took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from erag_ray.report.grid import NOTHING, Grid, number


def work_grid(stage: Mapping[str, object]) -> Grid:
    """What was asked, what was cached, what was new, by kind of question and of list.

    Args:
        stage: the manifest of a reading stage (`steps.reading`).
    """
    counts = stage["counts"]
    assert isinstance(counts, list)
    columns = ("model", "kind", "lists", "asked", "distinct", "cached", "new")
    rows = tuple(
        tuple(f"{row[name]:,}" if isinstance(row[name], int) else str(row[name]) for name in columns)
        for row in counts
    )
    return Grid(
        title=f"Requests of the stage {stage['stage']}",
        columns=("model", "kind", "lists", "asked", "distinct (union)", "cached", "new"),
        rows=rows,
        caption="pairs: one document alone (eRAG). lists: several documents (end to end). outputs: of the reader, to "
        "be judged. Equal questions with equal "
        f"texts are asked once. {stage['summary']}",
        num_names=3,
    )


def cost_grid(costs: pl.DataFrame) -> Grid:
    """COSTS of the stages of this job."""
    rows = tuple(
        (
            row["stage"],
            row["model"],
            f"{row['num_requests']:,}",
            f"{row['num_reader_calls']:,}",
            f"{row['num_prompt_tokens']:,}",
            _cached(row),
            f"{row['num_output_tokens']:,}",
            NOTHING if row["price"] is None else f"{row['price']:.4f}",
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
        "cached",
        "tokens out",
        "price",
        "seconds",
        "reader seconds",
        "peak GiB a reader",
    )
    caption = "What the last run of each stage did itself; responses found in the store cost nothing again."
    return Grid(title="Costs", columns=("stage", "model", *heads), rows=rows, caption=caption, num_names=2)


def _cached(row: Mapping[str, Any]) -> str:
    """The share of the prompt tokens that a server had in its cache."""
    count = row["num_cached_prompt_tokens"]
    return f"{count / row['num_prompt_tokens']:.0%}" if count else NOTHING
