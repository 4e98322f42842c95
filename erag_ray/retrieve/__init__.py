"""Retrieval: QUERIES and CORPUS to RUNS. Lists are best first; ties are ordered by descending doc_id, as in trec_eval.

Kinds of retrievers (`run.Retriever`):

- with an index on disk (`run.Indexed`: bm25, dense): ``build`` writes the index and ``search`` reads it, both
  as numbered tasks (`sharded_tasks`), which run in this process or on a cluster;
- with an index in memory (`run.InMemory`, code of the user's own): ``index(corpus)`` returns an object with
  ``search(queries, depth)``;
- random, and of other runs (`without_index`, `dense.reranking`);
- `outside`: objects of other libraries, functions, HTTP services; they have their own index, and bring the texts of
  their documents.

A new retriever is one class and one line in `RETRIEVERS`, which has import paths, not classes, so that lexical
retrieval does not import torch.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from erag_ray.config.retrieval import KEYS, OUTSIDE_KINDS, RetrieverConfig
from erag_ray.retrieve.run import InMemory
from erag_ray.store.fingerprints import fingerprint
from erag_ray.support.registry import find
from erag_ray.support.user_code import checking

RETRIEVERS = {
    "bm25": "erag_ray.retrieve.bm25:Bm25",
    "dense": "erag_ray.retrieve.dense.index:Dense",
    "random": "erag_ray.retrieve.without_index:Random",
    "rrf": "erag_ray.retrieve.without_index:ReciprocalRank",
    "rerank": "erag_ray.retrieve.dense.reranking:CrossEncoder",
    "rerank by": "erag_ray.retrieve.dense.reranking:ByVectors",
    **dict.fromkeys(OUTSIDE_KINDS, "erag_ray.retrieve.outside.runs:OutsideRetriever"),
}


def make_retriever(name: str, config: RetrieverConfig) -> Any:
    """Return the retriever of a run: of `RETRIEVERS`, or of ``package.module:name``.

    Raises:
        ValueError: the kind is unknown, or its settings are invalid.
        InputError: its model is missing, or user code raised.
    """
    if config.kind not in KEYS:
        return InMemory(name=name, config=config, code=_from_outside(name, config))
    kind: type[Any] = find("retriever", RETRIEVERS["rerank by" if config.by else config.kind], {})
    return kind(name=name, config=config)


def _from_outside(name: str, config: RetrieverConfig) -> Any:
    """Return a retriever of outside code; a class is instantiated, with ``config`` if it has that parameter."""
    retriever: Any = find("retriever", config.kind, dict.fromkeys(KEYS))
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
