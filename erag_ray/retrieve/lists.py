"""What every retriever's search ends in: ranked lists, by one rule for ties and cuts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

LIST_COLUMNS = pl.Schema(
    {"query_id": pl.String(), "rank": pl.Int32(), "doc_id": pl.String(), "score": pl.Float64()}
)
"""RUNS without its run_id."""
FOUND_COLUMNS = pl.Schema({"query": pl.UInt32(), "place": pl.UInt32(), "score": pl.Float64()})
"""Candidates: the number of the query and the place of the document in its index, both from 0."""


def ranked(found: pl.DataFrame, query_ids: pl.Series, doc_ids: pl.Series, depth: int) -> pl.DataFrame:
    """The lists: best first, ties by place, cut to ``depth``.

    Args:
        found: candidates of all shards, at least the best ``depth`` of each query.
        query_ids: the queries, as they are numbered.
        doc_ids: the documents, as they are placed: last id first, so that ties go as trec_eval has them.
        depth: length of the lists.
    """
    ordered = found.sort("query", "score", "place", descending=[False, True, False])
    top = _cut(ordered, "query", depth)
    return pl.DataFrame(
        {
            "query_id": query_ids.gather(top["query"]),
            "rank": top["rank"],
            "doc_id": doc_ids.gather(top["place"]),
            "score": top["score"],
        },
        schema=LIST_COLUMNS,
    )


def by_score(scored: pl.DataFrame, depth: int) -> pl.DataFrame:
    """Lists of scored documents (``query_id, doc_id, score``): best first, ties by doc_id, last one first."""
    ordered = scored.sort("query_id", "score", "doc_id", descending=[False, True, True])
    top = _cut(ordered, "query_id", depth).with_columns(pl.col("score").cast(pl.Float64))
    return top.select(LIST_COLUMNS.names()).match_to_schema(LIST_COLUMNS)


def _cut(ordered: pl.DataFrame, query: str, depth: int) -> pl.DataFrame:
    """Each query's rows numbered in their order, as ``rank``, down to ``depth``."""
    rank = (pl.int_range(pl.len()).over(query) + 1).cast(pl.Int32)
    return ordered.with_columns(rank=rank).filter(pl.col("rank") <= depth)


def best(scores: npt.NDArray[np.float32], depth: int) -> npt.NDArray[np.intp]:
    """Places of the highest scores above 0, at most ``depth``, best first; ties by place, all of them looked at."""
    found = np.flatnonzero(scores > 0)
    if len(found) > depth:
        least = np.partition(scores[found], -depth)[-depth]
        found = found[scores[found] >= least]
    return found[np.argsort(-scores[found], kind="stable")][:depth]


def candidates(
    queries: npt.NDArray[np.integer], places: npt.NDArray[np.integer], scores: npt.NDArray[np.floating]
) -> pl.DataFrame:
    """Candidates from three arrays of one length."""
    columns = {"query": queries, "place": places, "score": scores.astype(np.float64)}
    return pl.DataFrame(columns).cast(FOUND_COLUMNS)
