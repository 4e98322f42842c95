"""Means with an auxiliary label, where the reader answers a sample of the questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from erag_ray.report.model import Column, Format, Table, Value
from erag_ray.report.tables.sorting import measure_name
from erag_ray.report.values import columns, names, part_name, plain
from erag_ray.runs import END_TO_END


def auxiliary_table(
    means: pl.DataFrame, dataset: str, runs: Sequence[str], *, is_main: bool = False
) -> Table:
    """Return the means with an auxiliary label beside those of the answered questions, at the largest depth.

    Args:
        means: AUXILIARY_MEANS.
        dataset: the dataset.
        runs: its runs, in the order of the rows.
        is_main: whether it is among the main tables.
    """
    of_dataset = means.filter(dataset=dataset)
    deepest = of_dataset.filter(pl.col("depth") == pl.col("depth").max(), pl.col("cutoff") == pl.col("depth"))
    # an annotator may apply to some of the questions only
    counts = pl.max("num_read", "num_queries")
    name, num_read, num_queries = of_dataset.select(pl.first("auxiliary"), counts).row(0)
    return Table(
        name=part_name("auxiliary", dataset),
        title=f"{dataset}: means with {name} as auxiliary label",
        columns=(
            *names("run", "annotator", "mean"),
            *columns(("with it", "without it"), Format.NUMBER),
            Column("width", Format.NUMBER, "of the interval with it, relative to that without it"),
            Column("correlation", Format.NUMBER, "of both over the answered questions"),
            Column("lambda", Format.NUMBER, "slope of the prediction; near 0: the label is not used"),
        ),
        rows=tuple(_rows(deepest, runs)),
        caption=f"The reader answered {num_read:,} of {num_queries:,} questions; of the others {name} is known. "
        "Without it: means of the answered questions. With it: unbiased too, whatever the label says, since its mean "
        "error on the answered questions is subtracted (prediction-powered means). Means and comparisons in this "
        "report are those with it.",
        is_main=is_main,
        dataset=dataset,
    )


def _rows(means: pl.DataFrame, runs: Sequence[str]) -> Iterator[tuple[Value, ...]]:
    for run in runs:
        rows = means.filter(run_id=run)
        # utility first
        for row in rows.sort(pl.col("annotator") != END_TO_END, maintain_order=True).iter_rows(named=True):
            first = (run, row["annotator"], measure_name(row["measure"], row["cutoff"], row["ideal"]))
            yield (*plain(*first), *_figures(row))


def _figures(row: Mapping[str, Any]) -> tuple[Value, ...]:
    powered = Value(row["mean"], row["low"], row["high"])
    without = Value(row["mean_read"], row["low_read"], row["high_read"])
    return (powered, without, *plain(width_ratio(row), row["correlation"], row["lambda"]))


def width_ratio(row: Mapping[str, Any]) -> float | None:
    """Return the width of the interval with the auxiliary label, relative to that without it; None if that has none."""
    ends = [row[key] for key in ("low", "high", "low_read", "high_read")]
    if None in ends or ends[2] == ends[3]:
        return None
    return float((ends[1] - ends[0]) / (ends[3] - ends[2]))
