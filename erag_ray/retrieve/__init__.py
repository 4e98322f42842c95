"""Retrieval: QUERIES and CORPUS to RUNS. Lists are best first; ties are ordered by descending doc_id, as in trec_eval.

Three kinds of retrievers:

- *indexed* (`Indexed`: bm25, dense, lucene): ``build`` writes an index and ``search`` reads it, both as numbered tasks
  (`sharded_tasks`), which run in this process or on a cluster;
- *in memory* (`InMemory`: random, and outside code): ``index(corpus)`` returns an object with
  ``search(queries, depth)``;
- *of other runs* (`rrf`, `dense.reranking`);
- *outside* (`outside`: objects of other libraries, functions, HTTP services): they have their own index, and bring the
  texts of their documents.

A new retriever is one class of the first two kinds and one line in `INDEXED` or `IN_MEMORY`. These registries have
import paths, not classes, so that lexical retrieval does not import torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Protocol

import polars as pl

from erag_ray.config.retrieval import OUTSIDE_KINDS, RetrieverConfig
from erag_ray.store.fingerprints import fingerprint
from erag_ray.store.folder import Folder
from erag_ray.store.sharded_tasks import Do
from erag_ray.support.registry import find
from erag_ray.support.user_code import checking


class Indexed(Protocol):
    """A retriever with an index on disk."""

    @property
    def settings(self) -> Mapping[str, object]:
        """All that the lists depend on, except questions and passages."""

    def build(self, corpus: pl.DataFrame, index: Folder, do: Do) -> None:
        """Write the index of CORPUS."""

    def search(
        self, index: Folder, queries: pl.DataFrame, work: Folder, depth: int, per_shard: int, do: Do
    ) -> pl.DataFrame:
        """Return RUNS without run_id; a query without matches has no row.

        ``work`` is for intermediate files; an index in shards is searched by ``per_shard`` passages a task.
        """


class Index(Protocol):
    """A searchable index in memory."""

    def search(self, queries: pl.DataFrame, depth: int) -> pl.DataFrame:
        """Return RUNS without run_id, in the order of QUERIES; a query without matches has no row.

        A column ``seconds``, if there is one, is the latency of the query: the same in all rows of a list.
        """


class InMemory(Protocol):
    """A retriever in memory: the protocol for outside code, given as a class or an instance."""

    @property
    def settings(self) -> Mapping[str, object]:
        """All that the lists depend on, except questions and passages."""

    def index(self, corpus: pl.DataFrame) -> Index:
        """Index the passages of CORPUS."""


INDEXED = {
    "bm25": "erag_ray.retrieve.bm25:Bm25",
    "dense": "erag_ray.retrieve.dense.index:Dense",
    "lucene": "erag_ray.retrieve.lucene:Lucene",
}
IN_MEMORY = {"random": "erag_ray.retrieve.random_baseline:Random"}
OF_RUNS = {
    "rrf": "erag_ray.retrieve.rrf:ReciprocalRank",
    "rerank": "erag_ray.retrieve.dense.reranking:CrossEncoder",
    "rerank by": "erag_ray.retrieve.dense.reranking:ByVectors",
}
OUTSIDE = dict.fromkeys(OUTSIDE_KINDS, "erag_ray.retrieve.outside.runs:OutsideRetriever")


def make_retriever(name: str, config: RetrieverConfig) -> Any:
    """Return the retriever of a run: of a kind above, or of ``package.module:name``.

    Raises:
        ValueError: the kind is unknown, or its settings are invalid.
        InputError: its model is missing, or user code raised.
    """
    paths = {**INDEXED, **IN_MEMORY, **OF_RUNS, **OUTSIDE}
    key = "rerank by" if config.kind == "rerank" and config.by else config.kind
    if key not in paths:
        return _from_outside(name, config)
    retriever_class: Any = find("retriever", paths[key], {})
    if key in ("dense", "rerank", *OUTSIDE):
        return retriever_class(config=config, name=name)
    return retriever_class(config=config)


def _from_outside(name: str, config: RetrieverConfig) -> Any:
    """Return a retriever of outside code; a class is instantiated, with ``config`` if it has that parameter."""
    retriever: Any = find("retriever", config.kind, dict.fromkeys([*INDEXED, *IN_MEMORY, *OF_RUNS, *OUTSIDE]))
    with checking(f"retrievers.{name}", retriever):
        if isinstance(retriever, type):
            takes_config = "config" in inspect.signature(retriever).parameters
            retriever = retriever(config=config) if takes_config else retriever()
        settings, index = getattr(retriever, "settings", None), getattr(retriever, "index", None)
    if not isinstance(settings, Mapping) or index is None:
        raise ValueError(f"{config.kind} is not a retriever: it needs settings and index")
    try:
        fingerprint(dict(settings))
    except TypeError as error:
        raise ValueError(f"{config.kind}: settings: {error}") from error
    return retriever
