"""The inputs of a job, converted to the `Evidence` of annotators, and which of these have nothing to label."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from erag_ray.annotators import Evidence, annotator_named, applicable_queries
from erag_ray.config.job import JobConfig
from erag_ray.data.datasets.tasks import Dataset
from erag_ray.data.runs.entries import pairs
from erag_ray.inputs.reader_sample import reader_queries
from erag_ray.prompts.kinds.base import Kind


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inputs:
    """The sealed input tables of a job, its datasets and notes."""

    queries: pl.DataFrame
    provenance: pl.DataFrame
    corpus: pl.DataFrame
    runs: pl.DataFrame
    gold: pl.DataFrame
    given: pl.DataFrame
    """GIVEN: outputs that need no request."""
    retrieval_seconds: pl.DataFrame
    slices: pl.DataFrame
    facts: pl.DataFrame
    """FACTS; empty where no annotator uses them."""
    clusters: pl.DataFrame
    """CLUSTERS; empty where each question is by itself."""
    datasets: Mapping[str, Dataset]
    notes: Sequence[str]


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
        facts=inputs.facts,
        values=values or {},
        judged=judged,
    )


def reader_evidence(config: JobConfig, evidence: Evidence) -> Evidence:
    """Return the evidence about the questions that the reader answers, for the annotators that ask it."""
    answered = reader_queries(config, evidence.queries)
    pairs_of_reader = evidence.pairs.join(answered, on="query_id", how="semi", maintain_order="left")
    return dataclasses.replace(evidence, pairs=pairs_of_reader, queries=answered)


def applicability_notes(config: JobConfig, inputs: Inputs) -> Iterator[str]:
    """Yield a note for each annotator that applies to no question of the job."""
    if inputs.runs.is_empty():
        # nothing to label: outputs of systems without their lists
        return
    evidence = evidence_of(inputs)
    for name in dict.fromkeys([*filter(None, [config.auxiliary]), *config.annotators]):
        if inputs.queries.height and applicable_queries(name, evidence).is_empty():
            key = "auxiliary" if name == config.auxiliary else "annotators"
            result = " and predicts nothing" if name == config.auxiliary else ""
            applies_to = annotator_named(name).applies_to
            yield f"{key}: {name} labels none of the questions{result}: it applies to {applies_to}"
