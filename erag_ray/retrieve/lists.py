"""Searched fields of a passage, and ranked lists from the candidates of tasks, with one rule for ties and depth.

A new choice of fields is one function and one line in `SEARCHED`.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.data.runs.entries import in_trec_order
from erag_ray.store.folder import Folder
from erag_ray.store.schemas import VALUE, frame_schema
from erag_ray.store.sharded_tasks import part, read_frame

# sizes of the tasks
QUERIES_PER_TASK = 2048
TEXTS_PER_PART = 4096
PAIRS_PER_PART = 16_384
LIST_COLUMNS = frame_schema("query_id rank doc_id score", score=VALUE)
"""RUNS without run_id."""
FOUND_COLUMNS = pl.Schema({"query": pl.UInt32(), "place": pl.UInt32(), "score": pl.Float64()})
"""Candidates: the number of the query and the document's position in its index, both from 0."""
# marks of Chinese, Japanese and Hindi end a sentence also without a space after them
FIRST_SENTENCE = r"(?s)(.*?(?:\w\w+\p{Pe}?[.!?][\p{Pe}\p{Pf}'\"]*(?:\s|$)|[\u3002\uff01\uff1f\u0964]\p{Pe}*))"


def title_and_text(corpus: pl.DataFrame) -> pl.Series:
    return corpus.select(pl.concat_str("title", "text", separator=" ")).to_series()


def title_and_first_sentence(corpus: pl.DataFrame) -> pl.Series:
    """Return title and first sentence of each passage.

    The sentence ends at the first mark after a word of at least two letters (so not after an initial); without one it
    is the whole passage. An abbreviation ("Dr. ") ends the sentence too early.
    """
    first = pl.col("text").str.strip_chars().str.extract(FIRST_SENTENCE).str.strip_chars_end()
    return corpus.select(pl.concat_str("title", first.fill_null(pl.col("text")), separator=" ")).to_series()


SEARCHED: dict[str, Callable[[pl.DataFrame], pl.Series]] = {
    "title_and_text": title_and_text,
    "title_and_first_sentence": title_and_first_sentence,
}


def read_found(
    work: Folder, count: int, schema: pl.Schema = FOUND_COLUMNS, below: str = "found"
) -> pl.DataFrame:
    """Return what all ``count`` tasks have left in a folder, such as candidates."""
    parts = (read_frame(work, below, f"{part(number)}.parquet") for number in range(count))
    return pl.concat([pl.DataFrame(schema=schema), *parts])


def ranked(hits: pl.DataFrame, query_ids: pl.Series, doc_ids: pl.Series, depth: int) -> pl.DataFrame:
    """Rank candidates of all shards, at least the best ``depth`` of each query: best first, cut to ``depth``.

    Ties are in the order of ``doc_ids``: descending, as in trec_eval.
    """
    ordered = hits.sort("query", "score", "place", descending=[False, True, False])
    rank = (pl.int_range(pl.len()).over("query") + 1).cast(pl.Int32)
    top = ordered.with_columns(rank=rank).filter(pl.col("rank") <= depth)
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
    top = in_trec_order(scored.cast({"score": pl.Float64}), pl.Float64).filter(pl.col("rank") <= depth)
    return top.select(LIST_COLUMNS.names()).match_to_schema(LIST_COLUMNS)


def best(scores: npt.NDArray[np.float32], depth: int) -> npt.NDArray[np.intp]:
    """Return the positions of the ``depth`` highest scores above 0, best first; ties by position, also at the cut."""
    positions = np.flatnonzero(scores > 0)
    if len(positions) > depth:
        threshold = np.partition(scores[positions], -depth)[-depth]
        positions = positions[scores[positions] >= threshold]
    return positions[np.argsort(-scores[positions], kind="stable")][:depth]
