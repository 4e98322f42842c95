"""Retrievers without an index: fusion of several runs, and random lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
import xxhash

from erag_ray.config.retrieval import RetrieverConfig
from erag_ray.retrieve.lists import LIST_COLUMNS, by_score
from erag_ray.retrieve.run import Retriever, Run, Sources
from erag_ray.store.sharded_tasks import Do


@dataclass(frozen=True, kw_only=True)
class ReciprocalRank(Retriever):
    """Reciprocal rank fusion (Cormack, Clarke & Buettcher, SIGIR 2009).

    A document's score is the sum of 1 / (k + rank) over the runs that retrieve it.
    """

    @property
    def settings(self) -> Mapping[str, object]:
        return self.chosen("rrf_k", "candidates")

    def lists(self, run: Run, sources: Sources, do: Do) -> pl.DataFrame:
        """Fuse the runs; the result is sorted by query_id, and ties are ordered by descending doc_id."""
        runs = [run.others[name].read(sources.queries) for name in self.config.of]
        entries = pl.concat(one.select(LIST_COLUMNS.names()) for one in runs)
        entries = entries.filter(pl.col("rank") <= (self.config.candidates or run.job.depth))
        # fixed order of addition: sums of the same ranks are equal to the last bit
        term = 1 / (self.config.rrf_k + pl.col("rank"))
        terms = entries.sort("rank").select("query_id", "doc_id", term=term)
        fused = terms.group_by("query_id", "doc_id", maintain_order=True).agg(score=pl.col("term").sum())
        return by_score(fused, run.job.depth)


@dataclass(frozen=True, kw_only=True)
class Random:
    """A random retriever, and its index: the lists depend on the question's id, the seed and the passages' ids."""

    name: str
    config: RetrieverConfig
    doc_ids: pl.Series = field(default_factory=pl.Series)

    @property
    def settings(self) -> Mapping[str, object]:
        return {"seed": self.config.seed}

    def index(self, corpus: pl.DataFrame) -> Random:
        return replace(self, doc_ids=corpus["doc_id"].sort())

    def search(self, queries: pl.DataFrame, depth: int) -> pl.DataFrame:
        """Return the lists of `run.InMemory`; the score is 1 / rank."""
        lists = [self._list(query_id, min(depth, len(self.doc_ids))) for query_id in queries["query_id"]]
        return pl.concat([pl.DataFrame(schema=LIST_COLUMNS), *lists])

    def _list(self, query_id: str, depth: int) -> pl.DataFrame:
        generator = np.random.default_rng(xxhash.xxh3_64_intdigest(f"{self.config.seed}:{query_id}".encode()))
        drawn = generator.choice(len(self.doc_ids), size=depth, replace=False)
        ranks = np.arange(1, depth + 1)
        columns = {"rank": ranks, "doc_id": self.doc_ids.gather(drawn), "score": 1 / ranks}
        return pl.DataFrame({"query_id": [query_id] * depth, **columns}).cast(LIST_COLUMNS)
