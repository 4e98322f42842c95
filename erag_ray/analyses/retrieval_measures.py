"""RETRIEVAL_MEASURES of runs without a reader: KILT's two measures of gold pages, and hits by cut-off.

KILT (``kilt/eval_retrieval.py``) ranks pages, not passages: the pages of a list are those of its passages, in order,
without repeats; passages without a page are passed over. Each output of a question has a page set, which is sufficient
evidence by itself.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from erag_ray.analyses.columns import PER_QUERY
from erag_ray.analyses.contract import Analysis, Results, View, eligible_questions
from erag_ray.analyses.lists.values import per_query_parts
from erag_ray.analyses.parts.model import Column, Format, Table, Value
from erag_ray.analyses.parts.shapes import crosstab, names
from erag_ray.analyses.settings import OWN_LIST, Settings
from erag_ray.annotators import Evidence, annotate, applicable_queries
from erag_ray.config.retrieval import RetrieveConfig
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.runs.entries import pairs
from erag_ray.data.runs.texts import load_corpus
from erag_ray.inputs.tables import resolve_gold
from erag_ray.retrieve.run import MadeRun, read_run
from erag_ray.retrieve.stage import load_questions, passages_of
from erag_ray.store.fingerprints import file_stamp
from erag_ray.store.schemas import RUNS, UTILITY, table_schema
from erag_ray.store.stages.stage import Append, Stage, ensure
from erag_ray.store.tables import TableStore
from erag_ray.support.logs import say
from erag_ray.support.progress import stage_progress

RETRIEVAL_MEASURES = table_schema(
    "retrieval_measures", "dataset* run_id* measure* cutoff* value? num_queries num_dropped"
)
"""Cutoff 0: the measure has no cutoff."""
LIST = ["run_id", "query_id"]
SETTINGS = ("query_format", "question_fields", "dataset", "filters", "num_queries", "seed", "depth")
CUTOFFS = (1, 5, 20, 100)
HITS = {"gold_passage": "provenance", "gold_page": "provenance", "contains_answer": "contains_answer_dpr"}
"""Measure -> the annotator whose label a document within the cutoff has."""
GOLD_IDS = {"gold_passage": "doc_id", "gold_page": "page_id"}
"""Measure -> the only column of PROVENANCE that it uses."""

NAMES = {
    "gold_passage": "gold passage",
    "gold_page": "gold page",
    "contains_answer": "contains answer",
    "kilt_recall": "recall of pages (KILT)",
    "kilt_r_precision": "R-precision of pages (KILT)",
}


def page_values(
    runs: pl.DataFrame, corpus: pl.DataFrame, page_sets: pl.DataFrame, cutoffs: Sequence[int]
) -> pl.DataFrame:
    """Return KILT's page measures of every run and question with a page set.

    ``kilt_r_precision`` (cutoff 0): of the R pages of an output, the share among the first R pages of the list; the
    best output counts. ``kilt_recall``: the share of distinct page sets that are complete among the first ``cutoff``
    points. A page outside all sets is one point; a set is one point, at the position of its last retrieved page.

    Page sets have the columns query_id, output, page_id, and the result has run_id, query_id, measure, cutoff, value
    (null: no document of the list has a page).
    """
    paged = runs.select(*LIST, "rank", "doc_id").join(corpus.select("doc_id", "page_id"), on="doc_id")
    first = paged.drop_nulls("page_id").group_by(*LIST, "page_id").agg(pl.col("rank").min())
    position = pl.col("rank").rank("ordinal").over(LIST).cast(pl.Int64)
    pages = first.select(*LIST, "page_id", position=position)
    grid = runs.select("run_id").unique().join(page_sets, how="cross")
    ranked = grid.join(pages, on=[*LIST, "page_id"], how="left")
    points = _points(ranked)
    values = pl.concat([_r_precision(ranked), *(_recall(points, cutoff) for cutoff in cutoffs)])
    judged = paged.group_by(LIST).agg(is_judged=pl.col("page_id").is_not_null().any())
    # a question without a list has no row here, and counts 0
    is_judged = pl.col("is_judged").fill_null(True)
    known = values.join(judged, on=LIST, how="left").with_columns(value=pl.when(is_judged).then("value"))
    return known.drop("is_judged")


def _r_precision(ranked: pl.DataFrame) -> pl.DataFrame:
    size = pl.col("page_id").n_unique()
    hits = (pl.col("position") <= size).fill_null(False).sum()
    best = ranked.group_by(*LIST, "output").agg(value=hits / size).group_by(LIST).agg(pl.col("value").max())
    return best.select(*LIST, measure=pl.lit("kilt_r_precision"), cutoff=pl.lit(0, pl.Int32), value="value")


def _points(ranked: pl.DataFrame) -> pl.DataFrame:
    """Return each distinct page set: whether it is complete, and its point in the list (KILT's get_rank)."""
    sets = ranked.group_by(*LIST, "output").agg(
        pages=pl.col("page_id").unique().sort(),
        last=pl.col("position").max(),
        is_whole=pl.col("position").is_not_null().all(),
    )
    distinct = sets.sort("output").unique([*LIST, "pages"], keep="first", maintain_order=True)
    # gold pages of any set, up to a position: they are not points themselves
    gold = ranked.drop_nulls("position").select(*LIST, last="position").unique()
    num_gold = gold.with_columns(num_gold=pl.col("last").rank("ordinal").over(LIST).cast(pl.Int64))
    ordered = distinct.join(num_gold, on=[*LIST, "last"], how="left").sort(
        *LIST, "last", "output", nulls_last=True
    )
    before = (pl.int_range(pl.len()).over(LIST) + 1).cast(pl.Int64)
    return ordered.with_columns(point=pl.col("last") - pl.col("num_gold") + before)


def _recall(points: pl.DataFrame, cutoff: int) -> pl.DataFrame:
    is_in = (pl.col("is_whole") & (pl.col("point") <= cutoff)).fill_null(False)
    share = points.group_by(LIST).agg(value=is_in.mean())
    return share.select(*LIST, measure=pl.lit("kilt_recall"), cutoff=pl.lit(cutoff, pl.Int32), value="value")


def hit_values(
    annotator: str, evidence: Evidence, runs: pl.DataFrame, cutoffs: Sequence[int]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the questions to which an annotator applies, and Success by its labels: what a comparison computes.

    These are QUERIES; and run_id, query_id, cutoff, value (null: a document within the cutoff is not judged).
    """
    queries = applicable_queries(annotator, evidence)
    labels, no_utility = pl.DataFrame(annotate(annotator, evidence)), UTILITY.empty()
    eligible = {annotator: eligible_questions(annotator, queries, labels, no_utility)}
    settings = Settings(depths=[max(cutoffs)], measures=["Success"], cutoffs=cutoffs, ideals=(OWN_LIST,))
    values = pl.concat([PER_QUERY.empty(), *per_query_parts(labels, runs, eligible, queries, settings)])
    return queries, values.select(*LIST, "cutoff", "value")


def mean_retrieval_measures(values: pl.DataFrame, counted: pl.DataFrame, runs: Sequence[str]) -> pl.DataFrame:
    """Return RETRIEVAL_MEASURES: means over the counted questions that are judged; one without a list counts 0.

    ``values`` are run_id, query_id, measure, cutoff, value (null: not judged), and the questions that a measure counts,
    per cutoff, measure, cutoff, dataset, query_id.
    """
    grid = counted.join(pl.DataFrame({"run_id": list(runs)}), how="cross")
    named = values.with_columns(is_listed=True)
    filled = grid.join(named, on=[*LIST, "measure", "cutoff"], how="left").with_columns(
        value=pl.when("is_listed").then("value").otherwise(0.0)
    )
    value = pl.col("value")
    means = filled.group_by("dataset", "run_id", "measure", "cutoff").agg(
        value.mean(), num_queries=value.count().cast(pl.Int64), num_dropped=value.null_count().cast(pl.Int64)
    )
    return means.sort("dataset", "run_id", "measure", "cutoff").select(RETRIEVAL_MEASURES.columns.names)


def find_retrieval_measures(config: RetrieveConfig, runs: Sequence[MadeRun]) -> list[Table]:
    """Return RETRIEVAL_MEASURES of the runs as report tables; recompute and seal them if they are not current."""
    tables = TableStore(config.out)
    files = [*config.queries, *config.qrels, *config.triviaqa_questions, *passages_of(config)]
    stage = Stage(
        name="retrieval measures",
        tables=[RETRIEVAL_MEASURES],
        settings={key: getattr(config, key) for key in SETTINGS},
        inputs={**{run.run_id: run.sha256 for run in runs}, **{path: file_stamp(path) for path in files}},
        names=[config.query_format],
        make=functools.partial(_make, config, runs),
    )
    with stage_progress(stage.name, show=config.progress):
        ensure(stage, tables)
    measured = {RETRIEVAL_MEASURES.name: tables.read(RETRIEVAL_MEASURES)}
    results, datasets = Results(tables=measured), measured[RETRIEVAL_MEASURES.name]["dataset"]
    run_ids = [run.run_id for run in runs]
    views = (View(results=results, dataset=name, runs=run_ids) for name in datasets.unique().sort())
    return [table for view in views for table in show(view)]


def _make(config: RetrieveConfig, made_runs: Sequence[MadeRun], append: Append) -> Mapping[str, object]:
    diagnostics = Diagnostics()
    loaded = load_questions(config, diagnostics)
    # a run may hold the lists of more questions
    entries = pl.concat(read_run(run.path, run.run_id) for run in made_runs)
    entries = entries.join(loaded.queries, on="query_id", how="semi")
    corpus = load_corpus(passages_of(config), entries, diagnostics, gold=loaded.provenance)
    diagnostics.raise_errors()
    loaded = resolve_gold(loaded, corpus, diagnostics)
    say(*diagnostics.warnings)
    runs, cutoffs = entries.select(RUNS.columns.names), [cut for cut in CUTOFFS if cut <= config.depth]
    evidence = Evidence(
        pairs=pairs(runs), queries=loaded.queries, corpus=corpus, provenance=loaded.provenance
    )
    gold = {measure: evidence.provenance.drop_nulls(column) for measure, column in GOLD_IDS.items()}
    if not gold["gold_passage"].join(corpus, on="doc_id", how="semi").height:
        # they are pages, or of other passages: there is no share of them to retrieve
        gold["gold_passage"] = evidence.provenance.clear()
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
    run_ids = [run.run_id for run in made_runs]
    append(RETRIEVAL_MEASURES, mean_retrieval_measures(pl.concat(values), pl.concat(counted), run_ids))
    return {}


def _counted(queries: pl.DataFrame, measure: str, cutoffs: Sequence[int]) -> pl.DataFrame:
    cuts = pl.DataFrame({"cutoff": pl.Series(cutoffs, dtype=pl.Int32)})
    return queries.select("dataset", "query_id", measure=pl.lit(measure)).join(cuts, how="cross")


def show(view: View) -> Iterator[Table]:
    rows = view.rows(RETRIEVAL_MEASURES)
    groups = [
        ((f"{label}@{cutoff}" if cutoff else label, part["num_queries"][0] + part["num_dropped"][0]), part)
        for measure, label in NAMES.items()
        for (cutoff,), part in rows.filter(measure=measure)
        .sort("cutoff")
        .group_by("cutoff", maintain_order=True)
    ]
    if groups:
        yield crosstab(
            groups,
            (*names("share of questions"), Column("questions", Format.COUNT)),
            "run_id",
            {run: Column(run) for run in view.runs},
            _value,
            caption="gold passage, gold page, contains answer: among the first k passages. Of pages: a list's pages in "
            "order, without repeats. A question without a list counts 0. Documents without a page_id are not judged "
            "by page (n: the judged questions, if they are fewer).",
            is_main=True,
            **view.about("retrieval_measures", "retrieval measures"),
        )


def _value(row: Mapping[str, Any]) -> Value:
    if row["value"] is None:
        return Value(reason="the documents have no page_id")
    return Value(row["value"], note=f"n={row['num_queries']}" if row["num_dropped"] else "")


ANALYSIS = Analysis(schema=RETRIEVAL_MEASURES, is_optional=True, show=show)
