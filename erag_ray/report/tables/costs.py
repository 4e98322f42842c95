"""What was asked of models, what was cached, and what the rest took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from erag_ray.report.model import Column, Format, Table, Value
from erag_ray.report.values import columns, names, part_name, plain

WORK = ("asked", "distinct", "cached", "new")
COST_COLUMNS = (
    *names("stage", "model"),
    *columns(("requests", "reader calls", "tokens in"), Format.COUNT),
    Column("cached", Format.SHARE_0, "Share of the prompt tokens that a server had in its cache"),
    Column("tokens out", Format.COUNT),
    Column("price", Format.NUMBER_4),
    *columns(("seconds", "reader seconds"), Format.TENTHS),
    Column("peak GiB a reader", Format.NUMBER_2),
)


def work_table(stage: Mapping[str, Any]) -> Table:
    """Return what was asked, what was cached, what was new, by kind of question and of list.

    Args:
        stage: the manifest of a reading stage (`inference.stage`).
    """
    names_of = ("model", "kind", "lists")
    return Table(
        name=part_name("requests", stage["stage"]),
        title=f"Requests of the stage {stage['stage']}",
        columns=(*names(*names_of), *columns(("asked", "distinct (union)", "cached", "new"), Format.COUNT)),
        rows=tuple(plain(*(row[name] for name in (*names_of, *WORK))) for row in stage["counts"]),
        caption="pairs: one document alone (eRAG). lists: several documents (end to end). outputs: of the reader, to "
        "be judged. Equal questions with equal "
        f"texts are asked once. {stage['summary']}",
        is_main=True,
    )


def cost_table(costs: pl.DataFrame) -> Table:
    """Return COSTS of the stages of this job."""
    return Table(
        name="costs",
        title="Costs",
        columns=COST_COLUMNS,
        rows=tuple(_cost_row(row) for row in costs.iter_rows(named=True)),
        caption="What the last run of each stage did itself; responses found in the store cost nothing again.",
        is_main=True,
    )


def _cost_row(row: Mapping[str, Any]) -> tuple[Value, ...]:
    memory = row["peak_memory_bytes"] / 2**30 if row["peak_memory_bytes"] else None
    return (
        *plain(row["stage"], row["model"]),
        *plain(row["num_requests"], row["num_reader_calls"], row["num_prompt_tokens"], _cached(row)),
        Value(row["num_output_tokens"]),
        Value(row["price"], reason="" if row["price"] is not None else "no price is given"),
        *plain(row["seconds"], row["device_seconds"], memory),
    )


def _cached(row: Mapping[str, Any]) -> float | None:
    """Return the share of the prompt tokens that a server had in its cache."""
    count = row["num_cached_prompt_tokens"]
    return count / row["num_prompt_tokens"] if count else None
