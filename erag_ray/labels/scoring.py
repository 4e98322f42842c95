"""Inputs of scores (judgements), and checks of outputs for which a user's score raised."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from erag_ray.config.job import JobConfig
from erag_ray.inference.stage import check_share
from erag_ray.measures.scores import Scoring


def scoring_of(judgements: pl.DataFrame | None) -> Scoring:
    """Return the `Scoring` of a job, with its judgements of outputs (None: no judgements)."""
    rows = () if judgements is None else judgements.select("query_id", "output", "value").iter_rows()
    return Scoring(judgements={(query_id, output): value for query_id, output, value in rows})


def check_scores(scoring: Scoring, config: JobConfig) -> None:
    """Apply `check_share` to the outputs for which a user's score raised."""
    check_share("scores", scoring.num_errors, scoring.num_outputs, scoring.lines, config)


def score_notes(scoring: Scoring, what: str) -> Iterator[str]:
    """Yield a note for the report on outputs without a score, if there are any."""
    if scoring.num_errors:
        counts = f"{scoring.num_errors:,} of {scoring.num_outputs:,}"
        yield f"{what} without a score, not judged: {counts} ({'; '.join(scoring.lines)})"
