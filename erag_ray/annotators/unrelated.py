"""Documents that have nothing to do with a question: what any document does to an answer, whatever it tells. Pure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import xxhash

from erag_ray.annotators.base import PAIR, Evidence, with_passage
from erag_ray.annotators.contains import contains_answer_dpr

PER_QUESTION = 3
NUM_CANDIDATES = 8
"""Of so many documents the first `PER_QUESTION` unrelated ones are taken."""


def unrelated_pairs(evidence: Evidence) -> pl.DataFrame:
    """Up to `PER_QUESTION` unrelated documents of each question that has pairs: columns query_id, doc_id.

    They were retrieved for other questions of its dataset and not for this one, are not of its gold pages, and hold
    none of its answers. They follow its hash on a ring of hashed documents: with another run most of them stay.

    Raises:
        ValueError: a document is not in the corpus.
    """
    pairs = evidence.pairs.join(evidence.queries.select("query_id", "dataset"), on="query_id")
    parts = [_following(part) for part in pairs.partition_by("dataset")]
    schema = {"query_id": pl.String, "doc_id": pl.String, "place": pl.Int64}
    others = pl.concat([pl.DataFrame(schema=schema), *parts]).join(pairs, on=PAIR, how="anti")
    paged = with_passage(others, evidence.corpus, "page_id")
    paged = paged.join(evidence.provenance, on=["query_id", "page_id"], how="anti")
    without = contains_answer_dpr(replace(evidence, pairs=paged.select(PAIR))).filter(pl.col("label") == 0)
    left = paged.join(without, on=PAIR, how="semi").sort("query_id", "place")
    return left.group_by("query_id", maintain_order=True).head(PER_QUESTION).select(PAIR)


def _following(pairs: pl.DataFrame) -> pl.DataFrame:
    """The documents that follow each question on the ring: columns query_id, doc_id, place."""
    documents, queries = (pairs[name].unique() for name in ("doc_id", "query_id"))
    hashes = _hashes(documents)
    order = np.argsort(hashes)
    places = np.arange(min(NUM_CANDIDATES, len(order)))
    rows = np.searchsorted(hashes[order], _hashes(queries))[:, None] + places
    return pl.DataFrame(
        {
            "query_id": queries.gather(np.repeat(np.arange(len(queries)), len(places))),
            "doc_id": documents.gather(order[rows.ravel() % len(order)]),
            "place": np.tile(places, len(queries)),
        }
    )


def _hashes(ids: pl.Series) -> np.ndarray:
    return np.fromiter((xxhash.xxh3_64_intdigest(name.encode()) for name in ids), np.uint64, len(ids))
