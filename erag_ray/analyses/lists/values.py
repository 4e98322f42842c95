"""PER_QUERY, of LABELS and RUNS: every measure of every list, by every annotator; other tables are made of it."""

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from erag_ray.analyses.columns import PER_QUERY
from erag_ray.analyses.contract import Analysis, Evaluation
from erag_ray.analyses.lists.facts import fact_columns
from erag_ray.analyses.lists.matrices import Flags, Judged, judged
from erag_ray.analyses.settings import ANY, OWN_LIST, POOL, Floats, ListValues, Settings
from erag_ray.annotators import annotator_named, kind_of_labels, requested_measures, uses
from erag_ray.config.job import JobConfig
from erag_ray.inputs.settings import evaluation_notes, sample_settings
from erag_ray.measures.lists import MEASURES, Kind, Lists, Measure, check_measures, compute_all, list_ideal
from erag_ray.store.schemas import FACT_LABELS, LABELS, PROVENANCE, QUERIES, RUNS, TableSchema
from erag_ray.support.numba_jit import in_threads
from erag_ray.support.progress import StageProgress
from erag_ray.support.registry import find

ROWS_PER_PART = 2_000_000


def per_query_parts(
    labels: pl.DataFrame,
    runs: pl.DataFrame,
    eligible: Mapping[str, pl.DataFrame],
    queries: pl.DataFrame,
    settings: Settings,
    fact_labels: pl.DataFrame | None = None,
) -> Iterator[pl.DataFrame]:
    """PER_QUERY: every measure of every list, by every annotator; some columns of values after the other.

    A part has at most `ROWS_PER_PART` rows, or one value of each query. No key is in two of them. RUNS are the compared
    ones only: together they are the pool. LABELS are of every pair of them, for the queries that an annotator was asked
    about; queries that are not its `eligible_questions` have no values, not even 0 for lack of a list. Raise ValueError
    for a measure that needs binary labels, asked of graded ones without a threshold.
    """
    cut = runs.filter(pl.col("rank") <= max(settings.depths))
    lists = cut.partition_by("run_id", as_dict=True, include_key=False)
    of_runs = {str(run_id): documents for (run_id,), documents in lists.items()}
    of_group = ["reader", "score", "annotator"]
    parts = labels.partition_by(of_group, as_dict=True, include_key=False)
    named = [frame.with_columns(annotator=pl.lit(name)) for name, frame in eligible.items()]
    groups = pl.concat(named).partition_by(of_group, as_dict=True) if named else {}
    for key, questions in sorted(groups.items()):
        reader, score, annotator = key
        wanted = queries.join(questions, on="query_id", how="semi", maintain_order="left")
        # by what the labels are declared to be: those at hand may happen to be all 0 or 1
        kinds = {kind_of_labels(annotator, score) for score in wanted["score"].unique()}
        kind: Kind = "graded" if len(kinds) > 1 else next(iter(kinds), "binary")
        measures = requested_measures(annotator, settings.measures, kind, settings.threshold)
        check_measures(measures, kind, settings.threshold)
        columns = _columns(judged(of_runs, parts.get(key, labels.clear()), wanted), measures, settings)
        if annotator_named(annotator).uses_facts and fact_labels is not None:
            of_facts = fact_labels.filter(reader=reader, score=score)
            columns = itertools.chain(columns, fact_columns(of_facts, runs, wanted, settings))
        at_a_time = max(1, ROWS_PER_PART // max(1, wanted.height))
        while chunk := list(itertools.islice(columns, at_a_time)):
            yield _as_table(chunk, wanted["query_id"], dict(zip(of_group, key, strict=True)))


def _columns(labels: Judged, measures: Sequence[str], settings: Settings) -> Iterator[ListValues]:
    run_ids = sorted(labels.documents)
    for depth in settings.depths:
        pool = labels.pool(run_ids, depth) if POOL in settings.ideals else None
        work = functools.partial(_of_run, labels, measures, depth, pool, settings)
        for run_columns in in_threads(work, run_ids):
            yield from run_columns


def _of_run(
    judged: Judged,
    measures: Sequence[str],
    depth: int,
    pool: tuple[Floats, Flags] | None,
    settings: Settings,
    run_id: str,
) -> list[ListValues]:
    labels, lengths, judged_to = judged.matrix(run_id, depth)
    columns: list[ListValues] = []
    for ideal in settings.ideals:
        if ideal == OWN_LIST:
            base, whole = list_ideal(labels, lengths), judged_to >= depth
        else:
            assert pool is not None
            base, whole = Lists(labels=labels, lengths=lengths, ideal=pool[0]), pool[1]
        chosen = [name for name in measures if ideal == settings.ideals[0] or uses_ideal(name)]
        values_of = compute_all(chosen, base, settings.cutoffs_at(depth), settings.threshold)
        for (name, cutoff), values in values_of.items():
            # without an ideal only the documents down to the cut-off matter
            known, shown = (whole, ideal) if uses_ideal(name) else (judged_to >= cutoff, ANY)
            columns.append(((run_id, depth, name, cutoff, shown), np.where(known, values, np.nan)))
    return columns


def uses_ideal(name: str) -> bool:
    measure: Measure = find("measure", name, MEASURES)
    return measure.uses_ideal


def _as_table(columns: Sequence[ListValues], ids: pl.Series, constant: Mapping[str, str]) -> pl.DataFrame:
    """PER_QUERY of columns, one below the other."""
    schema = PER_QUERY.empty().select("run_id", "depth", "measure", "cutoff", "ideal").schema
    names = pl.DataFrame([name for name, _ in columns], schema=schema, orient="row")
    rows = np.repeat(np.arange(len(columns)), len(ids))
    values = np.concatenate([np.empty(0), *(column for _, column in columns)])
    table = names[rows].with_columns(
        query_id=ids[np.tile(np.arange(len(ids)), len(columns))],
        value=pl.Series(values).fill_nan(None),
        **{name: pl.lit(value) for name, value in constant.items()},
    )
    return table.select(PER_QUERY.columns.names)


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
