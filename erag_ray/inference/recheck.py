"""Recheck of served models: a sample of requests is sent again, and outputs and scores are compared."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from erag_ray.config.job import JobConfig
from erag_ray.inference.planning.pending import PendingRequests, Uses
from erag_ray.inference.planning.plan import ModelPlan
from erag_ray.inference.work import Done
from erag_ray.measures.scores import JUDGED, score_named, score_outputs
from erag_ray.models import Budget, Isolation, load_model
from erag_ray.prompts.request import Response
from erag_ray.store.responses import KEY_COLUMNS


class Recheck(NamedTuple):
    """Result of a recheck.

    Attributes:
        num_requests: in the sample.
        num_outputs: those of them whose output differs.
        num_labels: those of them whose score (or other folded value) differs.
        num_judged: those of the differing outputs that a judge scores; their new scores are unknown.
        num_errors: those of the requests that are an error now or were one before; they are not compared.
        done: counts of the requests, for the costs.
    """

    num_requests: int
    num_outputs: int
    num_labels: int
    num_judged: int = 0
    num_errors: int = 0
    done: Done = Done()
    num_unsent: int = 0
    """Requests of the sample for which nothing of ``max_cost`` was left."""

    def __str__(self) -> str:
        judged = f" The judge scores {self.num_judged:,} of these outputs, and its scores are not compared."
        errors = f" {self.num_errors:,} of the requests are errors, and are not compared."
        unsent = f" {self.num_unsent:,} more were not sent again: max_cost is spent."
        return (
            f"Rechecked: {self.num_requests:,} requests; {self.num_outputs:,} outputs and {self.num_labels:,} scores "
            f"differ.{judged if self.num_judged else ''}{errors if self.num_errors else ''}"
            f"{unsent if self.num_unsent else ''}"
        )


def recheck(
    config: JobConfig,
    plan: ModelPlan,
    responses: pl.DataFrame,
    queries: pl.DataFrame | None,
    uses: Uses | None = None,
    max_cost: float | None = None,
) -> Recheck | None:
    """Send a sample of a model's new requests again.

    Returns:
        None if the model is not rechecked.

    Raises:
        JobError: the server cannot be used any more.
    """
    count = math.ceil(config.recheck_fraction * plan.new.height)
    if plan.model.is_repeatable or not count:
        return None
    sample = plan.new[
        np.sort(np.random.default_rng(config.seed).choice(plan.new.height, count, replace=False))
    ]
    table = plan.make_requests(sample)
    load_model(plan.model)
    plan.model.budget = Budget(plan.model.config, max_cost)
    start = time.monotonic()
    again = dict(Isolation(plan.model).run(PendingRequests(table, plan.forms)))
    seconds, num_unsent = time.monotonic() - start, table.num_rows - len(again)
    table = table.take(sorted(again))
    rechecked = pl.DataFrame({name: table.column(name).to_numpy() for name in KEY_COLUMNS}).with_columns(
        again=pl.Series([again[row].text for row in sorted(again)], dtype=pl.String),
        has_failed=pl.Series([again[row].failure is not None for row in sorted(again)], dtype=pl.Boolean),
    )
    before = responses.select(*KEY_COLUMNS, "output", "error")
    both = rechecked.join(before, on=KEY_COLUMNS, maintain_order="left")
    compared = both.filter(~pl.col("has_failed"), pl.col("error").is_null())
    differ = compared.filter(~pl.col("again").eq_missing(pl.col("output")))
    changed = _labels_changed(differ, plan.requests, queries, uses or {})
    return Recheck(
        num_requests=both.height,
        num_outputs=differ.height,
        num_labels=changed.count(True),
        num_judged=changed.count(None),
        num_errors=both.height - compared.height,
        done=_counts(list(again.values()), seconds),
        num_unsent=num_unsent,
    )


def _counts(responses: Sequence[Response], seconds: float) -> Done:
    names = ("num_prompt_tokens", "num_output_tokens", "num_cached_prompt_tokens")
    sums = {name: sum(getattr(response, name) for response in responses) for name in names}
    return Done(num_responses=len(responses), seconds=seconds, device_seconds=seconds, **sums)


def _labels_changed(
    differ: pl.DataFrame, requests: pl.DataFrame, queries: pl.DataFrame | None, uses: Uses
) -> list[bool | None]:
    """Apply `_is_changed` to each output, with the first question that has it."""
    if queries is None:
        return []
    firsts = requests.unique(KEY_COLUMNS, keep="first", maintain_order=True)
    rows = differ.join(firsts.select(*KEY_COLUMNS, "kind", "query_id"), on=KEY_COLUMNS)
    facts = queries.select("query_id", "dataset", "answers", "score")
    return [_is_changed(row, uses) for row in rows.join(facts, on="query_id").iter_rows(named=True)]


def _is_changed(row: Mapping[str, Any], uses: Uses) -> bool | None:
    """Return whether the values of two outputs differ; None if a judge would have to score them."""
    outputs, use = [row["output"], row["again"]], uses.get((row["kind"], row["dataset"]))
    if use is not None and (fold := use.kind.fold):
        answers = use.answers(row["answers"])
        before, after = (None if text is None else fold(answers, Response(text=text)) for text in outputs)
    elif row["score"] in JUDGED:
        return None
    else:
        before, after = score_outputs(outputs, [row["answers"]] * 2, score_named(row["score"]))
    return before != after
