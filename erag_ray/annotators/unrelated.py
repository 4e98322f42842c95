"""Select unrelated documents for a question, to measure the effect of any document on an answer. Pure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import xxhash

from erag_ray.annotators.base import PAIR, Evidence, with_passage
from erag_ray.annotators.contains import contains_answer_dpr

PER_QUESTION = 3
NUM_CANDIDATES = 8
"""Number of candidates per question for `PER_QUESTION` documents; the first unrelated ones are selected."""


def unrelated_pairs(evidence: Evidence, per_question: int = PER_QUESTION) -> pl.DataFrame:
    """Return up to ``per_question`` unrelated documents of each question that has pairs: columns query_id, doc_id.

    They were retrieved for other questions of its dataset and not for this one, are neither its gold documents nor of
    its gold pages, and do not contain its answers. Selection is by consistent hashing: they follow the hash of the
    question on a ring of document hashes, so most of them stay the same if another run is added.
    """
    pairs = evidence.pairs.join(evidence.queries.select("query_id", "dataset"), on="query_id")
    num_candidates = NUM_CANDIDATES + per_question - PER_QUESTION
    parts = [_following(part, num_candidates) for part in pairs.partition_by("dataset")]
    schema = {"query_id": pl.String, "doc_id": pl.String, "offset": pl.Int64}
    others = pl.concat([pl.DataFrame(schema=schema), *parts]).join(pairs, on=PAIR, how="anti")
    paged = with_passage(others, evidence.corpus, "page_id")
    for gold in (["query_id", "page_id"], PAIR):
        paged = paged.join(evidence.provenance, on=gold, how="anti")
    without = contains_answer_dpr(replace(evidence, pairs=paged.select(PAIR))).filter(pl.col("label") == 0)
    unrelated = paged.join(without, on=PAIR, how="semi").sort("query_id", "offset")
    return unrelated.group_by("query_id", maintain_order=True).head(per_question).select(PAIR)


def _following(pairs: pl.DataFrame, count: int) -> pl.DataFrame:
    """Return ``count`` documents that follow each question on the ring: columns query_id, doc_id, offset."""
    documents, queries = (pairs[name].unique() for name in ("doc_id", "query_id"))
    hashes = _hashes(documents)
    order = np.argsort(hashes)
    offsets = np.arange(min(count, len(order)))
    rows = np.searchsorted(hashes[order], _hashes(queries))[:, None] + offsets
    return pl.DataFrame(
        {
            "query_id": queries.gather(np.repeat(np.arange(len(queries)), len(offsets))),
            "doc_id": documents.gather(order[rows.ravel() % len(order)]),
            "offset": np.tile(offsets, len(queries)),
        }
    )


def _hashes(ids: pl.Series) -> np.ndarray:
    return np.fromiter((xxhash.xxh3_64_intdigest(name.encode()) for name in ids), np.uint64, len(ids))
