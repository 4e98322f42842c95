"""Sealed LABELS and UTILITY -> PER_QUERY, MEANS, CORRELATIONS and all other results, a stage each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from erag_ray.annotators import applicable_queries, uses
from erag_ray.config import JobConfig
from erag_ray.errors import InputError
from erag_ray.evaluate.auxiliary import auxiliary_means, auxiliary_notes, with_estimates
from erag_ray.evaluate.cells import cell_columns, cell_comparisons, cell_shares, cells, complements
from erag_ray.evaluate.columns import DatasetColumns, by_dataset
from erag_ray.evaluate.common import IDEALS, OWN_LIST, Settings, depths_of
from erag_ray.evaluate.comparisons import best_depths, comparisons, contrasts
from erag_ray.evaluate.lists import eligible_questions, per_query_parts
from erag_ray.evaluate.slices import all_slices, slice_comparisons, slice_means
from erag_ray.evaluate.statistics import correlations, means
from erag_ray.files import Diagnostics
from erag_ray.inputs import (
    SAMPLE_KEYS,
    Inputs,
    check_evaluation,
    end_to_end_settings,
    evaluation_notes,
    evidence_of,
    label_settings,
    sample_settings,
    sampled_queries,
    scores_of,
)
from erag_ray.logs import say
from erag_ray.progress import StageProgress, stage_progress
from erag_ray.runs import END_TO_END
from erag_ray.schemas import (
    AUXILIARY_MEANS,
    BEST_DEPTHS,
    CELL_COMPARISONS,
    CELL_SHARES,
    CELLS,
    COMPARISONS,
    COMPLEMENTS,
    CONTRASTS,
    CORRELATIONS,
    FACT_LABELS,
    LABELS,
    MEANS,
    PER_QUERY,
    PROVENANCE,
    QUERIES,
    RUNS,
    SLICE_COMPARISONS,
    SLICE_MEANS,
    SLICES,
    UTILITY,
    TableSchema,
)
from erag_ray.stages import Append, Stage, digests, ensure, stale
from erag_ray.store import TableStore, as_frame

Parts = Iterable[pl.DataFrame]
RESAMPLED, TESTED = ("num_resamples", "confidence", "seed"), ("confidence",)
OF_COLUMNS = (PER_QUERY, UTILITY, QUERIES)
OF_SLICES = (*OF_COLUMNS, CELLS, SLICES)


@dataclass(frozen=True)
class Analysis:
    """A result that follows from sealed tables.

    Attributes:
        schema: of its table.
        sources: the tables that it is made from.
        settings: names of the `Settings` that it depends on.
        make: -> the parts of its table.
        is_predicted: an auxiliary label stands in for what the reader was not asked.
    """

    schema: TableSchema
    sources: Sequence[TableSchema]
    settings: Sequence[str]
    make: Callable[[_Evaluation, StageProgress], Parts]
    is_predicted: bool = False


def _by_dataset(
    make: Callable[..., pl.DataFrame], columns: str = "columns", *more: str
) -> Callable[[_Evaluation, StageProgress], Parts]:
    """Return how a table is made dataset by dataset, of columns and further attributes of the evaluation."""

    def parts(made_from: _Evaluation, at: StageProgress) -> Parts:
        arguments = [getattr(made_from, name) for name in (*more, "settings")]
        for dataset in at.each(getattr(made_from, columns), "datasets"):
            yield make([dataset], *arguments)

    return parts


def _per_query(made_from: _Evaluation, at: StageProgress) -> Parts:
    frames = made_from.labels, made_from.inputs.runs, made_from.eligible, made_from.inputs.queries
    facts = made_from.tables.read(FACT_LABELS) if made_from.uses_facts else None
    return at.each(per_query_parts(*frames, made_from.settings, facts), "parts")


def _cells(made_from: _Evaluation, at: StageProgress) -> Parts:
    eligible = made_from.eligible.get("erag", _NONE_ELIGIBLE)
    frames = made_from.labels, made_from.utility, made_from.inputs.runs
    return [cells(*frames, eligible, made_from.settings.threshold)]


ANALYSES = (
    Analysis(
        PER_QUERY,
        (LABELS, QUERIES, PROVENANCE, RUNS),
        ("depths", "measures", "cutoffs", "threshold", "ideals"),
        _per_query,
    ),
    Analysis(MEANS, OF_COLUMNS, RESAMPLED, _by_dataset(means, "predicted"), is_predicted=True),
    Analysis(
        CORRELATIONS, OF_COLUMNS, ("statistics", "num_permutations", *RESAMPLED), _by_dataset(correlations)
    ),
    Analysis(COMPARISONS, OF_COLUMNS, TESTED, _by_dataset(comparisons, "predicted"), is_predicted=True),
    Analysis(CONTRASTS, OF_COLUMNS, ("statistics", *RESAMPLED), _by_dataset(contrasts)),
    Analysis(BEST_DEPTHS, OF_COLUMNS, TESTED, _by_dataset(best_depths)),
    Analysis(CELLS, (LABELS, UTILITY, RUNS), ("threshold",), _cells),
    Analysis(CELL_COMPARISONS, (CELLS, QUERIES), TESTED, _by_dataset(cell_comparisons, "cell_columns")),
    Analysis(COMPLEMENTS, (CELLS, QUERIES), TESTED, _by_dataset(complements, "cell_columns")),
    Analysis(
        CELL_SHARES,
        (CELLS, SLICES, QUERIES),
        ("slices", *TESTED),
        _by_dataset(cell_shares, "cell_columns", "slices"),
    ),
    Analysis(SLICE_MEANS, OF_SLICES, ("slices", *RESAMPLED), _by_dataset(slice_means, "columns", "slices")),
    Analysis(
        SLICE_COMPARISONS,
        OF_SLICES,
        ("slices", *TESTED),
        _by_dataset(slice_comparisons, "columns", "slices"),
    ),
    Analysis(
        AUXILIARY_MEANS, OF_COLUMNS, RESAMPLED, _by_dataset(auxiliary_means, "predicted"), is_predicted=True
    ),
)
"""All results, in the order in which they are made; a new one is a function and a line here."""
RESULTS = tuple(analysis.schema for analysis in ANALYSES if analysis.schema != AUXILIARY_MEANS)
"""Tables that evaluation always makes of labels and utility."""


def settings_of(config: JobConfig) -> Settings:
    """The part of a config that evaluation needs."""
    return Settings(
        depths=depths_of(config.depths, config.depth),
        measures=config.measures,
        cutoffs=config.cutoffs,
        threshold=config.threshold,
        statistics=config.statistics,
        num_resamples=config.num_resamples,
        confidence=config.confidence,
        num_permutations=config.num_permutations,
        seed=config.seed,
        slices=tuple(dict.fromkeys(config.slices)),
        ideals=(OWN_LIST,) if len(config.searched_corpora) > 1 else IDEALS,
        auxiliary=config.auxiliary,
    )


def evaluate(config: JobConfig, inputs: Inputs) -> None:
    """Make all of `RESULTS` from the sealed LABELS and UTILITY, and AUXILIARY_MEANS where a label is auxiliary.

    Raises:
        InputError: one of them is not sealed, or was made with other settings or from other inputs, or the config asks
            for what cannot be.
    """
    diagnostics = Diagnostics()
    check_evaluation(config, scores_of(inputs.queries), diagnostics)
    diagnostics.raise_errors()
    tables = TableStore(config.out)
    check_made(tables, LABELS, "annotate", label_settings(config, inputs.datasets))
    check_made(tables, UTILITY, "end_to_end", end_to_end_settings(config, inputs.datasets))
    evaluation = _Evaluation(config, inputs, tables)
    wanted = [one for one in ANALYSES if config.auxiliary or one.schema in RESULTS]
    same = [analysis.schema.name for analysis in wanted if not evaluation.make(analysis)]
    if not config.auxiliary:
        tables.folder.delete_folder(AUXILIARY_MEANS.name)
    if same:
        say(f"{', '.join(same)}: as sealed before")


class _Evaluation:
    """The tables and columns that results are made from; each is made only where it does not stand there already."""

    def __init__(self, config: JobConfig, inputs: Inputs, tables: TableStore) -> None:
        self.config, self.inputs, self.tables = config, inputs, tables
        self.settings = settings_of(config)
        with stage_progress("loading labels", show=config.progress):
            self.labels, self.utility = tables.read(LABELS), tables.read(UTILITY)

    def make(self, analysis: Analysis) -> bool:
        """Make and seal a table; return False where it is current."""
        schema, keys, sources = analysis.schema, [*analysis.settings], [*analysis.sources]
        names = list(self.settings.statistics) if "statistics" in keys else []
        samples: dict[str, object] = {}
        if schema == PER_QUERY:
            names += [
                *self.config.annotators,
                *scores_of(self.inputs.queries),
                *(self.settings.measures or ()),
            ]
            sources += [FACT_LABELS] * self.uses_facts
            # questions without documents depend on the samples, of which LABELS know nothing
            samples = sample_settings(self.config)
        if analysis.is_predicted and self.settings.auxiliary:
            keys.append("auxiliary")
        with stage_progress(schema.name, show=self.config.progress) as at:
            stage = Stage(
                name=schema.name,
                tables=[schema],
                settings={key: getattr(self.settings, key) for key in keys} | samples,
                sources=digests(self.tables, sources),
                names=names,
                make=functools.partial(self._sealed, analysis, at),
            )
            return ensure(stage, self.tables)

    def _sealed(self, analysis: Analysis, at: StageProgress, append: Append) -> Mapping[str, object]:
        parts = analysis.make(self, at)
        if analysis.schema != PER_QUERY:
            # values of lists are many; other tables are sealed as one part
            parts = [pl.concat([as_frame(analysis.schema.empty()), *parts])]
        for part in parts:
            append(analysis.schema, part)
        if analysis.schema == AUXILIARY_MEANS:
            return {"notes": list(auxiliary_notes(self.predicted, str(self.settings.auxiliary)))}
        return {"notes": evaluation_notes(self.config)} if analysis.schema == PER_QUERY else {}

    @property
    def uses_facts(self) -> bool:
        return uses(self.config.annotators, "facts")

    @functools.cached_property
    def _applicable(self) -> dict[str, pl.Series]:
        evidence = evidence_of(self.inputs)
        return {name: applicable_queries(name, evidence)["query_id"] for name in self.config.annotators}

    @functools.cached_property
    def eligible(self) -> dict[str, pl.DataFrame]:
        """Annotator -> its `eligible_questions`."""
        samples = {name: sampled_queries(self.config, name, self.inputs.queries) for name in self._applicable}
        return {
            name: eligible_questions(
                name, queries.filter(_is_in(self._applicable[name])), self.labels, self.utility
            )
            for name, queries in samples.items()
        }

    @functools.cached_property
    def columns(self) -> list[DatasetColumns]:
        """The values of lists and the utilities, by dataset."""
        values = self.tables.read_parts(PER_QUERY)
        return by_dataset(values, self.utility, self.inputs.queries, self.settings)

    @functools.cached_property
    def predicted(self) -> list[DatasetColumns]:
        """The same with the estimates of an auxiliary label, if there is one."""
        auxiliary = self.settings.auxiliary
        if auxiliary is None:
            return self.columns
        eligible = {name: frame["query_id"] for name, frame in self.eligible.items()}
        eligible[END_TO_END] = self.utility["query_id"].unique()
        return [with_estimates(dataset, auxiliary, self._applicable, eligible) for dataset in self.columns]

    @functools.cached_property
    def _cells(self) -> pl.DataFrame:
        return self.tables.read(CELLS)

    @functools.cached_property
    def cell_columns(self) -> list[DatasetColumns]:
        """The cells, by dataset."""
        return cell_columns(self._cells, self.inputs.queries, self.settings)

    @functools.cached_property
    def slices(self) -> pl.DataFrame:
        """SLICES of all slices of the job."""
        return all_slices(self.inputs.slices, self._cells, self.settings.slices)


_NONE_ELIGIBLE = pl.DataFrame(schema={"query_id": pl.String, "reader": pl.String, "score": pl.String})


def _is_in(query_ids: pl.Series) -> pl.Expr:
    return pl.col("query_id").is_in(query_ids.implode())


def check_made(tables: TableStore, schema: TableSchema, job: str, wanted: Mapping[str, object]) -> None:
    """Check that a table is sealed, made with the settings ``wanted`` and from tables that have not changed.

    Raises:
        InputError: it is not; ``job`` is the one that makes it.
    """
    folder = tables.folder.root
    if not tables.is_sealed(schema):
        raise InputError([f"{folder}: no sealed {schema.name}; run jobs/{job}.py or jobs/compare.py first"])
    manifest = tables.manifest(schema)
    # a table may be of a sample of the questions where this config names none
    keys = dict.fromkeys([*wanted, *SAMPLE_KEYS])
    other = [key for key in keys if manifest["config"].get(key) != wanted.get(key)]
    other += stale(manifest, tables)
    if other:
        text = f"{folder}: {schema.name} were made with another {', '.join(other)}; run jobs/{job}.py again"
        raise InputError([f"{text} (cached responses are used again)"])
