"""What the figures of one dataset show: its reader and score, and its best runs."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from erag_ray.report.tables.retrievers import best_first
from erag_ray.report.values import part_name
from erag_ray.runs import END_TO_END, REFERENCES

MAX_RUNS = 8
"""Runs that a figure shows; more lines cannot be told apart."""
MAX_LABELLED = 4
"""Runs whose labels are shown: these lines cross often, and agreement has a panel per run."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The part of the results that the figures of one dataset show."""

    dataset: str
    reader: str
    score: str
    runs: tuple[str, ...]
    """At most `MAX_RUNS`, best first by utility at the largest depth."""
    num_runs: int
    """Of all runs, shown or not."""
    depth: int
    """The largest depth of end-to-end utility."""
    confidence: float
    """Of the intervals."""
    notes: str = ""
    """What is not shown, for captions."""

    def name(self, kind: str) -> str:
        """Identify a figure of this dataset: letters, digits, ``-`` and ``_``."""
        return part_name(kind, self.dataset)

    @property
    def color_names(self) -> tuple[str, ...]:
        """The runs by name: a run has the same colour in all datasets that show the same runs.

        The first `MAX_LABELLED` stay first: figures of labels show them alone, and in the same colours.
        """
        return (*sorted(self.runs[:MAX_LABELLED]), *sorted(self.runs[MAX_LABELLED:]))

    @property
    def interval(self) -> str:
        """``95% interval``."""
        return f"{self.confidence:.0%} interval"


def scope_of(means: pl.DataFrame, dataset: str, confidence: float) -> Scope | None:
    """Return the reader and score of most questions of a dataset, and its best runs; None without any utility."""
    used = means.filter(
        pl.col("dataset") == dataset, pl.col("annotator") == END_TO_END, pl.col("mean").is_not_null()
    )
    of_runs = used.filter(~pl.col("run_id").is_in(REFERENCES))
    if of_runs.is_empty():
        return None
    counts = of_runs.group_by("reader", "score").agg(pl.col("num_queries").max())
    ordered = counts.sort("num_queries", "score", "reader", descending=[True, False, False])
    reader, score = ordered.select("reader", "score").row(0)
    own = of_runs.filter(reader=reader, score=score)
    runs = best_first(own)
    return Scope(
        dataset=dataset,
        reader=reader,
        score=score,
        runs=tuple(runs[:MAX_RUNS]),
        num_runs=len(runs),
        depth=int(own["depth"].max()),  # type: ignore[arg-type]
        confidence=confidence,
        notes=_not_shown(len(runs), ordered["score"].unique().sort().to_list(), score),
    )


def _not_shown(num_runs: int, scores: list[str], score: str) -> str:
    notes = []
    if num_runs > MAX_RUNS:
        notes.append(f" The best {MAX_RUNS} of {num_runs} runs by utility; the others are in the tables.")
    if len(scores) > 1:
        others = ", ".join(name for name in scores if name != score)
        notes.append(f" Only the questions scored by {score}; others are scored by {others}.")
    return "".join(notes)
