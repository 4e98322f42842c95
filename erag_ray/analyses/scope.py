"""Selection of the results that the figures of one dataset show: reader, score and best runs."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from erag_ray.analyses.order import MAX_RUNS
from erag_ray.data.runs.references import END_TO_END, REFERENCES

MAX_LABELLED = 4
"""Maximum number of runs in figures of labels whose lines cross often."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Selection of the results that the figures of one dataset show."""

    dataset: str
    reader: str
    score: str
    runs: tuple[str, ...]
    """At most `MAX_RUNS`, since more lines are hard to distinguish; best first."""
    num_runs: int
    """Number of all runs, shown or not."""
    depth: int
    """The largest depth of end-to-end utility."""
    confidence: float
    """Confidence level of the intervals."""
    notes: str = ""
    """What is not shown, as text for captions."""

    @property
    def color_names(self) -> tuple[str, ...]:
        """Runs in the order of their colors, the same in all datasets that show the same runs.

        The best `MAX_LABELLED` come first: figures of labels show only these, in the same colors.
        """
        return (*sorted(self.runs[:MAX_LABELLED]), *sorted(self.runs[MAX_LABELLED:]))

    def best(self, most: int) -> str:
        """Return a note on the shown runs, if not all are shown."""
        if self.num_runs <= most:
            return self.notes
        return f" The best {most} of {self.num_runs} runs by utility."

    @property
    def interval(self) -> str:
        """Name of the interval, such as ``95% interval``."""
        return f"{self.confidence:.0%} interval"


def scope_of(means: pl.DataFrame, dataset: str, confidence: float, ranking: Sequence[str]) -> Scope | None:
    """Return the scope of a dataset with a ranking, by the reader and score of most questions; None without utility."""
    utility = means.filter(
        pl.col("dataset") == dataset, pl.col("annotator") == END_TO_END, pl.col("mean").is_not_null()
    )
    of_runs = utility.filter(~pl.col("run_id").is_in(REFERENCES))
    if of_runs.is_empty():
        return None
    counts = of_runs.group_by("reader", "score").agg(pl.col("num_queries").max())
    ordered = counts.sort("num_queries", "score", "reader", descending=[True, False, False])
    reader, score = ordered.select("reader", "score").row(0)
    selected = of_runs.filter(reader=reader, score=score)
    runs = [run for run in ranking if run in selected["run_id"]]
    return Scope(
        dataset=dataset,
        reader=reader,
        score=score,
        runs=tuple(runs[:MAX_RUNS]),
        num_runs=len(runs),
        depth=int(selected["depth"].max()),  # type: ignore[arg-type]
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
