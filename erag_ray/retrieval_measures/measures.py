"""How well runs find the gold pages, before any reader: KILT's own two measures, and how far down the first hit stands.

KILT (``kilt/eval_retrieval.py``) looks at pages, not passages: a list's pages are those of its passages, in order,
without repeats; each output of a question has a set of pages that is evidence alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from erag_ray.schemas import RETRIEVAL_MEASURES, conform

LIST = ["run_id", "query_id"]


def page_values(
    runs: pl.DataFrame, corpus: pl.DataFrame, page_sets: pl.DataFrame, cutoffs: Sequence[int]
) -> pl.DataFrame:
    """Columns run_id, query_id, measure, cutoff, value: for every run and every question with a page set.

    ``kilt_r_precision`` (cutoff 0): of the R pages of an output, the share among the first R of the list; the best
    output counts. ``kilt_recall``: the share of distinct page sets that are whole among the first ``cutoff`` points. A
    page of no set is a point; a set is one point, where the last of its pages stands that the list has.

    Args:
        runs: RUNS.
        corpus: CORPUS, at least the documents of the runs.
        page_sets: ``query_id, output, page_id``.
        cutoffs: of recall.
    """
    placed = _placed_pages(runs, corpus)
    every = runs.select("run_id").unique().join(page_sets, how="cross")
    found = every.join(placed, on=[*LIST, "page_id"], how="left")
    points = _points(found)
    return pl.concat([_r_precision(found), *(_recall(points, cutoff) for cutoff in cutoffs)])


def _placed_pages(runs: pl.DataFrame, corpus: pl.DataFrame) -> pl.DataFrame:
    """run_id, query_id, page_id, place: the pages of each list, the first one at 1."""
    pages = runs.join(corpus.select("doc_id", "page_id"), on="doc_id").drop_nulls("page_id")
    first = pages.group_by(*LIST, "page_id").agg(pl.col("rank").min())
    place = pl.col("rank").rank("ordinal").over(LIST).cast(pl.Int64)
    return first.select(*LIST, "page_id", place=place)


def _r_precision(found: pl.DataFrame) -> pl.DataFrame:
    size = pl.col("page_id").n_unique()
    hits = (pl.col("place") <= size).fill_null(False).sum()
    outputs = found.group_by(*LIST, "output").agg(value=hits / size)
    best = outputs.group_by(LIST).agg(pl.col("value").max())
    return best.select(*LIST, measure=pl.lit("kilt_r_precision"), cutoff=pl.lit(0, pl.Int32), value="value")


def _points(found: pl.DataFrame) -> pl.DataFrame:
    """A row for each distinct page set: whether it is whole, and which point of the list it is (KILT's get_rank)."""
    sets = found.group_by(*LIST, "output").agg(
        pages=pl.col("page_id").unique().sort(),
        last=pl.col("place").max(),
        is_whole=pl.col("place").is_not_null().all(),
    )
    distinct = sets.sort("output").unique([*LIST, "pages"], keep="first", maintain_order=True)
    # gold pages of any set, up to a place: they are no points of their own
    gold = found.drop_nulls("place").select(*LIST, last="place").unique()
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
    """Columns run_id, query_id, cutoff, value: 1 where one of the first ``cutoff`` documents has a label of 1.

    Args:
        labels: ``query_id, doc_id, label``; of every document of the runs.
        runs: RUNS.
        cutoffs: in documents.
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
    """RETRIEVAL_MEASURES: the means over all questions that count, those without a list or a hit with 0.

    Args:
        values: ``run_id, query_id, measure, cutoff, value``.
        counted: ``measure, cutoff, dataset, query_id``: the questions that a measure is about, for every cut-off.
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
