"""Retrievers without an index: fusion of several runs, and random lists."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
import xxhash

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


class Random(Retriever):
    """Random lists, which depend on the question's id, the seed and the passages' ids; the score is 1 / rank."""

    @property
    def settings(self) -> Mapping[str, object]:
        return self.chosen("seed")

    def needs_passages(self, run: Run) -> bool:
        return True

    def lists(self, run: Run, sources: Sources, do: Do) -> pl.DataFrame:
        doc_ids = sources.corpus["doc_id"].sort()
        ranks = np.arange(1, min(run.job.depth, len(doc_ids)) + 1)
        parts = [pl.DataFrame(schema=LIST_COLUMNS)]
        for query_id in sources.queries["query_id"]:
            seed = xxhash.xxh3_64_intdigest(f"{self.config.seed}:{query_id}".encode())
            drawn = np.random.default_rng(seed).choice(len(doc_ids), size=len(ranks), replace=False)
            columns = {"rank": ranks, "doc_id": doc_ids.gather(drawn), "score": 1 / ranks}
            parts.append(pl.DataFrame({"query_id": [query_id] * len(ranks), **columns}).cast(LIST_COLUMNS))
        return pl.concat(parts)
