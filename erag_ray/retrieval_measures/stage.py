"""Compute RETRIEVAL_MEASURES of the runs of a retrieval, seal them, and return them as report tables."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import polars as pl

from erag_ray.annotators import Evidence, annotate, applicable_queries
from erag_ray.config import RetrieveConfig
from erag_ray.datasets import LoadedQueries
from erag_ray.files import Diagnostics
from erag_ray.progress import stage_progress
from erag_ray.report import Table
from erag_ray.retrieval_measures.measures import hit_values, mean_retrieval_measures, page_values
from erag_ray.retrieval_measures.table import retrieval_measures_tables
from erag_ray.retrieve.run import MadeRun, read_run
from erag_ray.retrieve.stage import load_questions, passages_of
from erag_ray.runs import load_corpus
from erag_ray.schemas import RETRIEVAL_MEASURES
from erag_ray.stages import Append, Stage, ensure
from erag_ray.store import TableStore, as_frame, file_stamp

SETTINGS = ("query_format", "question_fields", "dataset", "filters", "num_queries", "seed", "depth")
CUTOFFS = (1, 5, 20, 100)
HITS = {"provenance": "gold_page", "contains_answer_dpr": "contains_answer"}


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
    runs = pl.concat(map(read_run, made_runs)).join(loaded.queries, on="query_id", how="semi")
    none = pl.Series([], dtype=pl.String)
    corpus = load_corpus(passages_of(config), runs, diagnostics, doc_ids=none, page_ids=none)
    diagnostics.raise_errors()
    cutoffs = [cutoff for cutoff in CUTOFFS if cutoff <= config.depth]
    return _retrieval_measures(runs, [run.run_id for run in made_runs], loaded, corpus, cutoffs)


def _retrieval_measures(
    runs: pl.DataFrame,
    names: Sequence[str],
    loaded: LoadedQueries,
    corpus: pl.DataFrame,
    cutoffs: Sequence[int],
) -> pl.DataFrame:
    evidence = Evidence(
        pairs=runs.select("query_id", "doc_id").unique(),
        queries=loaded.queries,
        corpus=corpus,
        provenance=loaded.provenance,
    )
    labels = {measure: as_frame(annotate(name, evidence)) for name, measure in HITS.items()}
    queries_of = {measure: applicable_queries(name, evidence) for name, measure in HITS.items()}
    labels["gold_passage"] = loaded.gold.select("query_id", "doc_id", label=pl.lit(1.0))
    queries_of["gold_passage"] = loaded.queries.join(loaded.gold, on="query_id", how="semi")
    queries_of["kilt_recall"] = loaded.queries.join(loaded.page_sets, on="query_id", how="semi")
    values = [page_values(runs, corpus, loaded.page_sets, cutoffs)]
    for measure, judged in labels.items():
        hits = hit_values(judged, runs, cutoffs).with_columns(measure=pl.lit(measure))
        values.append(hits.select(values[0].columns))
    counted = [_counted(rows, measure, cutoffs) for measure, rows in queries_of.items()]
    counted.append(_counted(queries_of["kilt_recall"], "kilt_r_precision", [0]))
    return mean_retrieval_measures(pl.concat(values), pl.concat(counted), names)


def _counted(queries: pl.DataFrame, measure: str, cutoffs: Sequence[int]) -> pl.DataFrame:
    cuts = pl.DataFrame({"cutoff": pl.Series(cutoffs, dtype=pl.Int32)})
    return queries.select("dataset", "query_id", measure=pl.lit(measure)).join(cuts, how="cross")
