"""Load the sealed tables of a finished job for its report; missing or changed ones are left out and named."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import polars as pl

from erag_ray.config import JobConfig
from erag_ray.errors import InputError
from erag_ray.extensions import installed
from erag_ray.schemas import (
    AUXILIARY_MEANS,
    BEST_DEPTHS,
    CELL_COMPARISONS,
    CELL_SHARES,
    COMMON_OUTPUTS,
    COMPARISONS,
    COMPLEMENTS,
    CONTRASTS,
    CORRELATIONS,
    COSTS,
    JUDGEMENTS,
    LABELS,
    LIST_TOKENS,
    MEANS,
    OUTPUTS,
    PER_QUERY,
    QUERIES,
    REQUESTS,
    RETRIEVAL_SECONDS,
    RUNS,
    SLICE_COMPARISONS,
    SLICE_MEANS,
    UTILITY,
    TableSchema,
)
from erag_ray.stages import EXPORT, JOB_STAGES, stale
from erag_ray.store import MANIFEST, TableStore, as_frame, read_manifest

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Empty:
    """Default factory of a field of `Results`: the empty table of a schema."""

    schema: TableSchema
    of_stages: bool = False
    """Whether each stage has this table in a folder of its own."""
    optional: bool = False
    """Whether a finished job may lack this table."""

    def __call__(self) -> pl.DataFrame:
        """Return a frame of the schema without rows."""
        return as_frame(self.schema.empty())


def _of_extensions() -> dict[str, Empty]:
    tables = (schema for extension in installed() for schema in extension.tables)
    return {schema.name: Empty(schema, optional=True) for schema in tables}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Results:
    """Inputs of a report: the tables of a job's ``out``, and settings and notes from their manifests.

    To add a table, add a field with its schema.
    """

    means: pl.DataFrame = dataclasses.field(default_factory=Empty(MEANS))
    correlations: pl.DataFrame = dataclasses.field(default_factory=Empty(CORRELATIONS))
    comparisons: pl.DataFrame = dataclasses.field(default_factory=Empty(COMPARISONS))
    contrasts: pl.DataFrame = dataclasses.field(default_factory=Empty(CONTRASTS))
    best_depths: pl.DataFrame = dataclasses.field(default_factory=Empty(BEST_DEPTHS))
    labels: pl.DataFrame = dataclasses.field(default_factory=Empty(LABELS))
    utility: pl.DataFrame = dataclasses.field(default_factory=Empty(UTILITY))
    cell_shares: pl.DataFrame = dataclasses.field(default_factory=Empty(CELL_SHARES))
    cell_comparisons: pl.DataFrame = dataclasses.field(default_factory=Empty(CELL_COMPARISONS))
    complements: pl.DataFrame = dataclasses.field(default_factory=Empty(COMPLEMENTS))
    slice_means: pl.DataFrame = dataclasses.field(default_factory=Empty(SLICE_MEANS, optional=True))
    slice_comparisons: pl.DataFrame = dataclasses.field(
        default_factory=Empty(SLICE_COMPARISONS, optional=True)
    )
    queries: pl.DataFrame = dataclasses.field(default_factory=Empty(QUERIES))
    runs: pl.DataFrame = dataclasses.field(default_factory=Empty(RUNS))
    list_tokens: pl.DataFrame = dataclasses.field(default_factory=Empty(LIST_TOKENS, optional=True))
    auxiliary_means: pl.DataFrame = dataclasses.field(default_factory=Empty(AUXILIARY_MEANS, optional=True))
    retrieval_seconds: pl.DataFrame = dataclasses.field(
        default_factory=Empty(RETRIEVAL_SECONDS, optional=True)
    )
    costs: pl.DataFrame = dataclasses.field(default_factory=Empty(COSTS, of_stages=True))
    outputs: pl.DataFrame = dataclasses.field(default_factory=Empty(OUTPUTS, of_stages=True))
    common_outputs: pl.DataFrame = dataclasses.field(default_factory=Empty(COMMON_OUTPUTS, of_stages=True))
    judgements: pl.DataFrame = dataclasses.field(
        default_factory=Empty(JUDGEMENTS, of_stages=True, optional=True)
    )
    requests: pl.DataFrame = dataclasses.field(default_factory=Empty(REQUESTS, of_stages=True))

    further: Mapping[str, pl.DataFrame] = dataclasses.field(
        default_factory=lambda: {name: empty() for name, empty in _of_extensions().items()}
    )
    """Tables of extensions, by name; empty where the job has none."""
    stages: Sequence[Mapping[str, Any]] = ()
    """Manifests of the inference stages: ``stage``, ``counts``, ``summary`` and more."""
    reader: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Settings of the reader that affect its outputs, such as ``kind`` and ``model``."""
    confidence: float | None = None
    """Coverage of the intervals."""
    threshold: float | None = None
    """Graded labels of at least this count as useful (None: .5)."""
    notes: Sequence[str] = ()
    """Notes on the inputs, the cut-offs, the labels and the outputs."""
    export_notes: Sequence[str] = ()
    """Why some results could not be exported as TREC files."""
    closed_book: Sequence[Mapping[str, Any]] = ()
    """Rows of `annotators.closed_book_answers`, if ``gain`` is among the annotators."""
    noise: Sequence[Mapping[str, Any]] = ()
    """Rows of `annotators.likelihood_noise`, if ``gain_likelihood`` is among the annotators."""
    missing: tuple[str, ...] = ()
    """One line for each table or manifest that is missing or was changed after sealing."""

    @property
    def alpha(self) -> float:
        """The error that the job allows, 1 - confidence; of a job that does not say, the default of the key."""
        return 1 - (JobConfig.confidence if self.confidence is None else self.confidence)


