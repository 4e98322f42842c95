"""The benchmark as a table: rates, and the ratio to the peer."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from erag_ray.analyses.parts.formats import number
from erag_ray.analyses.parts.model import Column, Format, Table, Value
from erag_ray.analyses.parts.shapes import columns, names, plain
from erag_ray.extras.papers.published import read_published

OURS = "erag_ray"
SPEED_COLUMNS = (
    *names("what", "by"),
    Column("size", Format.COUNT),
    Column("seconds", Format.NUMBER_2),
    Column("a second", Format.COUNT),
    Column("ours / theirs", Format.NUMBER_2),
    *columns(("MB on disk", "MB in memory"), Format.COUNT),
)


def speed_table(measured: pl.DataFrame) -> Table:
    """Return one row for each measurement; ours against every peer that did the same."""
    rates = {
        (row["passages"], row["what"], row["by"]): row["count"] / row["seconds"]
        for row in measured.iter_rows(named=True)
    }
    rows = []
    for row in measured.iter_rows(named=True):
        ours = rates.get((row["passages"], row["what"], OURS))
        rate = rates[row["passages"], row["what"], row["by"]]
        is_peer = row["by"] != OURS and ours is not None
        ratio = Value(ours / rate, note=_spread(row)) if is_peer and ours is not None else Value()
        rows.append(
            (
                *plain(row["what"], row["by"], row["passages"], row["seconds"], rate),
                ratio,
                *plain(_megabytes(row["disk_bytes"]), _megabytes(row["peak_memory_bytes"])),
            )
        )
    return Table(
        name="speed",
        title="Speed",
        columns=SPEED_COLUMNS,
        rows=tuple(rows),
        caption="size: passages, vectors, or queries with lists. a second: passages built or encoded, questions "
        "searched, documents measured, correlations with their intervals; in brackets the least and the most of all "
        "rounds. MB in memory: the most that the whole process held, with what it was made of.",
    )


READING_COLUMNS = (
    *names("what", "way"),
    Column("requests", Format.COUNT),
    *columns(("seconds", "times the first's"), Format.NUMBER_2),
    *columns(("MB", "tokens asked", "encoded"), Format.COUNT),
    Column("padding", Format.SHARE),
    Column("10^12 operations", Format.NUMBER),
    Column("of the floor", Format.SHARE_0),
)


def reading_costs_table(measured: pl.DataFrame) -> Table:
    """Return one row for each way of reading the same questions, against the first of its kind."""
    firsts: dict[str, float] = {}
    rows = []
    for row in measured.iter_rows(named=True):
        first = firsts.setdefault(row["what"], row["seconds"])
        rows.append((*plain(row["what"], row["by"]), *_cost_cells(row, row["seconds"] / first)))
    return Table(
        name="reading_costs",
        title="Table 2 here: what reading costs",
        columns=READING_COLUMNS,
        rows=tuple(rows),
        caption="times the first's: seconds against the first way's of the same kind, in brackets the least and the "
        "most of all rounds. MB: most memory beyond the loaded model (by the pool: of the whole process). encoded: "
        "tokens that went through the encoder, each distinct passage of a window once; padding: beside them. of the "
        "floor: the share of its time that the operations would take as bare products of matrices on this machine.",
    )


def _cost_cells(row: Mapping[str, Any], ratio: float) -> tuple[Value, ...]:
    encoded, padding, operations = (
        row[name] for name in ("num_encoded_tokens", "num_padding_tokens", "operations")
    )
    return (
        *plain(row["count"], row["seconds"]),
        Value(ratio, note=_spread(row)),
        *plain(_megabytes(row["peak_memory_bytes"]), row["num_prompt_tokens"], encoded),
        *plain(None if encoded is None else padding / (encoded + padding)),
        *plain(None if operations is None else operations / 1e12, row["mfu"]),
    )


PRECISION_COLUMNS = (
    *names("what", "by"),
    Column("pairs", Format.COUNT),
    *columns(("label 1", "outputs the same", "labels the same"), Format.SHARE_2),
    *columns(("kappa", "tau")),
    Column("change", Format.CHANGE),
)


def precision_table(measured: pl.DataFrame) -> Table:
    """Return one row for each precision, against the first of its kind."""
    firsts: dict[str, float] = {}
    rows = []
    for row in measured.iter_rows(named=True):
        change = row["tau"] - firsts.setdefault(row["what"], row["tau"])
        shown = ("what", "by", "count", "label_share", "same_outputs", "same_labels", "kappa", "tau")
        rows.append(plain(*(row[name] for name in shown), change))
    return Table(
        name="precision",
        title="What a precision changes",
        columns=PRECISION_COLUMNS,
        rows=tuple(rows),
        caption="The same: as the first row of the kind. label 1: share of the documents that are useful alone. kappa: "
        "Cohen's. tau: Kendall's, of P at this depth with the utility in float32; change: of it.",
    )


def host_table(measured: pl.DataFrame) -> Table:
    """Return the CPU time of a pair, a row for each part."""
    total = measured.filter(by="all").row(0, named=True)
    return Table(
        name="host",
        title="CPU time of the host",
        columns=(*names("part"), Column("us a pair", Format.TENTHS), Column("share", Format.SHARE_0)),
        rows=tuple(
            plain(row["by"], _us_a_pair(row), row["cpu_seconds"] / total["cpu_seconds"])
            for row in measured.iter_rows(named=True)
        ),
        caption=f"{_pairs(measured)}, one actor, with an engine that takes no time. tokenising: with a cache "
        "of words that is empty at first; again: with all words known. padding: the encoder's passes. fusing: the "
        "places of each prompt's states. outputs: token ids to text. writing: the table of responses, and Parquet. "
        "Kernel launches are not included. "
        f"Cores of other work meanwhile: {number(total['other_cores'], 2)}.",
    )


DEVICE_COLUMNS = (
    *names("device"),
    Column("pairs a second", Format.COUNT),
    Column("share", Format.NUMBER_2),
    Column("us a pair", Format.TENTHS),
    *columns(("cores used", "cores of other work"), Format.NUMBER_2),
)


def device_table(measured: pl.DataFrame) -> Table:
    """Return how busy one actor's host work keeps devices, a row for each rate."""
    rows = []
    for row in measured.iter_rows(named=True):
        rate = row["count"] / row["seconds"]
        cores = row["cpu_seconds"] / row["seconds"], row["other_cores"]
        rows.append(plain(row["by"], rate, rate / row["device_rate"], _us_a_pair(row), *cores))
    return Table(
        name="devices",
        title="Rates beside a device",
        columns=DEVICE_COLUMNS,
        rows=tuple(rows),
        caption=f"{_pairs(measured)}, one actor. The device is an engine that sleeps as long as one of this rate would "
        "compute. share: of its rate. again: with all words known; a long job lies between the two.",
    )


