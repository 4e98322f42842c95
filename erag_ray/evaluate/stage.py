"""Sealed LABELS and UTILITY -> PER_QUERY, MEANS, CORRELATIONS and all other results, a stage each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

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

OF_LABELS: Mapping[TableSchema, Sequence[str]] = {
    PER_QUERY: ("depths", "measures", "cutoffs", "threshold", "ideals"),
}
"""Tables made from labels, and the settings that each depends on."""
MakeTable = Callable[[Sequence[DatasetColumns], Settings], pl.DataFrame]
MakeSliced = Callable[[Sequence[DatasetColumns], pl.DataFrame, Settings], pl.DataFrame]
OF_VALUES: Mapping[TableSchema, tuple[MakeTable, Sequence[str]]] = {
    MEANS: (means, ("num_resamples", "confidence", "seed")),
    CORRELATIONS: (
        correlations,
        ("statistics", "num_resamples", "confidence", "num_permutations", "seed"),
    ),
    COMPARISONS: (comparisons, ("confidence",)),
    CONTRASTS: (contrasts, ("statistics", "num_resamples", "confidence", "seed")),
    BEST_DEPTHS: (best_depths, ("confidence",)),
    AUXILIARY_MEANS: (auxiliary_means, ("num_resamples", "confidence", "seed")),
}
"""Tables made from values of lists and utility, how, and the settings that each depends on."""
WITH_ESTIMATES = (MEANS, COMPARISONS, AUXILIARY_MEANS)
"""Those in which an auxiliary label stands in for what the reader was not asked."""
OF_CELLS: Mapping[TableSchema, tuple[MakeTable, Sequence[str]]] = {
    CELL_COMPARISONS: (cell_comparisons, ("confidence",)),
    COMPLEMENTS: (complements, ("confidence",)),
}
"""Tables made from cells, as `OF_VALUES`."""
OF_SLICES: Mapping[TableSchema, tuple[MakeSliced, Sequence[str]]] = {
    CELL_SHARES: (cell_shares, ("slices", "confidence")),
    SLICE_MEANS: (slice_means, ("slices", "num_resamples", "confidence", "seed")),
    SLICE_COMPARISONS: (slice_comparisons, ("slices", "confidence")),
}
"""Tables made from cells (CELL_SHARES) or from values and utility, by slice too; as `OF_VALUES`."""
SOURCES: Mapping[TableSchema, Sequence[TableSchema]] = {
    **dict.fromkeys(OF_LABELS, (LABELS, QUERIES, PROVENANCE, RUNS)),
    **dict.fromkeys(OF_VALUES, (PER_QUERY, UTILITY, QUERIES)),
    CELLS: (LABELS, UTILITY, RUNS),
    **dict.fromkeys(OF_CELLS, (CELLS, QUERIES)),
    CELL_SHARES: (CELLS, SLICES, QUERIES),
    **dict.fromkeys((SLICE_MEANS, SLICE_COMPARISONS), (PER_QUERY, UTILITY, CELLS, SLICES, QUERIES)),
}
"""Each result, and the tables that it is made from."""
RESULTS = tuple(schema for schema in SOURCES if schema != AUXILIARY_MEANS)
"""Tables that evaluation always makes of labels and utility, in the order in which it makes them."""


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
    wanted = [*RESULTS, *([AUXILIARY_MEANS] if config.auxiliary else [])]
    same = [schema.name for schema in wanted if not evaluation.make(schema)]
    if not config.auxiliary:
        tables.folder.delete_folder(AUXILIARY_MEANS.name)
    if same:
        say(f"{', '.join(same)}: as sealed before")


class _Evaluation:
    """The tables that follow from LABELS and UTILITY; each is made only where it does not stand there already."""

    def __init__(self, config: JobConfig, inputs: Inputs, tables: TableStore) -> None:
        self.config, self.inputs, self.tables = config, inputs, tables
        self.settings = settings_of(config)
        with stage_progress("loading labels", show=config.progress):
            self.labels, self.used = tables.read(LABELS), tables.read(UTILITY)

    def make(self, schema: TableSchema) -> bool:
        """Make and seal a table; return False where it is current."""
        keys = self._keys(schema)
        names = list(self.settings.statistics) if "statistics" in keys else []
        if schema in OF_LABELS:
            measures = self.settings.measures or ()
            names += [*self.config.annotators, *scores_of(self.inputs.queries), *measures]
        with stage_progress(schema.name, show=self.config.progress) as at:
            stage = Stage(
                name=schema.name,
                tables=[schema],
                settings={key: getattr(self.settings, key) for key in keys} | self._samples(schema),
                sources=digests(self.tables, self._sources(schema)),
                names=names,
                make=functools.partial(self._make, schema, at),
            )
            return ensure(stage, self.tables)

    def _sources(self, schema: TableSchema) -> Sequence[TableSchema]:
        of_facts = [FACT_LABELS] if schema == PER_QUERY and self._uses_facts else []
        return [*SOURCES[schema], *of_facts]

    def _samples(self, schema: TableSchema) -> dict[str, object]:
        """Return the samples that questions without documents depend on, of which LABELS know nothing."""
        return sample_settings(self.config) if schema in OF_LABELS else {}

    @property
    def _uses_facts(self) -> bool:
        return uses(self.config.annotators, "facts")

    def _make(self, schema: TableSchema, at: StageProgress, append: Append) -> Mapping[str, object]:
        for part in self._parts(schema, at):
            append(schema, part)
        if schema == AUXILIARY_MEANS:
            return {"notes": list(auxiliary_notes(self._estimated_columns, str(self.settings.auxiliary)))}
        return {"notes": evaluation_notes(self.config)} if schema == PER_QUERY else {}

    def _keys(self, schema: TableSchema) -> Sequence[str]:
        """The settings that a table depends on."""
        if schema == CELLS:
            return ("threshold",)
        makers = {**OF_VALUES, **OF_CELLS, **OF_SLICES}
        keys = OF_LABELS[schema] if schema in OF_LABELS else makers[schema][1]
        return [*keys, "auxiliary"] if schema in WITH_ESTIMATES and self.settings.auxiliary else keys

    def _parts(self, schema: TableSchema, at: StageProgress) -> Iterable[pl.DataFrame]:
        if schema == CELLS:
            eligible = self._eligible.get("erag", _NONE_ELIGIBLE)
            return [cells(self.labels, self.used, self.inputs.runs, eligible, self.settings.threshold)]
        if schema in OF_LABELS:
            arguments = self.labels, self.inputs.runs, self._eligible, self.inputs.queries, self.settings
            fact_labels = self.tables.read(FACT_LABELS) if self._uses_facts else None
            return at.each(per_query_parts(*arguments, fact_labels), "parts")
        is_of_cells = schema in OF_CELLS or schema == CELL_SHARES
        datasets = self._cell_columns if is_of_cells else self._columns
        if schema in WITH_ESTIMATES:
            datasets = self._estimated_columns
        parts = [self._part(schema, one) for one in at.each(datasets, "datasets")]
        return [_one_table(schema, parts)]

    def _part(self, schema: TableSchema, dataset: DatasetColumns) -> pl.DataFrame:
        """A table's rows of one dataset."""
        if schema in OF_SLICES:
            return OF_SLICES[schema][0]([dataset], self._slices, self.settings)
        return {**OF_VALUES, **OF_CELLS}[schema][0]([dataset], self.settings)

    @functools.cached_property
    def _applicable(self) -> dict[str, pl.Series]:
        evidence = evidence_of(self.inputs)
        return {name: applicable_queries(name, evidence)["query_id"] for name in self.config.annotators}

    @functools.cached_property
    def _eligible(self) -> dict[str, pl.DataFrame]:
        samples = {name: sampled_queries(self.config, name, self.inputs.queries) for name in self._applicable}
        return {
            name: eligible_questions(
                name, queries.filter(_is_in(self._applicable[name])), self.labels, self.used
            )
            for name, queries in samples.items()
        }

    @functools.cached_property
    def _columns(self) -> list[DatasetColumns]:
        values = self.tables.read_parts(PER_QUERY)
        return by_dataset(values, self.used, self.inputs.queries, self.settings)

    @functools.cached_property
    def _estimated_columns(self) -> list[DatasetColumns]:
        auxiliary = self.settings.auxiliary
        if auxiliary is None:
            return self._columns
        eligible = {name: frame["query_id"] for name, frame in self._eligible.items()}
        eligible[END_TO_END] = self.used["query_id"].unique()
        return [with_estimates(dataset, auxiliary, self._applicable, eligible) for dataset in self._columns]

    @functools.cached_property
    def _cells(self) -> pl.DataFrame:
        return self.tables.read(CELLS)

    @functools.cached_property
    def _cell_columns(self) -> list[DatasetColumns]:
        return cell_columns(self._cells, self.inputs.queries, self.settings)

    @functools.cached_property
    def _slices(self) -> pl.DataFrame:
        return all_slices(self.inputs.slices, self._cells, self.settings.slices)


_NONE_ELIGIBLE = pl.DataFrame(schema={"query_id": pl.String, "reader": pl.String, "score": pl.String})


def _is_in(query_ids: pl.Series) -> pl.Expr:
    return pl.col("query_id").is_in(query_ids.implode())


def _one_table(schema: TableSchema, parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat([as_frame(schema.empty()), *parts])


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
