"""How long retrieval takes, beside the utility that it brings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from erag_ray.report.model import Column, Format, Table, Value
from erag_ray.report.values import estimate, names, part_name
from erag_ray.runs import END_TO_END

MILLISECONDS = 1000
HIGH_QUANTILE = 0.95
UNKNOWN = Value(reason="the lists bring no seconds")


def latency_table(
    seconds: pl.DataFrame,
    queries: pl.DataFrame,
    means: pl.DataFrame,
    dataset: str,
    runs: Sequence[str],
    *,
    is_main: bool = False,
) -> Table:
    """Return utility at the largest depth, and median and 95th percentile of the latency, for every run.

    Args:
        seconds: RETRIEVAL_SECONDS.
        queries: QUERIES.
        means: MEANS.
        dataset: the dataset.
        runs: its runs, in the order of the rows.
        is_main: whether the Markdown report includes the table.
    """
    of_dataset = queries.filter(dataset=dataset).select("query_id")
    latencies = _latencies(seconds.join(of_dataset, on="query_id", how="semi"))
    utility = means.filter(dataset=dataset, annotator=END_TO_END)
    depth: Any = utility["depth"].max()
    deepest = {
        row["run_id"]: estimate(row, "mean") for row in utility.filter(depth=depth).iter_rows(named=True)
    }
    rows = [(Value(run), deepest.get(run, Value()), *latencies.get(run, (UNKNOWN,) * 3)) for run in runs]
    return Table(
        name=part_name("latency", dataset),
        title=f"{dataset}: how long retrieval takes",
        columns=(
            *names("run"),
            Column(f"utility@{depth}", Format.NUMBER),
            Column("median (ms)", Format.TENTHS),
            Column("p95 (ms)", Format.TENTHS),
            Column("questions", Format.COUNT, "Questions whose latency is known"),
        ),
        rows=tuple(rows),
        caption="Latency of retrieval: milliseconds from the question to its list, as the run brings them; median and "
        "95th percentile over questions. utility@k: mean score of the reader's output with the first k documents. "
        "Latencies of runs that were made on different machines, or under different load, do not compare.",
        is_main=is_main,
        dataset=dataset,
    )


def _latencies(seconds: pl.DataFrame) -> dict[str, tuple[Value, ...]]:
    """Return run -> median, 95th percentile (both in milliseconds), number of questions."""
    milliseconds = pl.col("seconds") * MILLISECONDS
    rows = seconds.group_by("run_id").agg(
        median=milliseconds.median(),
        high=milliseconds.quantile(HIGH_QUANTILE, interpolation="linear"),
        count=pl.len(),
    )
    return {run: (Value(median), Value(high), Value(count)) for run, median, high, count in rows.iter_rows()}
