"""Convert the inputs of a job to the `Evidence` of annotators."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from erag_ray.annotators import Evidence
from erag_ray.inputs.stage import Inputs
from erag_ray.kinds import Kind
from erag_ray.runs import pairs


def evidence_of(
    inputs: Inputs, values: Mapping[Kind, pl.DataFrame] | None = None, judged: pl.DataFrame | None = None
) -> Evidence:
    """Return the evidence of annotators.

    Args:
        inputs: inputs of the job.
        values: folded responses by kind of request.
        judged: the pairs for the judge.
    """
    return Evidence(
        pairs=pairs(inputs.runs),
        queries=inputs.queries,
        corpus=inputs.corpus,
        provenance=inputs.provenance,
        gold=inputs.gold,
        facts=inputs.facts,
        values=values or {},
        judged=judged,
    )
