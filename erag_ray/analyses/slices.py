"""SLICE_MEANS and SLICE_COMPARISONS: means, and which runs differ, over the questions of each slice.

A slice is a path in the records of the questions, such as ``meta.hops``, or `KNOWN`; each of its values is a set of
questions. What holds on average may not hold for questions of several hops, or for those that the reader cannot answer
by itself.
"""

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from erag_ray.analyses import contract
from erag_ray.analyses.cells import CELLS, cells_of
from erag_ray.analyses.columns import DatasetColumns
from erag_ray.analyses.comparisons import COMPARISONS
from erag_ray.analyses.means import MEANS, means
from erag_ray.analyses.order import by_utility, first_of_each, is_reference, references_of, run_columns
from erag_ray.analyses.paired import DETECTABLE, TEST_FIELDS, compare_runs, pair_name
from erag_ray.analyses.parts.model import Column, Format, Table
from erag_ray.analyses.parts.shapes import crosstab, estimate, field, listing, name_field, names, rows_of
from erag_ray.analyses.settings import Settings
from erag_ray.config.job import KNOWN
from erag_ray.data.datasets.paths import NO_VALUE
from erag_ray.data.runs.references import END_TO_END
from erag_ray.store.schemas import SLICES, of_slices

SLICE_MEANS = of_slices("slice_means", MEANS)
SLICE_COMPARISONS = of_slices("slice_comparisons", COMPARISONS)
MIN_QUESTIONS = 10
"""Runs are not tested on fewer."""


def known_slice(cells: pl.DataFrame) -> pl.DataFrame:
    """SLICES of `KNOWN`, by the closed-book column of CELLS; with several readers: whether all of them know it."""
    knows, is_judged = pl.col("closed_book").all(), pl.col("closed_book").is_not_null().all()
    value = pl.when(~is_judged).then(pl.lit(NO_VALUE)).when(knows).then(pl.lit("yes")).otherwise(pl.lit("no"))
    values = cells.group_by("query_id").agg(value=value).sort("query_id")
    return values.with_columns(slice=pl.lit(KNOWN)).select(SLICES.columns.names)


def slices_of(evaluation: contract.Evaluation) -> pl.DataFrame:
    cells, slices = evaluation.once(cells_of), evaluation.inputs.slices
    parts = [
        known_slice(cells) if name == KNOWN else slices.filter(slice=name)
        for name in evaluation.settings.slices
    ]
    return pl.concat([SLICES.empty(), *parts])


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


def slice_means(dataset: DatasetColumns, slices: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    parts = (
        means(columns, settings).with_columns(slice=pl.lit(name), value=pl.lit(value))
        for name, value, columns in with_slices(dataset, slices)
    )
    return pl.concat([SLICE_MEANS.empty(), *(part.select(SLICE_MEANS.columns.names) for part in parts)])


def slice_comparisons(dataset: DatasetColumns, slices: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """SLICE_COMPARISONS: `comparisons` over the questions of every slice.

    p-values are adjusted by Holm over all slices, values and pairs of runs by one quantity. Where fewer than
    `MIN_QUESTIONS` questions are judged in both runs there is only the difference.
    """
    parts = (
        ({"slice": name, "value": value}, columns) for name, value, columns in with_slices(dataset, slices)
    )
    return compare_runs(parts, settings, SLICE_COMPARISONS, MIN_QUESTIONS)


def _quantities(part: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield ``utility@k`` and the name of eRAG's first measure, with their rows at the largest depth."""
    of_runs = (pl.col("annotator") == END_TO_END) & ~is_reference(part)
    is_deepest = pl.col("depth") == pl.col("depth").filter(of_runs).max().over("reader")
    yield from ((name, rows) for (_, name), rows in by_utility(part.filter(is_reference(part) | is_deepest)))
    yield from first_of_each(part.filter(pl.col("annotator") == "erag"))


def show_means(view: contract.View) -> Iterator[Table]:
    """Yield utility and eRAG's first measure at the largest depth, by slice and run."""
    rows = view.rows(SLICE_MEANS)
    groups = [
        ((str(name), str(value), quantity, max(part["num_queries"])), part)
        for (name, value), of_slice in rows.group_by("slice", "value", maintain_order=True)
        for quantity, part in _quantities(of_slice)
    ]
    if groups:
        yield crosstab(
            groups,
            (*names("slice", "value", "mean of"), Column("questions", Format.COUNT)),
            "run_id",
            run_columns([*view.runs, *references_of(rows)]),
            functools.partial(estimate, name="mean"),
            caption=f"Means over the questions of each slice with their {view.results.confidence:.0%} "
            "intervals, at the largest depth. known: whether the reader answers without passages. (none): the "
            "question's record has no such value. All measures and depths are in the table slice_means.",
            is_main=True,
            **view.about("slice-means", "which retriever serves the reader best, by slice of the questions"),
        )


def show_comparisons(view: contract.View) -> Iterator[Table]:
    """Compare all pairs of runs by utility and by eRAG's first measure at the largest depth, by slice."""
    rows: list[dict[str, Any]] = [
        {**row, "quantity": quantity}
        for _, of_slice in view.rows(SLICE_COMPARISONS).group_by("slice", "value", maintain_order=True)
        for quantity, part in _quantities(of_slice)
        for row in rows_of(part.sort("run_a", "run_b"))
    ]
    if rows:
        yield listing(
            rows,
            (
                name_field("slice", "slice"),
                name_field("value", "value"),
                name_field("runs", pair_name),
                name_field("by", "quantity"),
                field("questions", "num_queries", Format.COUNT),
                *TEST_FIELDS,
                DETECTABLE,
            ),
            caption="Paired over the questions of each slice: mean difference with its interval; p by sign flips. "
            "Holm: both corrected over all slices, values and pairs of runs by this quantity (utility: and depths). "
            "detectable: the least true difference that one test would find. Where fewer than "
            f"{MIN_QUESTIONS} questions are judged in both runs there is no test. "
            "All measures and depths are in the table slice_comparisons.",
            **view.about("slice-comparisons", "which runs differ, by slice of the questions"),
        )


SLICED = "By slice of the questions"
OF_SLICES = (*contract.OF_COLUMNS, CELLS, SLICES)
OF_MEANS = contract.Analysis(
    schema=SLICE_MEANS,
    sources=OF_SLICES,
    settings=("slices", *contract.RESAMPLED),
    make=contract.per_dataset(slice_means, contract.columns_of, slices_of),
    is_optional=True,
    show=show_means,
    group=SLICED,
)
OF_COMPARISONS = contract.Analysis(
    schema=SLICE_COMPARISONS,
    sources=OF_SLICES,
    settings=("slices", *contract.TESTED),
    make=contract.per_dataset(slice_comparisons, contract.columns_of, slices_of),
    is_optional=True,
    show=show_comparisons,
    group=SLICED,
)
