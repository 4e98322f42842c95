"""Random passages: the lower baseline of a comparison, and a source of irrelevant passages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
import xxhash

from erag_ray.config.retrieval import RetrieverConfig
from erag_ray.retrieve.lists import LIST_COLUMNS


@dataclass(frozen=True, kw_only=True)
class Random:
    """A random retriever: its lists depend on the question's id, the seed and the passages' ids."""

    config: RetrieverConfig

    @property
    def settings(self) -> Mapping[str, object]:
        """The seed."""
        return {"seed": self.config.seed}

    def index(self, corpus: pl.DataFrame) -> RandomIndex:
        """Index the ids, sorted."""
        return RandomIndex(doc_ids=corpus["doc_id"].sort(), seed=self.config.seed)


@dataclass(frozen=True, kw_only=True)
class RandomIndex:
    """The ids to sample from."""

    doc_ids: pl.Series
    seed: int

    def search(self, queries: pl.DataFrame, depth: int) -> pl.DataFrame:
        """Implement `Index`; the score is 1 / rank."""
        lists = [self._list(query_id, min(depth, len(self.doc_ids))) for query_id in queries["query_id"]]
        return pl.concat([pl.DataFrame(schema=LIST_COLUMNS), *lists])

    def _list(self, query_id: str, depth: int) -> pl.DataFrame:
        generator = np.random.default_rng(xxhash.xxh3_64_intdigest(f"{self.seed}:{query_id}".encode()))
        drawn = generator.choice(len(self.doc_ids), size=depth, replace=False)
        ranks = np.arange(1, depth + 1)
        columns = {"rank": ranks, "doc_id": self.doc_ids.gather(drawn), "score": 1 / ranks}
        return pl.DataFrame({"query_id": [query_id] * depth, **columns}).cast(LIST_COLUMNS)
