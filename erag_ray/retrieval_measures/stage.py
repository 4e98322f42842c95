"""Compute RETRIEVAL_MEASURES of the runs of a retrieval, seal them, and return them as report tables."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import polars as pl

from erag_ray.annotators import Evidence
from erag_ray.config import RetrieveConfig
from erag_ray.files import Diagnostics
from erag_ray.inputs import resolve_gold
from erag_ray.progress import stage_progress
from erag_ray.report import Table
from erag_ray.retrieval_measures.measures import LIST, hit_values, mean_retrieval_measures, page_values
from erag_ray.retrieval_measures.table import retrieval_measures_tables
from erag_ray.retrieve.run import MadeRun, read_run
from erag_ray.retrieve.stage import load_questions, passages_of
from erag_ray.runs import load_corpus, pairs
from erag_ray.schemas import RETRIEVAL_MEASURES, RUNS
from erag_ray.stages import Append, Stage, ensure
from erag_ray.store import TableStore, file_stamp

SETTINGS = ("query_format", "question_fields", "dataset", "filters", "num_queries", "seed", "depth")
CUTOFFS = (1, 5, 20, 100)
HITS = {
    "gold_passage": "provenance",
    "gold_page": "provenance",
    "contains_answer": "contains_answer_dpr",
}
"""Measure -> the annotator whose label a document within the cutoff has."""
GOLD_IDS = {"gold_passage": "doc_id", "gold_page": "page_id"}
"""Measure -> the column of PROVENANCE by which alone it judges."""


def find_retrieval_measures(config: RetrieveConfig, runs: Sequence[MadeRun]) -> list[Table]:
    """Return RETRIEVAL_MEASURES of the runs as report tables; recompute and seal them if they are not current.

    Args:
        config: the retrieval.
        runs: its runs.
    """
    tables = TableStore(config.out)
    files = [*config.queries, *config.qrels, *config.triviaqa_questions, *passages_of(config)]
    stage = Stage(
        name="retrieval measures",
        tables=[RETRIEVAL_MEASURES],
        settings={key: getattr(config, key) for key in SETTINGS},
        inputs={**{run.run_id: run.sha256 for run in runs}, **{path: file_stamp(path) for path in files}},
        make=functools.partial(_make, config, runs),
    )
    with stage_progress(stage.name, show=config.progress):
        ensure(stage, tables)
    return retrieval_measures_tables(tables.read(RETRIEVAL_MEASURES))


def _make(config: RetrieveConfig, runs: Sequence[MadeRun], append: Append) -> Mapping[str, object]:
    append(RETRIEVAL_MEASURES, _of_runs(config, runs))
    return {}


def _of_runs(config: RetrieveConfig, made_runs: Sequence[MadeRun]) -> pl.DataFrame:
    diagnostics = Diagnostics()
    loaded = load_questions(config, diagnostics)
    # a run may hold the lists of more questions
    entries = pl.concat(map(read_run, made_runs)).join(loaded.queries, on="query_id", how="semi")
    corpus = load_corpus(passages_of(config), entries, diagnostics, gold=loaded.provenance)
    diagnostics.raise_errors()
    loaded = resolve_gold(loaded, corpus, diagnostics)
    runs, cutoffs = entries.select(RUNS.columns.names), [cut for cut in CUTOFFS if cut <= config.depth]
    evidence = Evidence(
        pairs=pairs(runs), queries=loaded.queries, corpus=corpus, provenance=loaded.provenance
    )
    gold = {measure: evidence.provenance.drop_nulls(column) for measure, column in GOLD_IDS.items()}
    by_measure = {name: dataclasses.replace(evidence, provenance=rows) for name, rows in gold.items()}
    with_pages = loaded.queries.join(loaded.page_sets, on="query_id", how="semi")
    values = [page_values(runs, corpus, loaded.page_sets, cutoffs)]
    counted = [_counted(with_pages, "kilt_recall", cutoffs), _counted(with_pages, "kilt_r_precision", [0])]
    for measure, annotator in HITS.items():
        queries, hits = hit_values(annotator, by_measure.get(measure, evidence), runs, cutoffs)
        values.append(
            hits.select(*LIST, "cutoff", "value", measure=pl.lit(measure)).select(values[0].columns)
        )
        counted.append(_counted(queries, measure, cutoffs))
    return mean_retrieval_measures(pl.concat(values), pl.concat(counted), [run.run_id for run in made_runs])


def _counted(queries: pl.DataFrame, measure: str, cutoffs: Sequence[int]) -> pl.DataFrame:
    cuts = pl.DataFrame({"cutoff": pl.Series(cutoffs, dtype=pl.Int32)})
    return queries.select("dataset", "query_id", measure=pl.lit(measure)).join(cuts, how="cross")
