"""What a job knows for its scores, and outputs that a score of the user's own could not judge."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from erag_ray.config import JobConfig
from erag_ray.inference import check_share
from erag_ray.scores import Scoring


def scoring_of(judgements: pl.DataFrame | None) -> Scoring:
    """What a job knows for its scores: judgements of outputs (None: there are none)."""
    rows = () if judgements is None else judgements.select("query_id", "output", "value").iter_rows()
    return Scoring(judgements={(query_id, output): value for query_id, output, value in rows})


def check_scores(scoring: Scoring, config: JobConfig) -> None:
    """`check_share` of the outputs that a score of the user's own could not judge."""
    check_share("scores", scoring.num_errors, scoring.num_outputs, scoring.lines, config)


def score_notes(scoring: Scoring, what: str) -> Iterator[str]:
    """What a report says of them, where they are allowed."""
    if scoring.num_errors:
        counts = f"{scoring.num_errors:,} of {scoring.num_outputs:,}"
        yield f"{what} without a score, not judged: {counts} ({'; '.join(scoring.lines)})"
