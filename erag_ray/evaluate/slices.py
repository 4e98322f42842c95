"""SLICES, and MEANS and COMPARISONS over the questions of each slice. Pure.

A slice is a path in the records of the questions, such as ``meta.hops``, or `KNOWN`; each of its values is a set of
questions. What holds on average may not hold for questions of several hops, or for those that the reader cannot answer
by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from erag_ray.config import KNOWN
from erag_ray.datasets import NO_VALUE
from erag_ray.evaluate.columns import DatasetColumns
from erag_ray.evaluate.common import Settings
from erag_ray.evaluate.comparisons import compare_runs
from erag_ray.evaluate.statistics import means
from erag_ray.schemas import SLICE_COMPARISONS, SLICE_MEANS, SLICES, conform

MIN_QUESTIONS = 10
"""Runs are not tested on fewer."""


def known_slice(cells: pl.DataFrame) -> pl.DataFrame:
    """SLICES of `KNOWN`, by the closed-book column of CELLS; with several readers: whether all of them know it."""
    knows, is_judged = pl.col("closed_book").all(), pl.col("closed_book").is_not_null().all()
    value = pl.when(~is_judged).then(pl.lit(NO_VALUE)).when(knows).then(pl.lit("yes")).otherwise(pl.lit("no"))
    values = cells.group_by("query_id").agg(value=value)
    named = values.with_columns(slice=pl.lit(KNOWN)).sort("query_id")
    return pl.DataFrame(conform(named.select(SLICES.columns.names), SLICES))


def all_slices(slices: pl.DataFrame, cells: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """SLICES of all that ``names`` names, in their order.

    Args:
        slices: SLICES of paths.
        cells: CELLS.
        names: paths, and `KNOWN`.
    """
    parts = [known_slice(cells) if name == KNOWN else slices.filter(slice=name) for name in names]
    return pl.concat([pl.DataFrame(SLICES.empty()), *parts])


def with_slices(dataset: DatasetColumns, slices: pl.DataFrame) -> Iterator[tuple[str, str, DatasetColumns]]:
    """Slice, value, and a dataset's columns over the questions that have it; slices without values are left out.

    Resamples are those of all questions, cut to the slice's. Numbers come in their order, then texts, then `NO_VALUE`.
    """
    places = pl.DataFrame({"query_id": dataset.query_ids}).with_row_index("place")
    of_dataset = slices.join(places, on="query_id", maintain_order="left")
    for (name,), part in of_dataset.group_by("slice", maintain_order=True):
        values = sorted(part["value"].unique(), key=_order)
        for value in values if values != [NO_VALUE] else []:
            is_in_slice = np.zeros(len(dataset.query_ids), np.bool_)
            is_in_slice[part.filter(value=value)["place"].to_numpy()] = True
            yield str(name), value, dataset.among(is_in_slice)


def _order(value: str) -> tuple[bool, bool, float, str]:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        return value == NO_VALUE, True, 0.0, value
    return False, False, number, value


def slice_means(datasets: Sequence[DatasetColumns], slices: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """SLICE_MEANS: `means` over the questions of every slice.

    Args:
        datasets: as `by_dataset` gives them.
        slices: SLICES.
        settings: as of `means`.
    """
    parts = [
        means([columns], settings).with_columns(slice=pl.lit(name), value=pl.lit(value))
        for whole in datasets
        for name, value, columns in with_slices(whole, slices)
    ]
    names = SLICE_MEANS.columns.names
    rows = pl.concat([pl.DataFrame(SLICE_MEANS.empty()), *(part.select(names) for part in parts)])
    return pl.DataFrame(conform(rows, SLICE_MEANS))


def slice_comparisons(
    datasets: Sequence[DatasetColumns], slices: pl.DataFrame, settings: Settings
) -> pl.DataFrame:
    """SLICE_COMPARISONS: `comparisons` over the questions of every slice; arguments as of `slice_means`.

    p-values are adjusted by Holm over all slices, values and pairs of runs by one quantity. Where fewer than
    `MIN_QUESTIONS` questions are judged in both runs there is the difference alone.
    """
    parts = (
        ({"slice": name, "value": value}, columns)
        for whole in datasets
        for name, value, columns in with_slices(whole, slices)
    )
    return compare_runs(parts, settings, SLICE_COMPARISONS, MIN_QUESTIONS)
