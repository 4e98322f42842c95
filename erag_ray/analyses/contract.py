"""The contract of an `Analysis`: it is made of an `Evaluation`, and shown from `Results` and a `View` of a dataset."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import polars as pl

from erag_ray.analyses.columns import PER_QUERY, DatasetColumns, by_dataset
from erag_ray.analyses.order import MAX_LABELLED, MAX_RUNS, by_mean_rank
from erag_ray.analyses.parts.model import Part
from erag_ray.analyses.parts.shapes import about
from erag_ray.analyses.settings import Settings, settings_of
from erag_ray.analyses.standing import Standing
from erag_ray.annotators import annotator_named, applicable_queries
from erag_ray.config.job import JobConfig
from erag_ray.extensions import requested
from erag_ray.inputs.evidence import Inputs, evidence_of, sampled_queries
from erag_ray.store.schemas import LABELS, QUERIES, UTILITY, TableSchema
from erag_ray.store.tables import TableStore
from erag_ray.support.progress import StageProgress

T = TypeVar("T")
LISTS, LABELLING = "Where a list helps", "How well labels predict the answers"
READER = "The reader and its costs"
"""Headings under which the page folds results; those of one heading follow each other in `every.ANALYSES`."""
RESAMPLED, TESTED = ("num_resamples", "confidence", "seed"), ("confidence",)
"""Settings of tables with bootstrap intervals, and with tests."""
OF_COLUMNS = (PER_QUERY, UTILITY, QUERIES)
"""What `columns_of` are read from."""


def _nothing(*_: object) -> tuple[()]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """A result: its table, what that is made from, and how it is shown."""

    schema: TableSchema | None = None
    """Of its table; None: it shows tables that other stages seal."""
    sources: Sequence[TableSchema] = ()
    """The tables that it is made from."""
    settings: Sequence[str] = ()
    """Names of the `Settings` that it depends on."""
    code: Sequence[str] = ()
    """Which lists of names may name code of the user: of ``annotators``, ``scores`` and ``measures``."""
    more_sources: Callable[[JobConfig], Sequence[TableSchema]] = _nothing
    """Further tables that it is made from, by what the job asks for."""
    more_settings: Callable[[JobConfig], Mapping[str, object]] = lambda _: {}
    """Further settings that it depends on."""
    is_wanted: Callable[[JobConfig], bool] = lambda _: True
    """Whether a job has this table; an earlier one is deleted where it has not."""
    check: Callable[[JobConfig, Inputs, TableStore], object] = _nothing
    """Checks job, inputs and tables, before the table is made; raises InputError."""
    make: Callable[[Evaluation, StageProgress], Iterable[pl.DataFrame]] | None = None
    """Returns the parts of its table; None: other stages make it."""
    notes: Callable[[Evaluation], Iterable[str]] = _nothing
    """Lines that are sealed with the table, and shown below the report."""
    shows: Sequence[TableSchema] = ()
    """Further tables that it is shown from."""
    is_optional: bool = False
    """A finished job may lack these tables, so that nobody is told."""
    show: Callable[[View], Iterable[Part]] = _nothing
    """A dataset -> what is shown of it, in reading order."""
    show_all: Callable[[Results], Iterable[Part]] = _nothing
    """All datasets -> what is shown of them."""
    group: str = ""
    """Heading under which the page folds its tables and figures; "": they are not folded."""
    section: str = "datasets"
    """Of the parts of ``show_all``: a key of `SECTIONS`."""

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        is_shown = self.show is not _nothing or self.show_all is not _nothing
        return (*([self.schema] if self.schema and is_shown else ()), *self.shows)


SECTIONS = {"datasets": "All datasets", "published": "Published tables", "costs": "Requests and costs"}
"""Sections of a report after those of its datasets, and their titles."""


class Evaluation:
    """Tables and columns that analyses of a job are made of; each is read or computed at its first use."""

    def __init__(self, config: JobConfig, inputs: Inputs, tables: TableStore) -> None:
        self.config, self.inputs, self.tables = config, inputs, tables
        self.settings: Settings = settings_of(config, inputs.clusters if inputs.clusters.height else None)
        self._known: dict[Callable[..., Any], Any] = {}

    def once(self, make: Callable[[Evaluation], T]) -> T:
        """Return what a function makes of this evaluation; it is called once."""
        if make not in self._known:
            self._known[make] = make(self)
        return cast(T, self._known[make])

    @functools.cached_property
    def labels(self) -> pl.DataFrame:
        return self.tables.read(LABELS)

    @functools.cached_property
    def utility(self) -> pl.DataFrame:
        return self.tables.read(UTILITY)

    @functools.cached_property
    def applicable(self) -> dict[str, pl.Series]:
        """Annotator -> the query_ids to which it applies."""
        evidence = evidence_of(self.inputs)
        return {name: applicable_queries(name, evidence)["query_id"] for name in self.config.annotators}

    @functools.cached_property
    def eligible(self) -> dict[str, pl.DataFrame]:
        """Annotator -> its `eligible_questions`."""
        samples = {name: sampled_queries(self.config, name, self.inputs.queries) for name in self.applicable}
        return {
            name: eligible_questions(
                name,
                queries.filter(pl.col("query_id").is_in(self.applicable[name].implode())),
                self.labels,
                self.utility,
            )
            for name, queries in samples.items()
        }


def eligible_questions(
    annotator: str, queries: pl.DataFrame, labels: pl.DataFrame, utility: pl.DataFrame
) -> pl.DataFrame:
    """Return the questions that an annotator was asked about, each with reader and score as its labels have them.

    A question without documents has no labels, but is asked about too: its reader is the one of its dataset.
    ``queries`` are those to which it applies and about which its models were asked. Columns query_id, reader, score.
    """
    fills, roles = annotator_named(annotator).fills, annotator_named(annotator).roles
    score = pl.col("score") if "score" in fills else pl.lit("")
    if "reader" not in fills:
        return queries.select("query_id", reader=pl.lit(""), score=score)
    sources = [labels.filter(annotator=annotator), *([utility] if "reader" in roles else [])]
    readers = pl.concat(source.select("query_id", "reader").unique() for source in sources)
    of_datasets = readers.join(queries, on="query_id").select("dataset", "reader").unique()
    return queries.join(of_datasets, on="dataset", maintain_order="left").select(
        "query_id", "reader", score=score
    )


def columns_of(evaluation: Evaluation) -> list[DatasetColumns]:
    """Return the values of lists and the utilities, by dataset."""
    values = evaluation.tables.read_parts(PER_QUERY)
    return by_dataset(values, evaluation.utility, evaluation.inputs.queries, evaluation.settings)


def estimated(evaluation: Evaluation) -> list[DatasetColumns]:
    """Return the columns of every dataset, with the estimates of an extension if the job asks for one that has any."""
    ways = [extension.estimates for extension in requested(evaluation.config) if extension.estimates]
    return ways[0](evaluation) if ways else evaluation.once(columns_of)


def per_dataset(
    make: Callable[..., pl.DataFrame],
    columns: Callable[[Evaluation], Sequence[object]] = columns_of,
    *more: Callable[[Evaluation], object],
) -> Callable[[Evaluation, StageProgress], Iterable[pl.DataFrame]]:
    """Return how a table is made dataset by dataset.

    ``make`` takes one dataset's columns, what ``more`` gives, and the settings, and returns rows of the table.
    """

    def parts(evaluation: Evaluation, at: StageProgress) -> Iterable[pl.DataFrame]:
        arguments = [evaluation.once(one) for one in more]
        for dataset in at.each(evaluation.once(columns), "datasets"):
            yield make(dataset, *arguments, evaluation.settings)

    return parts


@dataclass(frozen=True, kw_only=True)
class Results:
    """Sealed tables of a finished job, and how they were made."""

    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """Its sealed tables, by name."""
    configs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The settings in their manifests, by name; with ``notes``."""
    stages: Sequence[Mapping[str, Any]] = ()
    """Manifests of the inference stages: ``stage``, ``counts``, ``summary`` and more."""
    missing: tuple[str, ...] = ()
    """One line for each table or manifest that is missing or was changed after sealing."""
    rankings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Dataset -> its runs, best first by the rule of the verdict."""

    def __getitem__(self, schema: TableSchema) -> pl.DataFrame:
        """Return a table; one that is missing is empty."""
        return self.tables.get(schema.name, schema.empty())

    def config(self, schema: TableSchema) -> Mapping[str, Any]:
        """Return the settings that a table was made with; empty if they are not known."""
        return self.configs.get(schema.name, {})

    @property
    def runs(self) -> list[str]:
        """Runs by their mean rank over the datasets."""
        return by_mean_rank(self.rankings.values())

    @property
    def notes(self) -> list[str]:
        """Notes on the inputs, the cut-offs, the labels, the outputs and the files that were not written."""
        return [note for config in self.configs.values() for note in config.get("notes", ())]

    @property
    def reader(self) -> Mapping[str, Any]:
        """Settings of the reader that affect its outputs, such as ``kind`` and ``model``."""
        return self.config(LABELS).get("reader") or self.config(UTILITY).get("reader") or {}

    @property
    def confidence(self) -> float:
        """Coverage of the intervals; of a job that does not say, the default of the key."""
        return float(self.configs.get("means", {}).get("confidence") or JobConfig.confidence)

    @property
    def interval(self) -> str:
        """Name of the intervals, such as ``95% interval``."""
        return f"{self.confidence:.0%} interval"

    @property
    def alpha(self) -> float:
        return 1 - self.confidence

    @property
    def threshold(self) -> float | None:
        """Graded labels of at least this count as useful (None: .5)."""
        return self.config(PER_QUERY).get("threshold")


@dataclass(frozen=True, kw_only=True)
class View:
    """One dataset of a finished job."""

    results: Results
    dataset: str
    runs: Sequence[str]
    """Its runs, best first."""
    scored: Sequence[str] = ()
    """Those with any score, best first; figures show `shown`."""
    standing: Standing | None = None
    """Which run leads, and what is known of the others; None without any utility."""
    is_only: bool = False
    """Whether the job has no other dataset."""

    @property
    def shown(self) -> Sequence[str]:
        """The runs in figures: more lines are hard to distinguish."""
        return self.scored[:MAX_RUNS]

    @property
    def color_names(self) -> tuple[str, ...]:
        """These in the order of their colors, the same in all datasets that show the same runs."""
        return (*sorted(self.shown[:MAX_LABELLED]), *sorted(self.shown[MAX_LABELLED:]))

    def not_shown(self, most: int = MAX_RUNS) -> str:
        """Return a note on the runs that a figure shows, if these are not all."""
        num_runs = len(self.scored)
        text = f" The best {most} of {num_runs} runs by utility; the tables have all."
        return text if num_runs > most else ""

    def rows(self, schema: TableSchema) -> pl.DataFrame:
        table = self.results[schema]
        if "dataset" in schema.columns.names:
            return table.filter(dataset=self.dataset)
        queries = self.results[QUERIES].filter(dataset=self.dataset).select("query_id")
        return table.join(queries, on="query_id", how="semi", maintain_order="left")

    def about(self, kind: str, title: str, *words: object) -> dict[str, Any]:
        """Return name, title and dataset of a part, as fields of `Table` and `Figure`."""
        return about(self.dataset, kind, title, *words)
