"""Reciprocal rank fusion: several runs -> one (Cormack, Clarke & Buettcher, SIGIR 2009)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from erag_ray.config import RetrieverConfig
from erag_ray.retrieve.lists import by_score


@dataclass(frozen=True, kw_only=True)
class ReciprocalRank:
    """A document's score is the sum, over the runs that have it, of 1 / (k + its rank there)."""

    config: RetrieverConfig

    @property
    def settings(self) -> Mapping[str, object]:
        """k, and how far down the runs are looked at."""
        return {"rrf_k": self.config.rrf_k, "candidates": self.config.candidates}

    def fuse(self, lists: Sequence[pl.DataFrame], depth: int) -> pl.DataFrame:
        """The lists of a run; queries in the order of their ids.

        Args:
            lists: of each run, with the columns of `LIST_COLUMNS`.
            depth: length of the new lists; ties go by doc_id, last one first.
        """
        deepest = self.config.candidates or depth
        entries = pl.concat(lists).filter(pl.col("rank") <= deepest)
        # always added in the same order: sums of the same ranks are equal to the last bit
        shares = entries.sort("rank").select(
            "query_id", "doc_id", share=1 / (self.config.rrf_k + pl.col("rank"))
        )
        fused = shares.group_by("query_id", "doc_id", maintain_order=True).agg(score=pl.col("share").sum())
        return by_score(fused, depth)
