"""The first table: which retriever serves the reader best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from erag_ray.evaluate import END_TO_END, GOLD_PASSAGES, NO_PASSAGES, REFERENCES
from erag_ray.report.grid import NOTHING, Grid, with_interval
from erag_ray.report.order import by_measure

REFERENCE_NAMES = {NO_PASSAGES: "no passages", GOLD_PASSAGES: "gold passages"}


def which_retriever(means: pl.DataFrame, dataset: str, confidence: float) -> Grid:
    """The first table: utility at every depth, then each measure at its full depth, for every run.

    Runs stand in the order of their utility at the largest depth, best first.
    """
    own = means.filter(pl.col("dataset") == dataset)
    runs = best_first(own)
    references = [name for name in REFERENCES if name in own["run_id"].unique()]
    num_queries = int(own.filter(pl.col("annotator") == END_TO_END)["num_queries"].max() or 0)  # type: ignore[arg-type]
    rows = [
        *_utility_rows(own, runs, references, num_queries),
        *_measure_rows(own, runs, len(references), num_queries),
    ]
    return Grid(
        title=f"{dataset}: which retriever serves the reader best ({num_queries} queries)",
        columns=("annotator", "mean", *runs, *(REFERENCE_NAMES[name] for name in references)),
        rows=tuple(rows),
        caption=f"Mean over queries with its {confidence:.0%} bootstrap interval. Best run first, by utility at the "
        "largest depth. utility@k: score of the reader's output with the first k documents. (list), (pool): the ideal "
        "is the run's own list, or the union of all runs (only the latter compares runs). n: over so many "
        "queries only; the others have no gold passages or pages, or were not judged.",
        num_names=2,
    )


def best_first(means: pl.DataFrame) -> list[str]:
    used = means.filter((pl.col("annotator") == END_TO_END) & ~pl.col("run_id").is_in(REFERENCES))
    deepest = used.filter(pl.col("depth") == pl.col("depth").max())
    ordered = deepest.group_by("run_id").agg(pl.col("mean").mean())
    return ordered.sort("mean", "run_id", descending=[True, False], nulls_last=True)["run_id"].to_list()


def _utility_rows(
    means: pl.DataFrame, runs: Sequence[str], references: Sequence[str], num_queries: int
) -> Iterator[tuple[str, ...]]:
    used = means.filter(pl.col("annotator") == END_TO_END)
    of_runs = used.filter(~pl.col("run_id").is_in(REFERENCES))
    for (reader, score, depth), part in of_runs.sort("reader", "depth").group_by(
        "reader", "score", "depth", maintain_order=True
    ):
        beside = used.filter(pl.col("run_id").is_in(REFERENCES) & (pl.col("reader") == reader))
        figures = _figures(pl.concat([part, beside]), num_queries)
        # the reader without and with the gold passages is the same at every depth
        yield (str(score), f"utility@{depth}", *(figures.get(run, NOTHING) for run in [*runs, *references]))


def _measure_rows(
    means: pl.DataFrame, runs: Sequence[str], num_blank: int, num_queries: int
) -> Iterator[tuple[str, ...]]:
    measured = means.filter((pl.col("annotator") != END_TO_END) & (pl.col("depth") == pl.col("depth").max()))
    full = measured.filter(pl.col("cutoff") == pl.col("depth"))
    for annotator, name, part in by_measure(full):
        figures = _figures(part, num_queries)
        yield (annotator, name, *(figures.get(run, NOTHING) for run in runs), *[""] * num_blank)


def _figures(part: pl.DataFrame, num_queries: int) -> dict[str, str]:
    """run_id -> mean with its interval, and over how many queries where not over all of them."""
    figures = {}
    for row in part.iter_rows(named=True):
        counted = "" if row["num_queries"] in (0, num_queries) else f" n={row['num_queries']}"
        figures[row["run_id"]] = with_interval(row["mean"], row["low"], row["high"]) + counted
    return figures
