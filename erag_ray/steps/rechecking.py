"""A sample of requests asked again: how far a model that this job does not run itself answers alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from erag_ray.config import JobConfig
from erag_ray.models import load_model
from erag_ray.pending import PendingRequests
from erag_ray.scores import score_named, score_outputs
from erag_ray.steps.planning import ModelPlan
from erag_ray.store import KEY_COLUMNS

KINDS = ("served",)
"""Of models that are asked again: what runs here is a function of its request."""


class Recheck(NamedTuple):
    """What came of a sample that was asked again.

    Attributes:
        num_asked: requests in the sample.
        num_outputs: of them, those whose output is another one.
        num_labels: of them, those whose score is another one.
    """

    num_asked: int
    num_outputs: int
    num_labels: int

    def __str__(self) -> str:
        return (
            f"Asked again: {self.num_asked:,} requests; {self.num_outputs:,} outputs and {self.num_labels:,} scores "
            "differ."
        )


def recheck(
    config: JobConfig, plan: ModelPlan, responses: pl.DataFrame, queries: pl.DataFrame | None
) -> Recheck | None:
    """Ask a sample of a model's new requests again.

    Args:
        config: the job.
        plan: what the model was asked.
        responses: RESPONSES to its requests.
        queries: QUERIES, for the scores of outputs; None where outputs are no answers.

    Returns:
        None where nothing is asked again.

    Raises:
        JobError: the server cannot be used any more.
    """
    count = math.ceil(config.recheck_share * plan.new.height)
    if plan.model.config.kind not in KINDS or not count:
        return None
    sample = plan.new[
        np.sort(np.random.default_rng(config.seed).choice(plan.new.height, count, replace=False))
    ]
    table = plan.make_requests(sample)
    load_model(plan.model)
    again = {place: one.text for place, one in plan.model.run(PendingRequests(table, plan.forms))}
    keys = pl.DataFrame({name: table.column(name).to_numpy() for name in KEY_COLUMNS})
    asked = keys.with_columns(
        again=pl.Series([again[place] for place in range(keys.height)], dtype=pl.String)
    )
    both = asked.join(responses.select(*KEY_COLUMNS, "output"), on=KEY_COLUMNS, maintain_order="left")
    differ = both.filter(~pl.col("again").eq_missing(pl.col("output")))
    return Recheck(both.height, differ.height, _num_labels(differ, plan.requests, queries))


def _num_labels(differ: pl.DataFrame, requests: pl.DataFrame, queries: pl.DataFrame | None) -> int:
    """Count the outputs whose score is another one; each by the first question that has it."""
    if queries is None:
        return 0
    firsts = requests.unique(KEY_COLUMNS, keep="first", maintain_order=True).select(*KEY_COLUMNS, "query_id")
    rows = differ.join(firsts, on=KEY_COLUMNS).join(
        queries.select("query_id", "answers", "score"), on="query_id"
    )
    return sum(_scores_differ(row) for row in rows.iter_rows(named=True))


def _scores_differ(row: Mapping[str, object]) -> bool:
    outputs = [row["output"], row["again"]]
    answers: Sequence[Sequence[str]] = [row["answers"]] * 2  # type: ignore[list-item]
    before, after = score_outputs(outputs, answers, score_named(str(row["score"])))  # type: ignore[arg-type]
    return before != after
