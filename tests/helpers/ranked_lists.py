"""Passages from texts, and lists as text."""

import tempfile
import types
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from erag_ray.config.retrieval import RetrieverConfig, SearchConfig
from erag_ray.retrieve import make_retriever
from erag_ray.retrieve.run import Indexed, Sources
from erag_ray.store.folder import Folder
from erag_ray.store.schemas import CORPUS, RUNS, conform
from erag_ray.store.sharded_tasks import do_tasks


def corpus_of(texts: dict[str, tuple[str, str]]) -> pl.DataFrame:
    rows = [(name, None, title, text) for name, (title, text) in texts.items()]
    return pl.DataFrame(rows, schema=CORPUS.columns.names, orient="row").cast({"page_id": pl.String})


def runs_of(lists: Mapping[str, Mapping[str, str | Sequence[str]]]) -> pl.DataFrame:
    """RUNS of run -> query -> documents, a text of which has blanks between them."""
    rows = [
        (run, query, rank, doc, None)
        for run, of_run in lists.items()
        for query, docs in of_run.items()
        for rank, doc in enumerate(docs.split() if isinstance(docs, str) else docs, 1)
    ]
    return pl.DataFrame(conform(pl.DataFrame(rows, schema=RUNS.columns.names, orient="row"), RUNS))


def questions(*texts: str) -> pl.DataFrame:
    return pl.DataFrame({"query_id": [f"q{number}" for number in range(len(texts))], "question": texts})


def run_of(folder: object, retriever: Any, *, depth: int = 50, **others: Any) -> Any:
    """What a retriever is told of its run, whose files are in a folder, and of the runs that it uses."""
    job = types.SimpleNamespace(depth=depth, search=SearchConfig())
    folders = {name: Folder(f"{folder}/{name}") for name in ("index", "work")}
    return types.SimpleNamespace(retriever=retriever, job=job, others=others, **folders)


def searched(corpus: pl.DataFrame, *texts: str, depth: int = 50, **settings: object) -> pl.DataFrame:
    """The lists of some questions by a retriever, with an index for them alone: bm25 unless the settings say else."""
    config = RetrieverConfig(**{"kind": "bm25", **settings})  # type: ignore[arg-type]
    retriever = make_retriever("indexed", config)
    with tempfile.TemporaryDirectory() as place:
        run = run_of(place, retriever, depth=depth)
        if isinstance(retriever, Indexed):
            retriever.build(corpus, run.index, do_tasks)
        found: pl.DataFrame = retriever.lists(
            run, Sources(queries=questions(*texts), corpus=corpus), do_tasks
        )
    return found


def lists_of(corpus: pl.DataFrame, *texts: str, depth: int = 50) -> list[list[tuple[str, float]]]:
    """The list of each question as (doc_id, score)."""
    found = searched(corpus, *texts, depth=depth)
    parts = [found.filter(query_id=f"q{number}") for number in range(len(texts))]
    for part in parts:
        assert part["rank"].to_list() == list(range(1, part.height + 1))
    return [part.select("doc_id", "score").rows() for part in parts]