def load(folder: str) -> Results:
    """Load the results of a job from its ``out``.

    Raises:
        InputError: the folder has no sealed MEANS, or they were changed, or computed from other versions of its tables.
    """
    store = TableStore(folder)
    if not store.is_sealed(MEANS):
        raise InputError([f"{folder}: no sealed means; run jobs/compare.py or jobs/evaluate.py first"])
    if others := stale(store.manifest(MEANS), store):
        text = f"{folder}: means were computed from an earlier version of {', '.join(others)}"
        raise InputError([f"{text}; run jobs/compare.py or jobs/evaluate.py again"])
    return _Loading(store).results()


class _Loading:
    """Loads one folder and collects what is missing."""

    def __init__(self, store: TableStore) -> None:
        self.store = store
        self.missing: dict[str, str] = {}

    def results(self) -> Results:
        """Return the loaded tables, and the names of missing ones."""
        # a damaged table of means is an error: no part of the report works without it
        means, stages = self.store.read(MEANS), list(self._stages())
        kinds = {field.name: field.default_factory for field in dataclasses.fields(Results)}
        tables = {
            name: self._frame(kind, stages)
            for name, kind in kinds.items()
            if isinstance(kind, Empty) and name != "means"
        }
        further = {name: self._frame(kind, stages) for name, kind in _of_extensions().items()}
        labels, utility, queries = (self._config(schema) for schema in (LABELS, UTILITY, QUERIES))
        configs = (queries, *map(self._config, (PER_QUERY, AUXILIARY_MEANS)), labels, utility)
        return Results(
            means=means,
            **tables,
            further=further,
            stages=stages,
            reader=labels.get("reader") or utility.get("reader") or {},
            confidence=self._config(MEANS).get("confidence"),
            threshold=self._config(PER_QUERY).get("threshold"),
            notes=[note for config in configs for note in config.get("notes", [])],
            export_notes=self._export_notes(),
            closed_book=labels.get("closed_book", []),
            noise=labels.get("noise", []),
            missing=tuple(self.missing.values()),
        )

    def _frame(self, kind: Empty, stages: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
        root = self.store.folder.root.rstrip("/")
        stores = (
            [TableStore(f"{root}/{stage['stage']}") for stage in stages] if kind.of_stages else [self.store]
        )
        sealed = [store for store in stores if store.is_sealed(kind.schema)]
        if not sealed and not kind.optional:
            self.missing[kind.schema.name] = f"table {kind.schema.name} is missing"
        if not kind.of_stages and self._manifest(kind.schema.name, {}) is None:
            return kind()
        parts = [
            self._attempt(store.folder.at(kind.schema.name), functools.partial(store.read, kind.schema))
            for store in sealed
        ]
        return pl.concat([kind(), *(part for part in parts if part is not None)])

    def _stages(self) -> Iterator[Mapping[str, Any]]:
        for name in JOB_STAGES:
            manifest = self._manifest(name, {"counts": list, "summary": str})
            if manifest is not None:
                yield {**manifest, "stage": name}

    def _config(self, schema: TableSchema) -> Mapping[str, Any]:
        """Return the settings in a table's manifest; empty if there is no manifest."""
        manifest = self._manifest(schema.name, {"config": dict})
        return {} if manifest is None else dict(manifest["config"])

    def _export_notes(self) -> list[str]:
        manifest = self._manifest(EXPORT, {"notes": list})
        return [] if manifest is None else list(manifest["notes"])

    def _manifest(self, name: str, form: Mapping[str, type]) -> dict[str, Any] | None:
        folder = self.store.folder
        if not folder.exists(name, MANIFEST):
            return None
        manifest = self._attempt(folder.at(name), functools.partial(read_manifest, folder, name, form=form))
        if manifest is not None and (others := stale(manifest, self.store)):
            text = f"it was computed from an earlier version of {', '.join(others)}; run the job again"
            self.missing[folder.at(name)] = f"left out: {folder.at(name)}: {text}"
            return None
        return manifest

    def _attempt(self, path: str, read: Callable[[], T]) -> T | None:
        """Return the result of ``read``; record a damaged or changed file and return None."""
        try:
            return read()
        except InputError as error:
            self.missing[path] = f"left out: {'; '.join(error.problems)}"
        except ValueError as error:
            self.missing[path] = f"left out: {path}: {error}; run the job that writes it again"
        return None
