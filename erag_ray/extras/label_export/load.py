"""Sealed tables of a finished job -> `LabelledJob`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from erag_ray.analyses.columns import PER_QUERY
from erag_ray.store.schemas import CORPUS, DOCUMENT_OUTPUTS, LABELS, QUERIES, RUNS
from erag_ray.store.stages.stage import stale
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError

NEEDED = (QUERIES, CORPUS, RUNS, LABELS, DOCUMENT_OUTPUTS)
THRESHOLD = 0.5


@dataclass(frozen=True, kw_only=True)
class LabelledJob:
    """Tables of a finished job, with the settings behind its labels.

    Attributes:
        queries, corpus, runs, labels, document_outputs: the tables of these names.
        manifest: of LABELS.
        languages: of the datasets, ISO 639-1.
        threshold: labels of at least this count as useful.
    """

    queries: pl.DataFrame
    corpus: pl.DataFrame
    runs: pl.DataFrame
    labels: pl.DataFrame
    document_outputs: pl.DataFrame
    manifest: Mapping[str, Any]
    languages: tuple[str, ...]
    threshold: float


def load_job(folder: str, threshold: float | None = None) -> LabelledJob:
    """Load a job from its ``out``, with a threshold of useful labels (None: the job's, else `THRESHOLD`).

    Raises:
        InputError: a table is missing, damaged, or was computed from other versions of its sources; or there are no
            labels.
    """
    store = TableStore(folder)
    if missing := [schema.name for schema in NEEDED if not store.is_sealed(schema)]:
        text = f"{folder}: no sealed {', '.join(missing)}; run erag-ray compare or erag-ray annotate to the end first"
        raise InputError([f"job: {text}"])
    for schema in (LABELS, DOCUMENT_OUTPUTS):
        if others := stale(store.manifest(schema), store):
            text = f"{schema.name} were computed from an earlier version of {', '.join(others)}"
            raise InputError([f"job: {folder}: {text}; run erag-ray compare or erag-ray annotate again"])
    tables = {schema.name: store.read(schema) for schema in NEEDED}
    if tables["labels"].is_empty():
        raise InputError(
            [f"job: {folder}: the table labels is empty. Run erag-ray compare with other annotators"]
        )
    if threshold is None and store.is_sealed(PER_QUERY):
        threshold = store.manifest(PER_QUERY)["config"].get("threshold")
    datasets = store.manifest(QUERIES)["config"].get("datasets", {})
    return LabelledJob(
        **tables,
        manifest=store.manifest(LABELS),
        languages=tuple(sorted({properties["language"] for properties in datasets.values()})),
        threshold=THRESHOLD if threshold is None else threshold,
    )
