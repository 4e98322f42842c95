"""QUERIES + CORPUS -> RUNS. Lists are best first, ties by doc_id, last one first, as trec_eval has them.

Three forms, by what a retriever needs:

- *indexed* (`Indexed`: bm25, dense, lucene): ``build`` writes an index, ``search`` reads it; both leave their
  work as numbered tasks (`work`), which are done here or on a cluster;
- *in memory* (`InMemory`: random, and outside code): ``index(corpus)`` gives something with ``search(queries, depth)``;
- *of other runs* (`fusion`, `reranking`).

A new retriever is one class of the first two forms, named by `INDEXED` or `IN_MEMORY`. Modules that bring torch are
named there, not imported: what ranks by words needs none of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import polars as pl

from erag_ray.config import RetrieverConfig
from erag_ray.registry import find
from erag_ray.retrieve.lists import LIST_COLUMNS, best, ranked
from erag_ray.retrieve.passage_fields import SEARCHED
from erag_ray.sharded_tasks import Do
from erag_ray.store import Folder, fingerprint
from erag_ray.user_code import checking

__all__ = [
    "INDEXED",
    "IN_MEMORY",
    "LIST_COLUMNS",
    "OF_RUNS",
    "SEARCHED",
    "InMemory",
    "Index",
    "Indexed",
    "best",
    "make_retriever",
    "ranked",
]


class Indexed(Protocol):
    """Ranks passages by an index in parts."""

    index_has_shards: ClassVar[bool]
    """Whether the index is cut as it is searched, so that other shards need another index."""

    @property
    def settings(self) -> Mapping[str, object]:
        """What its lists depend on, beside questions and passages."""

    def build(self, corpus: pl.DataFrame, index: Folder, per_shard: int, do: Do) -> None:
        """Write the index of CORPUS, ``per_shard`` passages (about) in each part that is searched at a time."""

    def search(
        self, index: Folder, queries: pl.DataFrame, work: Folder, depth: int, per_shard: int, do: Do
    ) -> pl.DataFrame:
        """RUNS without its run_id; a query that matches nothing has no row. ``work`` is for what comes between."""


class Index(Protocol):
    """Passages in memory, ready to be searched."""

    def search(self, queries: pl.DataFrame, depth: int) -> pl.DataFrame:
        """RUNS without its run_id, for QUERIES in their order; a query that matches nothing has no row."""


class InMemory(Protocol):
    """Ranks passages that lie in memory: the form for code from outside, which is named as a class or an instance."""

    @property
    def settings(self) -> Mapping[str, object]:
        """What its lists depend on, beside questions and passages."""

    def index(self, corpus: pl.DataFrame) -> Index:
        """An index of the passages of CORPUS."""


INDEXED = {
    "bm25": "erag_ray.retrieve.bm25:Bm25",
    "dense": "erag_ray.retrieve.dense.index:Dense",
    "lucene": "erag_ray.retrieve.lucene:Lucene",
}
IN_MEMORY = {
    "random": "erag_ray.retrieve.random_baseline:Random",
}
OF_RUNS = {
    "rrf": "erag_ray.retrieve.rrf:ReciprocalRank",
    "rerank": "erag_ray.retrieve.dense.reranking:CrossEncoder",
    "rerank by": "erag_ray.retrieve.dense.reranking:ByVectors",
}


def make_retriever(name: str, config: RetrieverConfig) -> Any:
    """The retriever of a run: of a kind above, or the object that ``package.module:name`` points to.

    Raises:
        ValueError: there is no such kind, or its settings cannot be.
        InputError: its model is not there, or it is user code and raises.
    """
    known = {**INDEXED, **IN_MEMORY, **OF_RUNS}
    key = "rerank by" if config.kind == "rerank" and config.by else config.kind
    if key not in known:
        return _from_outside(name, config)
    kind: Any = find("retriever", known[key], {})
    return kind(config=config, name=name) if key in ("dense", "rerank") else kind(config=config)


def _from_outside(name: str, config: RetrieverConfig) -> Any:
    """A retriever, or one made of the class that is named, with its ``config`` if it takes one."""
    found: Any = find("retriever", config.kind, dict.fromkeys([*INDEXED, *IN_MEMORY, *OF_RUNS]))
    with checking(f"retrievers.{name}", found):
        if isinstance(found, type):
            takes_config = "config" in inspect.signature(found).parameters
            found = found(config=config) if takes_config else found()
        settings, index = getattr(found, "settings", None), getattr(found, "index", None)
    if not isinstance(settings, Mapping) or index is None:
        raise ValueError(f"{config.kind} is no retriever: it needs settings and index")
    try:
        fingerprint(dict(settings))
    except TypeError as error:
        raise ValueError(f"{config.kind}: settings: {error}") from error
    return found
