"""Tables of requests (total, unique, cached, new) and of costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from erag_ray.report.model import Column, Format, Table, Value
from erag_ray.report.values import columns, names, part_name, plain

REQUEST_COUNTS = ("asked", "distinct", "cached", "new")
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
    """Return the numbers of requests, by kind of request and of list.

    Args:
        stage: the manifest of an inference stage (`inference.stage`).
    """
    names_of = ("model", "kind", "lists")
    return Table(
        name=part_name("requests", stage["stage"]),
        title=f"Requests of the stage {stage['stage']}",
        columns=(*names(*names_of), *columns(("asked", "distinct (union)", "cached", "new"), Format.COUNT)),
        rows=tuple(plain(*(row[name] for name in (*names_of, *REQUEST_COUNTS))) for row in stage["counts"]),
        caption="pairs: one document (eRAG). lists: several documents (end to end). outputs: outputs of the reader, "
        f"for the judge. Equal questions with equal texts are one request. {stage['summary']}",
        is_main=True,
    )


def cost_table(costs: pl.DataFrame) -> Table:
    """Return COSTS of the stages of a job."""
    return Table(
        name="costs",
        title="Costs",
        columns=COST_COLUMNS,
        rows=tuple(_cost_row(row) for row in costs.iter_rows(named=True)),
        caption="Costs of the last run of each stage; cached responses cost nothing again.",
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
