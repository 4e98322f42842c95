"""The inputs of a job as the evidence that annotators look at."""

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
    """What annotators may look at.

    Args:
        inputs: of the job.
        values: what models answered.
        judged: the pairs that the judge is asked about.
    """
    return Evidence(
        pairs=pairs(inputs.runs),
        queries=inputs.queries,
        corpus=inputs.corpus,
        provenance=inputs.provenance,
        gold=inputs.gold,
        values=values or {},
        judged=judged,
    )
