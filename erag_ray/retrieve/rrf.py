"""Reciprocal rank fusion of several runs (Cormack, Clarke & Buettcher, SIGIR 2009)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from erag_ray.config.retrieval import RetrieverConfig
from erag_ray.retrieve.lists import by_score


@dataclass(frozen=True, kw_only=True)
class ReciprocalRank:
    """Reciprocal rank fusion: a document's score is the sum of 1 / (k + rank) over the runs that retrieve it."""

    config: RetrieverConfig

    @property
    def settings(self) -> Mapping[str, object]:
        """Return k, and the depth to which the runs are read."""
        return {"rrf_k": self.config.rrf_k, "candidates": self.config.candidates}

    def fuse(self, lists: Sequence[pl.DataFrame], depth: int) -> pl.DataFrame:
        """Fuse runs; the result is sorted by query_id.

        Args:
            lists: of each run, with the columns of `LIST_COLUMNS`.
            depth: length of the new lists; ties are ordered by descending doc_id.
        """
        deepest = self.config.candidates or depth
        entries = pl.concat(lists).filter(pl.col("rank") <= deepest)
        # fixed order of addition: sums of the same ranks are equal to the last bit
        terms = entries.sort("rank").select(
            "query_id", "doc_id", term=1 / (self.config.rrf_k + pl.col("rank"))
        )
        fused = terms.group_by("query_id", "doc_id", maintain_order=True).agg(score=pl.col("term").sum())
        return by_score(fused, depth)
