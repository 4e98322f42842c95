"""The first table of a dataset: which retriever serves the reader best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from erag_ray.report.formats import counted
from erag_ray.report.model import Column, Format, Table, Value
from erag_ray.report.tables.sorting import by_measure
from erag_ray.report.values import across, columns, estimate, names, part_name, plain
from erag_ray.runs import END_TO_END, GOLD_PASSAGES, NO_PASSAGES, REFERENCE_NAMES, REFERENCES
from erag_ray.scores import score_sign

REFERENCE_MEANINGS = {
    NO_PASSAGES: "The reader without documents (closed-book)",
    GOLD_PASSAGES: "The reader with the gold passages",
}


def which_retriever(
    means: pl.DataFrame, dataset: str, confidence: float | None, *, is_main: bool = False
) -> Table:
    """Return utility at every depth, then each measure at full depth, for every run.

    Runs are in the order of their utility at the largest depth, best first.
    """
    selected = means.filter(pl.col("dataset") == dataset)
    runs = best_first(selected)
    references = references_of(selected)
    num_queries = count_queries(selected)
    rows = [
        *utility_rows(selected, runs, references, num_queries),
        *_measure_rows(selected, runs, len(references), num_queries),
    ]
    return Table(
        name=part_name("retrievers", dataset),
        title=f"{dataset}: which retriever serves the reader best ({counted(num_queries, 'query')})",
        columns=(*names("annotator", "mean"), *columns(runs), *reference_columns(references)),
        rows=tuple(rows),
        caption=f"Mean over queries with its {percent(confidence)}bootstrap interval. Best run first, by utility at "
        "the largest depth. utility@k: score of the reader's output with the first k documents. (list), (pool): the "
        "ideal is the run's own list, or the union of all runs (only the latter compares runs). n: over so many "
        "queries only; the others have no gold passages or pages, or were not judged.",
        is_main=is_main,
        dataset=dataset,
    )


def percent(confidence: float | None) -> str:
    """Return the confidence level for a sentence; "" if unknown."""
    return "" if confidence is None else f"{confidence:.0%} "


def count_queries(means: pl.DataFrame) -> int:
    """Return the number of queries with utility."""
    return int(means.filter(pl.col("annotator") == END_TO_END)["num_queries"].max() or 0)  # type: ignore[arg-type]


def references_of(means: pl.DataFrame) -> list[str]:
    """Return the reference runs that are present: without passages, with gold passages."""
    return [name for name in REFERENCES if name in means["run_id"].unique()]


def reference_columns(references: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of the reference runs."""
    return tuple(
        Column(REFERENCE_NAMES[name], Format.NUMBER, REFERENCE_MEANINGS[name]) for name in references
    )


def best_first(means: pl.DataFrame) -> list[str]:
    """Return the runs by their mean utility at the largest depth, best first (lowest, where less is better)."""
    utility = means.filter((pl.col("annotator") == END_TO_END) & ~pl.col("run_id").is_in(REFERENCES))
    deepest = utility.filter(pl.col("depth") == pl.col("depth").max())
    sign = pl.col("score").replace_strict({name: score_sign(name) or 1 for name in deepest["score"].unique()})
    ordered = deepest.group_by("run_id").agg((pl.col("mean") * sign).mean())
    return ordered.sort("mean", "run_id", descending=[True, False], nulls_last=True)["run_id"].to_list()


def utility_rows(
    means: pl.DataFrame, runs: Sequence[str], references: Sequence[str], num_queries: int
) -> Iterator[tuple[Value, ...]]:
    """Yield the score, ``utility@k`` and a value for each run and reference run, by depth."""
    utility = means.filter(pl.col("annotator") == END_TO_END)
    of_runs = utility.filter(~pl.col("run_id").is_in(REFERENCES))
    for (reader, score, depth), part in of_runs.sort("reader", "depth").group_by(
        "reader", "score", "depth", maintain_order=True
    ):
        references_of_reader = utility.filter(
            pl.col("run_id").is_in(REFERENCES) & (pl.col("reader") == reader)
        )
        values = _values(pl.concat([part, references_of_reader]), num_queries)
        # reference runs have the same value at every depth
        yield (*plain(str(score), f"utility@{depth}"), *across(values, [*runs, *references]))


def _measure_rows(
    means: pl.DataFrame, runs: Sequence[str], num_blank: int, num_queries: int
) -> Iterator[tuple[Value, ...]]:
    measured = means.filter((pl.col("annotator") != END_TO_END) & (pl.col("depth") == pl.col("depth").max()))
    full = measured.filter(pl.col("cutoff") == pl.col("depth"))
    for annotator, name, part in by_measure(full):
        values = _values(part, num_queries)
        yield (*plain(annotator, name), *across(values, runs), *plain(*[""] * num_blank))


def _values(part: pl.DataFrame, num_queries: int) -> dict[str, Value]:
    """Return run_id -> mean with its interval, and the number of queries if not all."""
    return {row["run_id"]: _value(row, num_queries) for row in part.iter_rows(named=True)}


def _value(row: Mapping[str, Any], num_queries: int) -> Value:
    if row["mean"] is None:
        return Value(reason="not judged for any query")
    counted = "" if row["num_queries"] in (0, num_queries) else f"n={row['num_queries']}"
    return estimate(row, "mean", counted)
