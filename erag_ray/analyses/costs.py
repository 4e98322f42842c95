"""Requests and costs: total, unique, cached and new requests, and what they took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from erag_ray.analyses.contract import Analysis, Results
from erag_ray.analyses.parts.model import Finding, Format, Part, Table
from erag_ray.analyses.parts.shapes import field, listing, name_field, part_name, rows_of
from erag_ray.store.schemas import COSTS


def show_all(results: Results) -> Iterator[Part]:
    """Yield the requests of each stage, and the costs of all."""
    yield from (work_table(stage) for stage in results.stages)
    if results[COSTS].height:
        yield cost_table(results[COSTS])
        yield Finding(topic="cost", text=f"cost: {cost_text(results[COSTS])}")


def work_table(stage: Mapping[str, Any]) -> Table:
    """Return the numbers of requests, by kind of request and of list.

    Args:
        stage: the manifest of an inference stage (`inference.stage`).
    """
    counts = {"asked": "asked", "distinct": "distinct (union)", "cached": "cached", "new": "new"}
    return listing(
        stage["counts"],
        (
            *(name_field(name, name) for name in ("model", "kind", "lists")),
            *(field(head, name, Format.COUNT) for name, head in counts.items()),
        ),
        name=part_name("requests", stage["stage"]),
        title=f"Requests of the stage {stage['stage']}",
        caption="pairs: one document (eRAG). lists: several documents (end to end). outputs: outputs of the reader, "
        f"for the judge. Equal questions with equal texts are one request. {stage['summary']}",
        is_main=True,
    )


def cost_table(costs: pl.DataFrame) -> Table:
    """Return COSTS of the stages of a job."""
    no_price = pl.when(pl.col("price").is_null()).then(pl.lit("no price is given"))
    return listing(
        rows_of(costs.with_columns(reason=no_price)),
        (
            name_field("stage", "stage"),
            name_field("model", "model"),
            field("requests", "num_requests", Format.COUNT),
            field("reader calls", "num_reader_calls", Format.COUNT),
            field("tokens in", "num_prompt_tokens", Format.COUNT),
            field(
                "cached", _cached, Format.SHARE_0, "Share of the prompt tokens that a server had in its cache"
            ),
            field("tokens out", "num_output_tokens", Format.COUNT),
            field("price", "price", Format.NUMBER_4),
            field("seconds", "seconds", Format.TENTHS),
            field("reader seconds", "device_seconds", Format.TENTHS),
            field(
                "peak GiB a reader", lambda row: (row["peak_memory_bytes"] / 2**30) or None, Format.NUMBER_2
            ),
        ),
        name="costs",
        title="Costs",
        caption="Costs of the last run of each stage; cached responses cost nothing again.",
        is_main=True,
    )


def _cached(row: Mapping[str, Any]) -> float | None:
    """Return the share of the prompt tokens that a server had in its cache."""
    count = row["num_cached_prompt_tokens"]
    return count / row["num_prompt_tokens"] if count else None


def cost_text(costs: pl.DataFrame) -> str:
    """Return COSTS in a line: requests, new ones in the last run, and what these took."""
    total = costs.select(pl.col("^num_.*$").sum(), pl.col("^.*seconds$").sum(), pl.col("price").sum()).row(
        0, named=True
    )
    requests, new = total["num_requests"], total["num_reader_calls"]
    parts = [f"{requests:,} requests, {new:,} of them new in the last run"]
    if new:
        parts.append(f"{_tokens(total['num_prompt_tokens'])} prompt tokens")
        parts.append(f"{_duration(total['device_seconds'])} of reader time")
    price = costs["price"].drop_nulls()
    parts += [f"price {price.sum():.4f}"] if len(price) else []
    return ", ".join(parts)


def _tokens(count: int) -> str:
    return f"{count / 1e6:,.1f} million" if count >= 1e6 else f"{count:,}"


def _duration(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


ANALYSIS = Analysis(shows=(COSTS,), show_all=show_all, section="costs")
