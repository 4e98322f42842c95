"""Passages from texts, and lists as text."""

from __future__ import annotations

import tempfile

import polars as pl

from erag_ray.config.retrieval import RetrieverConfig
from erag_ray.retrieve import make_retriever
from erag_ray.retrieve.stage import do_here
from erag_ray.store.folder import Folder
from erag_ray.store.schemas import CORPUS


def corpus_of(texts: dict[str, tuple[str, str]]) -> pl.DataFrame:
    rows = [(name, None, title, text) for name, (title, text) in texts.items()]
    return pl.DataFrame(rows, schema=CORPUS.columns.names, orient="row").cast({"page_id": pl.String})


def questions(*texts: str) -> pl.DataFrame:
    return pl.DataFrame({"query_id": [f"q{number}" for number in range(len(texts))], "question": texts})


def searched(corpus: pl.DataFrame, *texts: str, depth: int = 50, **settings: object) -> pl.DataFrame:
    """The lists of some questions by an index that is built for them alone, by bm25 unless the settings say else."""
    config = RetrieverConfig(**{"kind": "bm25", **settings})  # type: ignore[arg-type]
    retriever = make_retriever("indexed", config)
    with tempfile.TemporaryDirectory() as place:
        index, work = Folder(f"{place}/index"), Folder(f"{place}/work")
        retriever.build(corpus, index, do_here)
        found: pl.DataFrame = retriever.search(index, questions(*texts), work, depth, do_here)
    return found


def lists_of(corpus: pl.DataFrame, *texts: str, depth: int = 50) -> list[list[tuple[str, float]]]:
    """The list of each question as (doc_id, score)."""
    found = searched(corpus, *texts, depth=depth)
    parts = [found.filter(query_id=f"q{number}") for number in range(len(texts))]
    for part in parts:
        assert part["rank"].to_list() == list(range(1, part.height + 1))
    return [part.select("doc_id", "score").rows() for part in parts]
