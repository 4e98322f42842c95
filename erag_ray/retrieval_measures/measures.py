"""Measures of how well runs retrieve gold pages, without a reader: KILT's two measures, and hits by cutoff.

KILT (``kilt/eval_retrieval.py``) ranks pages, not passages: the pages of a list are those of its passages, in order,
without repeats; passages without a page are passed over. Each output of a question has a page set, which is sufficient
evidence by itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import polars as pl

from erag_ray.annotators import Evidence, annotate, applicable_queries
from erag_ray.evaluate import OWN_LIST, Settings, eligible_questions, per_query
from erag_ray.schemas import RETRIEVAL_MEASURES, UTILITY, conform
from erag_ray.store import as_frame

LIST = ["run_id", "query_id"]
SUCCESS = Settings(
    depths=(),
    measures=["Success"],
    cutoffs=(),
    threshold=None,
    statistics=(),
    num_resamples=0,
    confidence=0.95,
    num_permutations=0,
    seed=0,
    ideals=(OWN_LIST,),
)


def page_values(
    runs: pl.DataFrame, corpus: pl.DataFrame, page_sets: pl.DataFrame, cutoffs: Sequence[int]
) -> pl.DataFrame:
    """Return KILT's page measures of every run and question with a page set.

    ``kilt_r_precision`` (cutoff 0): of the R pages of an output, the share among the first R pages of the list; the
    best output counts. ``kilt_recall``: the share of distinct page sets that are complete among the first ``cutoff``
    points. A page outside all sets is one point; a set is one point, at the position of its last retrieved page.

    Args:
        runs: RUNS.
        corpus: CORPUS, at least the documents of the runs.
        page_sets: ``query_id, output, page_id``.
        cutoffs: cutoffs of recall.

    Returns:
        Columns run_id, query_id, measure, cutoff, value (null: no document of the list has a page).
    """
    paged = runs.select(*LIST, "rank", "doc_id").join(corpus.select("doc_id", "page_id"), on="doc_id")
    pages = _ranked_pages(paged)
    grid = runs.select("run_id").unique().join(page_sets, how="cross")
    ranked = grid.join(pages, on=[*LIST, "page_id"], how="left")
    points = _points(ranked)
    values = pl.concat([_r_precision(ranked), *(_recall(points, cutoff) for cutoff in cutoffs)])
    judged = paged.group_by(LIST).agg(is_judged=pl.col("page_id").is_not_null().any())
    # a question without a list has no row here, and counts 0
    is_judged = pl.col("is_judged").fill_null(True)
    known = values.join(judged, on=LIST, how="left").with_columns(value=pl.when(is_judged).then("value"))
    return known.drop("is_judged")


def _ranked_pages(paged: pl.DataFrame) -> pl.DataFrame:
    """Return the pages of each list with their rank: run_id, query_id, page_id, position (from 1)."""
    first = paged.drop_nulls("page_id").group_by(*LIST, "page_id").agg(pl.col("rank").min())
    position = pl.col("rank").rank("ordinal").over(LIST).cast(pl.Int64)
    return first.select(*LIST, "page_id", position=position)


def _r_precision(ranked: pl.DataFrame) -> pl.DataFrame:
    size = pl.col("page_id").n_unique()
    hits = (pl.col("position") <= size).fill_null(False).sum()
    outputs = ranked.group_by(*LIST, "output").agg(value=hits / size)
    best = outputs.group_by(LIST).agg(pl.col("value").max())
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
    """Return the questions to which an annotator applies, and Success by its labels: what `evaluate` computes.

    Args:
        annotator: its name.
        evidence: what it labels by; the pairs are those of the runs.
        runs: RUNS.
        cutoffs: in documents.

    Returns:
        QUERIES; and run_id, query_id, cutoff, value (null: a document within the cutoff is not judged).
    """
    queries = applicable_queries(annotator, evidence)
    labels, no_utility = as_frame(annotate(annotator, evidence)), as_frame(UTILITY.empty())
    values = per_query(
        labels,
        runs,
        {annotator: eligible_questions(annotator, queries, labels, no_utility)},
        queries,
        dataclasses.replace(SUCCESS, depths=[max(cutoffs)], cutoffs=cutoffs),
    )
    return queries, values.select(*LIST, "cutoff", "value")


def mean_retrieval_measures(values: pl.DataFrame, counted: pl.DataFrame, runs: Sequence[str]) -> pl.DataFrame:
    """Return RETRIEVAL_MEASURES: means over the counted questions that are judged; one without a list counts 0.

    Args:
        values: ``run_id, query_id, measure, cutoff, value`` (null: not judged).
        counted: ``measure, cutoff, dataset, query_id``: the questions that a measure counts, per cutoff.
        runs: names of all runs.
    """
    grid = counted.join(pl.DataFrame({"run_id": list(runs)}), how="cross")
    named = values.with_columns(is_listed=True)
    filled = grid.join(named, on=[*LIST, "measure", "cutoff"], how="left").with_columns(
        value=pl.when("is_listed").then("value").otherwise(0.0)
    )
    value = pl.col("value")
    means = filled.group_by("dataset", "run_id", "measure", "cutoff").agg(
        value.mean(),
        num_queries=value.count().cast(pl.Int64),
        num_dropped=value.null_count().cast(pl.Int64),
    )
    table = means.sort("dataset", "run_id", "measure", "cutoff").select(RETRIEVAL_MEASURES.columns.names)
    conform(table, RETRIEVAL_MEASURES)
    return table
