"""The inputs of a job, the samples of them for its reader and its judge, and the `Evidence` of annotators."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from erag_ray.annotators import Evidence, annotator_named, applicable_queries, judged_pairs, request_specs
from erag_ray.config.job import JobConfig
from erag_ray.data.datasets.queries import sample
from erag_ray.data.datasets.tasks import Dataset
from erag_ray.data.runs.entries import pairs
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


def sample_each(queries: pl.DataFrame, num_queries: int | None, seed: int) -> pl.DataFrame:
    """Return QUERIES: a `sample` of each dataset (None: all)."""
    parts = queries.partition_by("dataset", maintain_order=True)
    return pl.concat([queries.clear(), *(sample(part, num_queries, seed) for part in parts)])


def sampled(config: JobConfig, queries: pl.DataFrame, num_queries: int | None) -> pl.DataFrame:
    """Return QUERIES: at most ``num_queries`` of each dataset (None: all), of those that the reader answers."""
    counts = [count for count in (config.reader_queries, num_queries) if count is not None]
    return sample_each(queries, min(counts, default=None), config.seed)


def reader_queries(config: JobConfig, queries: pl.DataFrame) -> pl.DataFrame:
    """Return the QUERIES that the reader answers: a sample of each dataset, all without ``reader_queries``."""
    return queries if config.reader_queries is None else sampled(config, queries, None)


def judged_queries(config: JobConfig, queries: pl.DataFrame) -> pl.DataFrame:
    """Return the QUERIES whose documents the judge grades: a sample of each dataset, all without its num_queries."""
    return sample_each(queries, config.judge.num_queries, config.seed)


def sampled_queries(config: JobConfig, annotator: str, queries: pl.DataFrame) -> pl.DataFrame:
    """Return the QUERIES about which the models of an annotator are asked; all if it needs none."""
    specs, selected = list(request_specs([annotator])), queries
    if any(spec.kind.role == "reader" for spec in specs):
        selected = reader_queries(config, queries)
    if any(spec.lists is judged_pairs for spec in specs):
        judged = judged_queries(config, queries)
        selected = selected.join(judged, on="query_id", how="semi", maintain_order="left")
    return selected


def sample_notes(config: JobConfig, queries: pl.DataFrame, runs: pl.DataFrame) -> list[str]:
    """Return how many questions the reader answers, and what the others would take, for the user."""
    read = reader_queries(config, queries)
    if read.height == queries.height:
        return []
    unread = runs.join(read, on="query_id", how="anti")
    num_lists = unread.select("run_id", "query_id").unique().height * len(config.depths)
    return [
        f"the reader answers {read.height:,} of {queries.height:,} questions (reader_queries); the others have "
        f"{pairs(unread).height:,} documents and {num_lists:,} lists in the runs"
    ]


def evidence_of(
    inputs: Inputs, values: Mapping[Kind, pl.DataFrame] | None = None, judged: pl.DataFrame | None = None
) -> Evidence:
    """Return the evidence of annotators: with folded responses by kind of request, and the pairs for the judge."""
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
