"""Measures of how well runs retrieve gold pages, without a reader: KILT's two measures, and hits by cutoff.

KILT (``kilt/eval_retrieval.py``) ranks pages, not passages: the pages of a list are those of its passages, in order,
without repeats. Each output of a question has a page set, which is sufficient evidence by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from erag_ray.schemas import RETRIEVAL_MEASURES, conform

LIST = ["run_id", "query_id"]


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
        Columns run_id, query_id, measure, cutoff, value.
    """
    pages = _ranked_pages(runs, corpus)
    grid = runs.select("run_id").unique().join(page_sets, how="cross")
    ranked = grid.join(pages, on=[*LIST, "page_id"], how="left")
    points = _points(ranked)
    return pl.concat([_r_precision(ranked), *(_recall(points, cutoff) for cutoff in cutoffs)])


def _ranked_pages(runs: pl.DataFrame, corpus: pl.DataFrame) -> pl.DataFrame:
    """Return the pages of each list with their rank: run_id, query_id, page_id, position (from 1)."""
    pages = runs.join(corpus.select("doc_id", "page_id"), on="doc_id").drop_nulls("page_id")
    first = pages.group_by(*LIST, "page_id").agg(pl.col("rank").min())
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


def hit_values(labels: pl.DataFrame, runs: pl.DataFrame, cutoffs: Sequence[int]) -> pl.DataFrame:
    """Return 1 per list and cutoff if one of the first ``cutoff`` documents has label 1, else 0.

    Args:
        labels: ``query_id, doc_id, label`` of every document of the runs.
        runs: RUNS.
        cutoffs: in documents.

    Returns:
        Columns run_id, query_id, cutoff, value; lists without any such document are left out.
    """
    good = labels.filter(pl.col("label") == 1).select("query_id", "doc_id")
    first = runs.join(good, on=["query_id", "doc_id"]).group_by(LIST).agg(pl.col("rank").min())
    parts = [
        first.select(
            *LIST, cutoff=pl.lit(cutoff, pl.Int32), value=(pl.col("rank") <= cutoff).cast(pl.Float64)
        )
        for cutoff in cutoffs
    ]
    return pl.concat(parts)


def mean_retrieval_measures(values: pl.DataFrame, counted: pl.DataFrame, runs: Sequence[str]) -> pl.DataFrame:
    """Return RETRIEVAL_MEASURES: means over all counted questions; those without a list or a hit count 0.

    Args:
        values: ``run_id, query_id, measure, cutoff, value``.
        counted: ``measure, cutoff, dataset, query_id``: the questions that a measure counts, per cutoff.
        runs: names of all runs.
    """
    grid = counted.join(pl.DataFrame({"run_id": list(runs)}), how="cross")
    filled = grid.join(values, on=[*LIST, "measure", "cutoff"], how="left")
    means = filled.group_by("dataset", "run_id", "measure", "cutoff").agg(
        value=pl.col("value").fill_null(0.0).mean(), num_queries=pl.len().cast(pl.Int64)
    )
    table = means.sort("dataset", "run_id", "measure", "cutoff").select(RETRIEVAL_MEASURES.columns.names)
    conform(table, RETRIEVAL_MEASURES)
    return table
