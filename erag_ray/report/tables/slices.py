"""Tables by slice of the questions: utility and eRAG's first measure, and which runs differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from erag_ray.evaluate import MIN_QUESTIONS
from erag_ray.report.model import Column, Format, Table, Value
from erag_ray.report.tables.differences import TEST_COLUMNS, test_values
from erag_ray.report.tables.sorting import by_measure
from erag_ray.report.values import across, columns, estimate, names, part_name, plain
from erag_ray.runs import END_TO_END, REFERENCE_NAMES, REFERENCES

SLICE = ["slice", "value"]


def slice_tables(
    means: pl.DataFrame, comparisons: pl.DataFrame, dataset: str, runs: Sequence[str], confidence: float
) -> list[Table]:
    """Return the tables of one dataset, in reading order; empty ones are left out.

    Args:
        means: SLICE_MEANS.
        comparisons: SLICE_COMPARISONS.
        dataset: the dataset.
        runs: in reading order.
        confidence: of the intervals.
    """
    tables = [
        slice_mean_table(means, dataset, runs, confidence),
        slice_comparison_table(comparisons, dataset),
    ]
    return [table for table in tables if table.rows]


def slice_mean_table(means: pl.DataFrame, dataset: str, runs: Sequence[str], confidence: float) -> Table:
    """Return utility and eRAG's first measure at the largest depth, by slice and run."""
    selected = means.filter(pl.col("dataset") == dataset)
    references = [name for name in REFERENCES if name in selected["run_id"].unique()]
    rows = []
    for (slice, value), part in selected.group_by(SLICE, maintain_order=True):
        for name, quantity in _quantities(part, with_references=True):
            cells = {row["run_id"]: estimate(row, "mean") for row in quantity.iter_rows(named=True)}
            count = Value(quantity["num_queries"].max())  # type: ignore[arg-type]
            rows.append((*plain(str(slice), str(value), name), count, *across(cells, [*runs, *references])))
    heads = [*runs, *(REFERENCE_NAMES[name] for name in references)]
    return Table(
        name=part_name("slice-means", dataset),
        title=f"{dataset}: which retriever serves the reader best, by slice of the questions",
        columns=(*names("slice", "value", "mean of"), Column("questions", Format.COUNT), *columns(heads)),
        rows=tuple(rows),
        caption=f"Means over the questions of each slice with their {confidence:.0%} bootstrap intervals, at the "
        "largest depth. known: whether the reader answers without passages. (none): the question's record has no such "
        "value. All measures and depths are in the table slice_means.",
        is_main=True,
        dataset=dataset,
    )


def slice_comparison_table(comparisons: pl.DataFrame, dataset: str) -> Table:
    """Compare all pairs of runs by utility and by eRAG's first measure at the largest depth, by slice."""
    selected = comparisons.filter(pl.col("dataset") == dataset)
    rows = [
        _comparison_row(row, name)
        for _, part in selected.group_by(SLICE, maintain_order=True)
        for name, quantity in _quantities(part)
        for row in quantity.sort("run_a", "run_b").iter_rows(named=True)
    ]
    return Table(
        name=part_name("slice-comparisons", dataset),
        title=f"{dataset}: which runs differ, by slice of the questions",
        columns=(
            *names("slice", "value", "runs", "by"),
            Column("questions", Format.COUNT),
            *TEST_COLUMNS,
            Column("detectable"),
        ),
        rows=tuple(rows),
        caption="Paired over the questions of each slice: mean difference with its interval; p by sign flips. Holm: "
        "both corrected over all slices, values and pairs of runs by this quantity (utility: and depths). "
        "detectable: the least true difference that one test would find. Where fewer than "
        f"{MIN_QUESTIONS} questions are judged in both runs there is no test. "
        "All measures and depths are in the table slice_comparisons.",
        dataset=dataset,
    )


def _quantities(part: pl.DataFrame, *, with_references: bool = False) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield ``utility@k`` and the name of eRAG's first measure, with their rows at the largest depth."""
    used = part.filter(pl.col("annotator") == END_TO_END)
    labels = part.filter(pl.col("annotator") == "erag")
    is_reference = pl.col("run_id").is_in(REFERENCES) if with_references else pl.lit(False)
    for (_,), rows in used.group_by("reader", maintain_order=True):
        depth = max(rows.filter(~is_reference)["depth"], default=0)
        yield f"utility@{depth}", rows.filter(is_reference | (pl.col("depth") == depth))
    whole = labels.filter(pl.col("depth") == pl.col("depth").max(), pl.col("cutoff") == pl.col("depth"))
    for _, name, rows in by_measure(whole):
        yield f"erag {name}", rows
        return


def _comparison_row(row: dict[str, Any], name: str) -> tuple[Value, ...]:
    return (
        *plain(row["slice"], row["value"], f"{row['run_a']} - {row['run_b']}", name, row["num_queries"]),
        *test_values(row),
        Value(row["detectable"], reason=row["reason"] or ""),
    )
