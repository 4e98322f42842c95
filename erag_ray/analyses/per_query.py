"""PER_QUERY: every measure of every list, by every annotator; other tables are made of it."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from erag_ray.analyses.columns import PER_QUERY
from erag_ray.analyses.contract import Analysis, Evaluation
from erag_ray.analyses.lists.values import per_query_parts
from erag_ray.annotators import uses
from erag_ray.config.job import JobConfig
from erag_ray.inputs.dependencies import sample_settings
from erag_ray.inputs.settings import evaluation_notes
from erag_ray.store.schemas import FACT_LABELS, LABELS, PROVENANCE, QUERIES, RUNS, TableSchema
from erag_ray.support.progress import StageProgress


def _make(evaluation: Evaluation, at: StageProgress) -> Iterable[pl.DataFrame]:
    frames = evaluation.labels, evaluation.inputs.runs, evaluation.eligible, evaluation.inputs.queries
    facts = evaluation.tables.read(FACT_LABELS) if _fact_tables(evaluation.config) else None
    return per_query_parts(*frames, evaluation.settings, facts)


def _fact_tables(config: JobConfig) -> tuple[TableSchema, ...]:
    return (FACT_LABELS,) if uses(config.annotators, "facts") else ()


ANALYSIS = Analysis(
    schema=PER_QUERY,
    sources=(LABELS, QUERIES, PROVENANCE, RUNS),
    settings=("depths", "measures", "cutoffs", "threshold", "ideals"),
    code=("annotators", "scores", "measures"),
    more_sources=_fact_tables,
    # questions without documents depend on the samples, of which LABELS know nothing
    more_settings=sample_settings,
    make=_make,
    notes=lambda evaluation: evaluation_notes(evaluation.config),
)
