"""Ranked lists from the candidates of tasks, with one rule for ties and depth for all retrievers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.store.folder import Folder
from erag_ray.store.sharded_tasks import part, read_frame

# sizes of the tasks
QUERIES_PER_TASK = 2048
TEXTS_PER_PART = 4096
PAIRS_PER_PART = 16_384
LIST_COLUMNS = pl.Schema(
    {"query_id": pl.String(), "rank": pl.Int32(), "doc_id": pl.String(), "score": pl.Float64()}
)
"""RUNS without run_id."""
FOUND_COLUMNS = pl.Schema({"query": pl.UInt32(), "place": pl.UInt32(), "score": pl.Float64()})
"""Candidates: the number of the query and the document's position in its index, both from 0."""


def read_found(work: Folder, count: int, schema: pl.Schema = FOUND_COLUMNS) -> pl.DataFrame:
    """Return what all ``count`` tasks have left, such as candidates."""
    parts = (read_frame(work, "found", f"{part(number)}.parquet") for number in range(count))
    return pl.concat([pl.DataFrame(schema=schema), *parts])


def ranked(hits: pl.DataFrame, query_ids: pl.Series, doc_ids: pl.Series, depth: int) -> pl.DataFrame:
    """Rank candidates: best first, ties by position, cut to ``depth``.

    Args:
        hits: candidates of all shards, at least the best ``depth`` of each query.
        query_ids: the queries, by number.
        doc_ids: the documents, by position: descending ids, for trec_eval's order of ties.
        depth: length of the lists.
    """
    ordered = hits.sort("query", "score", "place", descending=[False, True, False])
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
    """Rank scored documents (``query_id, doc_id, score``): best first, ties by descending doc_id."""
    ordered = scored.sort("query_id", "score", "doc_id", descending=[False, True, True])
    top = _cut(ordered, "query_id", depth).with_columns(pl.col("score").cast(pl.Float64))
    return top.select(LIST_COLUMNS.names()).match_to_schema(LIST_COLUMNS)


def _cut(ordered: pl.DataFrame, query: str, depth: int) -> pl.DataFrame:
    """Number each query's rows as ``rank``, and cut at ``depth``."""
    rank = (pl.int_range(pl.len()).over(query) + 1).cast(pl.Int32)
    return ordered.with_columns(rank=rank).filter(pl.col("rank") <= depth)


def best(scores: npt.NDArray[np.float32], depth: int) -> npt.NDArray[np.intp]:
    """Return the positions of the ``depth`` highest scores above 0, best first; ties by position, also at the cut."""
    positions = np.flatnonzero(scores > 0)
    if len(positions) > depth:
        threshold = np.partition(scores[positions], -depth)[-depth]
        positions = positions[scores[positions] >= threshold]
    return positions[np.argsort(-scores[positions], kind="stable")][:depth]


def candidates(
    queries: npt.NDArray[np.integer], places: npt.NDArray[np.integer], scores: npt.NDArray[np.floating]
) -> pl.DataFrame:
    """Return a frame of candidates from three arrays of equal length."""
    columns = {"query": queries, "place": places, "score": scores.astype(np.float64)}
    return pl.DataFrame(columns).cast(FOUND_COLUMNS)
