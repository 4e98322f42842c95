"""The benchmark as a table: rates, and the ratio to the peer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from erag_ray.report.grid import NOTHING, Grid, number

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


def costs_grid(table: pl.DataFrame) -> Grid:
    """One row for each way of reading the same questions, against the first of its kind."""
    firsts: dict[str, float] = {}
    rows = []
    for row in table.iter_rows(named=True):
        first = firsts.setdefault(row["what"], row["seconds"])
        rows.append((row["what"], row["by"], *_cost_cells(row, row["seconds"] / first)))
    return Grid(
        title="Table 2 here: what reading costs",
        columns=(
            "what",
            "way",
            "requests",
            "seconds",
            "times the first's",
            "MB",
            "tokens asked",
            "encoded",
            "padding",
            "10^12 operations",
            "of the floor",
        ),
        rows=tuple(rows),
        num_names=2,
        caption="times the first's: seconds against the first way's of the same kind, in brackets the least and the "
        "most of all rounds. MB: most memory beyond the loaded model (by the pool: of the whole process). encoded: "
        "tokens that went through the encoder, each distinct passage of a window once; padding: beside them. of the "
        "floor: the share of its time that the operations would take as bare products of matrices on this machine.",
    )


def _cost_cells(row: Mapping[str, Any], ratio: float) -> tuple[str, ...]:
    encoded, padding, memory = (
        row[name] for name in ("num_encoded_tokens", "num_padding_tokens", "peak_memory_bytes")
    )
    return (
        f"{row['count']:,}",
        f"{row['seconds']:.2f}",
        f"{ratio:.2f}" + _spread(row),
        NOTHING if memory is None else f"{memory / 1e6:,.0f}",
        f"{row['num_prompt_tokens']:,}",
        NOTHING if encoded is None else f"{encoded:,}",
        NOTHING if encoded is None else f"{padding / (encoded + padding):.1%}",
        NOTHING if row["operations"] is None else f"{row['operations'] / 1e12:.3f}",
        NOTHING if row["floor_share"] is None else f"{row['floor_share']:.0%}",
    )


def precision_grid(table: pl.DataFrame) -> Grid:
    """One row for each precision, against the first of its kind."""
    firsts: dict[str, float] = {}
    rows = []
    for row in table.iter_rows(named=True):
        change = row["tau"] - firsts.setdefault(row["what"], row["tau"])
        shares = (f"{row[name]:.2%}" for name in ("label_share", "same_outputs", "same_labels"))
        rows.append(
            (
                row["what"],
                row["by"],
                f"{row['count']:,}",
                *shares,
                number(row["kappa"]),
                number(row["tau"]),
                f"{change:+.3f}",
            )
        )
    return Grid(
        title="What a precision changes",
        columns=(
            "what",
            "by",
            "pairs",
            "label 1",
            "outputs the same",
            "labels the same",
            "kappa",
            "tau",
            "change",
        ),
        rows=tuple(rows),
        num_names=2,
        caption="The same: as the first row of the kind. label 1: share of the documents that are useful alone. kappa: "
        "Cohen's. tau: Kendall's, of P at this depth with the utility in float32; change: of it.",
    )


def host_grid(table: pl.DataFrame) -> Grid:
    """Show the CPU time of a pair, a row for each part."""
    total = table.filter(by="all").row(0, named=True)
    rows = [
        (row["by"], _us_a_pair(row), f"{row['cpu_seconds'] / total['cpu_seconds']:.0%}")
        for row in table.iter_rows(named=True)
    ]
    return Grid(
        title="CPU time of the host",
        columns=("part", "us a pair", "share"),
        rows=tuple(rows),
        num_names=1,
        caption=f"{_pairs(table)}, one actor, with an engine that takes no time. tokenising: with a cache "
        "of words that is empty at first; again: with all words known. padding: the encoder's passes. fusing: the "
        "places of each prompt's states. outputs: token ids to text. writing: the table of responses, and Parquet. "
        "Kernel launches are not included. "
        f"Cores of other work meanwhile: {_cores(total)}.",
    )


def device_grid(table: pl.DataFrame) -> Grid:
    """Show how busy one actor's host work keeps devices, a row for each rate."""
    rows = []
    for row in table.iter_rows(named=True):
        rate = row["count"] / row["seconds"]
        rows.append(
            (
                row["by"],
                f"{rate:,.0f}",
                f"{rate / row['device_rate']:.2f}",
                _us_a_pair(row),
                f"{row['cpu_seconds'] / row['seconds']:.2f}",
                _cores(row),
            )
        )
    return Grid(
        title="Rates beside a device",
        columns=("device", "pairs a second", "share", "us a pair", "cores used", "cores of other work"),
        rows=tuple(rows),
        num_names=1,
        caption=f"{_pairs(table)}, one actor. The device is an engine that sleeps as long as one of this rate would "
        "compute. share: of its rate. again: with all words known; a long job lies between the two.",
    )