SERVED_COLUMNS = (
    *names("by"),
    Column("requests", Format.COUNT),
    Column("seconds", Format.NUMBER_2),
    Column("a second", Format.COUNT),
    Column("CPU ms a request", Format.NUMBER_2),
    Column("ratio", Format.TEXT),
    Column("cores of other work", Format.NUMBER_2),
)


def served_table(measured: pl.DataFrame) -> Table:
    """Return how fast a server is asked, a row for each who asks."""
    rows = [
        plain(
            *(row["by"], row["count"], row["seconds"], row["count"] / row["seconds"]),
            row["cpu_seconds"] / row["count"] * 1e3,
            _spread(row).strip("()"),
            row["other_cores"],
        )
        for row in measured.iter_rows(named=True)
    ]
    return Table(
        name="served",
        title="Requests to a server",
        columns=SERVED_COLUMNS,
        rows=tuple(rows),
        caption="The server answers after 50 ms, in a process of its own; each who asks has another, with 64 requests "
        "under way. ratio: of requests a second, round by round, the least to the most, against the bare loop; of two "
        "actors, against one. Cores of other work: the server's among them.",
    )


VLLM_COLUMNS = (
    *names("what", "by"),
    Column("requests", Format.COUNT),
    *columns(("seconds", "CPU s"), Format.TENTHS),
    *columns(("prompt tokens", "computed"), Format.COUNT),
    Column("cached", Format.SHARE),
    *columns(("ratio", "cores of other work"), Format.NUMBER_2),
)


def vllm_table(measured: pl.DataFrame) -> Table:
    """Return an actor against bare vLLM, and what the order of prompts saves."""
    rows = []
    for row in measured.iter_rows(named=True):
        total, cached = row["num_prompt_tokens"], row["num_cached_prompt_tokens"]
        first = (row["what"], row["by"], row["count"], row["seconds"], row["cpu_seconds"])
        ratio = (row["most_ratio"], row["other_cores"])
        rows.append(plain(*first, total, total - cached, cached / total, *ratio))
    return Table(
        name="vllm",
        title="vLLM in the actor",
        columns=VLLM_COLUMNS,
        rows=tuple(rows),
        caption="One engine for all rows, its prefix cache emptied before each. ratio: the actor's requests a second "
        "against those of bare generate in the same round; of orders, prompt tokens computed against those of passage "
        "first and shuffled.",
    )


def _pairs(measured: pl.DataFrame) -> str:
    count, tokens = measured.row(0, named=True)["count"], measured["num_prompt_tokens"][0]
    return f"{count:,} pairs of {tokens / count:.0f} tokens"


def _us_a_pair(row: Mapping[str, Any]) -> float:
    return float(row["cpu_seconds"] / row["count"] * 1e6)


def _megabytes(num_bytes: int | None) -> float | None:
    return None if num_bytes is None else num_bytes / 1e6


def _spread(row: Mapping[str, object]) -> str:
    """Return the least and the most of all rounds, for behind a ratio."""
    least, most = row["least_ratio"], row["most_ratio"]
    return "" if least is None else f"({least:.2f} to {most:.2f})"


def published_table_2() -> Table:
    """Return Table 2 of Salemi & Zamani (SIGIR 2024)."""
    table = read_published("erag_table_2.csv").with_columns(
        ratio=pl.col("e2e_seconds") / pl.col("erag_seconds")
    )
    fields = (
        "dataset",
        "e2e_seconds",
        "erag_seconds",
        "ratio",
        "e2e_gb",
        "erag_query_gb",
        "erag_document_gb",
    )
    return Table(
        name="published_table_2",
        title="Table 2 as published",
        columns=(
            *names("dataset"),
            *columns(("end-to-end, s", "eRAG, s"), Format.COUNT),
            Column("times faster", Format.NUMBER_2),
            *columns(
                ("end-to-end, GB", "eRAG, a query at a time, GB", "eRAG, a document at a time, GB"),
                Format.GENERAL,
            ),
        ),
        rows=tuple(plain(*row) for row in table.select(fields).iter_rows()),
        caption="Salemi & Zamani, SIGIR 2024: T5-small with Fusion-in-Decoder on 50 documents, KILT's dev sets, on a "
        "GPU, each side in batches that fill it; memory of batches of one query (end-to-end: one list).",
    )