def served_grid(table: pl.DataFrame) -> Grid:
    """Show how fast a server is asked, a row for each who asks."""
    rows = [
        (
            row["by"],
            f"{row['count']:,}",
            f"{row['seconds']:.2f}",
            f"{row['count'] / row['seconds']:,.0f}",
            f"{row['cpu_seconds'] / row['count'] * 1e3:.2f}",
            _spread(row).strip(" ()"),
            _cores(row),
        )
        for row in table.iter_rows(named=True)
    ]
    return Grid(
        title="Requests to a server",
        columns=("by", "requests", "seconds", "a second", "CPU ms a request", "ratio", "cores of other work"),
        rows=tuple(rows),
        num_names=1,
        caption="The server answers after 50 ms, in a process of its own; each who asks has another, with 64 requests "
        "under way. ratio: of requests a second, round by round, the least to the most, against the bare loop; of two "
        "actors, against one. Cores of other work: the server's among them.",
    )


def vllm_grid(table: pl.DataFrame) -> Grid:
    """Show an actor against bare vLLM, and what the order of prompts saves."""
    rows = []
    for row in table.iter_rows(named=True):
        total, cached = row["num_prompt_tokens"], row["num_cached_prompt_tokens"]
        rows.append(
            (
                row["what"],
                row["by"],
                f"{row['count']:,}",
                f"{row['seconds']:.1f}",
                f"{row['cpu_seconds']:.1f}",
                f"{total:,}",
                f"{total - cached:,}",
                f"{cached / total:.0%}",
                NOTHING if row["most_ratio"] is None else f"{row['most_ratio']:.2f}",
                _cores(row),
            )
        )
    columns = ("what", "by", "requests", "seconds", "CPU s", "prompt tokens", "computed", "cached", "ratio")
    return Grid(
        title="vLLM in the actor",
        columns=(*columns, "cores of other work"),
        rows=tuple(rows),
        num_names=2,
        caption="One engine for all rows, its prefix cache emptied before each. ratio: the actor's requests a second "
        "against those of bare generate in the same round; of orders, prompt tokens computed against those of passage "
        "first and shuffled.",
    )


def _pairs(table: pl.DataFrame) -> str:
    count, tokens = table.row(0, named=True)["count"], table["num_prompt_tokens"][0]
    return f"{count:,} pairs of {tokens / count:.0f} tokens"


def _us_a_pair(row: Mapping[str, Any]) -> str:
    return f"{row['cpu_seconds'] / row['count'] * 1e6:.1f}"


def _cores(row: Mapping[str, Any]) -> str:
    return NOTHING if row["other_cores"] is None else f"{row['other_cores']:.2f}"


def _spread(row: Mapping[str, object]) -> str:
    least, most = row["least_ratio"], row["most_ratio"]
    return "" if least is None else f" ({least:.2f} to {most:.2f})"
