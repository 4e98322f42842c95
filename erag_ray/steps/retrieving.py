"""Pages -> passages; questions and passages -> sealed runs. What is sealed with the same settings is not made again."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Mapping
from typing import Any

import polars as pl

from erag_ray.config import RetrieveConfig, run_name
from erag_ray.corpus import SPLITTERS, make_corpus
from erag_ray.datasets import Findings, load_passages, load_queries
from erag_ray.names import find
from erag_ray.progress import counted
from erag_ray.retrieve import LIST_COLUMNS, RETRIEVERS, Index, Retriever
from erag_ray.schemas import RUNS, conform
from erag_ray.steps import say
from erag_ray.steps.checks import attempt, check_places
from erag_ray.store import TableStore, file_stamp, fingerprint, provenance_of_code, read_manifest

QUERY_KEYS = ("queries", "query_format", "triviaqa_questions", "dataset", "where")
QUERIES_AT_A_TIME = 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class MadeRun:
    """A sealed run: its file, its counts and what it took; one that was there has taken nothing."""

    run_id: str
    path: str
    num_queries: int
    num_without_list: int
    num_rows: int
    indexing_seconds: float = 0.0
    searching_seconds: float = 0.0

    def __str__(self) -> str:
        """A line for people."""
        empty = f"{self.num_without_list:,} without a matching word"
        counts = f"{self.run_id}: {self.num_queries:,} questions, {self.num_rows:,} documents, {empty}"
        if not self.searching_seconds:
            return f"{counts}; was there already: {self.path}"
        rate = self.num_queries / self.searching_seconds
        return f"{counts}; indexed in {self.indexing_seconds:.1f} s, {rate:,.0f} questions/s: {self.path}"


def retrieve(config: RetrieveConfig) -> list[MadeRun]:
    """Every retriever's run over all questions: ``<out>/runs/NAME.parquet``, sealed by ``NAME.json`` beside it.

    Raises:
        InputError: everything that is wrong with the config, the questions, the pages or the passages.
    """
    findings = Findings()
    retrievers = _checked(config, findings)
    queries = _queries(config, findings)
    if config.knowledge_source:
        # splitting pages may take long
        findings.raise_problems()
    passages = _passages_of(config)
    stamps = {path: file_stamp(path) for path in [*config.queries, *config.triviaqa_questions, *passages]}
    runs = {name: _Run(config, name, retriever, stamps) for name, retriever in retrievers.items()}
    found = {name: run.sealed() for name, run in runs.items()}
    # where every run is there, nothing needs the passages
    all_there = bool(runs) and None not in found.values()
    corpus = pl.DataFrame() if all_there else load_passages(passages, findings)
    findings.raise_problems()
    say(*findings.notes)
    return [found[name] or run.make(queries, corpus) for name, run in runs.items()]


def _checked(config: RetrieveConfig, findings: Findings) -> dict[str, Retriever]:
    """The name of each run and its retriever; those that are not there are problems."""
    check_places({"out": config.out}, findings)
    attempt(findings, "splitter", functools.partial(find, "splitter", config.splitter, SPLITTERS))
    known = [
        name
        for name in config.retrievers
        if attempt(findings, "retrievers", functools.partial(find, "retriever", name, RETRIEVERS))
    ]
    return {run_name(name): find("retriever", name, RETRIEVERS) for name in known}


def _queries(config: RetrieveConfig, findings: Findings) -> pl.DataFrame:
    loaded = load_queries(
        config.queries,
        findings,
        format=config.query_format,
        dataset=config.dataset,
        triviaqa_questions=config.triviaqa_questions,
        where=config.where,
    )
    return loaded.queries.sort("query_id")


def _passages_of(config: RetrieveConfig) -> list[str]:
    if not config.knowledge_source:
        return config.passages
    tell = say if config.progress else None
    made = make_corpus(config.knowledge_source, config.out, splitter=config.splitter, tell=tell)
    state = "sealed" if made.is_new else "was there already"
    say(*made.notes, f"{made.num_pages:,} pages, {made.num_passages:,} passages: {state}: {made.place}")
    return [made.place]


class _Run:
    """One run of the job: where it is, and what it is made from."""

    def __init__(
        self, config: RetrieveConfig, name: str, retriever: Retriever, stamps: Mapping[str, str]
    ) -> None:
        self.name = name
        self._job = config
        self._retriever = retriever
        self._tables = TableStore(config.out)
        settings = {key: getattr(config, key) for key in (*QUERY_KEYS, "depth")}
        self._made_from = {"config": {**settings, **retriever.settings}, "inputs": dict(stamps)}

    def sealed(self) -> MadeRun | None:
        """The run, if it is there and was made from the same with the same settings."""
        if not self._tables.folder.exists(RUNS.name, f"{self.name}.json"):
            return None
        manifest = read_manifest(self._tables.folder, RUNS.name, name=f"{self.name}.json")
        made_from = {key: manifest.get(key) for key in self._made_from}
        return self._described(manifest) if fingerprint(made_from) == fingerprint(self._made_from) else None

    def make(self, queries: pl.DataFrame, corpus: pl.DataFrame) -> MadeRun:
        """Index, search, write, seal."""
        start = time.monotonic()
        index = self._retriever.index(corpus)
        indexed = time.monotonic()
        lists = self._search(index, queries)
        searched = time.monotonic()
        manifest = self._seal(lists, queries.height)
        return dataclasses.replace(
            self._described(manifest), indexing_seconds=indexed - start, searching_seconds=searched - indexed
        )

    def _search(self, index: Index, queries: pl.DataFrame) -> pl.DataFrame:
        found: list[pl.DataFrame] = []
        done = 0
        with counted(f"questions by {self.name}", queries.height, show=self._job.progress) as told:
            for batch in queries.iter_slices(QUERIES_AT_A_TIME):
                found.append(index.search(batch, self._job.depth))
                done += batch.height
                told(done)
        return pl.concat([pl.DataFrame(schema=LIST_COLUMNS), *found]).with_columns(run_id=pl.lit(self.name))

    def _seal(self, lists: pl.DataFrame, num_queries: int) -> dict[str, Any]:
        folder = self._tables.folder
        folder.delete(RUNS.name, f"{self.name}.json")
        digest = folder.write_parquet(conform(lists, RUNS), RUNS.name, f"{self.name}.parquet")
        manifest = {
            "run_id": self.name,
            "num_rows": lists.height,
            "num_queries": num_queries,
            "num_without_list": num_queries - lists["query_id"].n_unique(),
            "sha256": digest,
            **self._made_from,
            **provenance_of_code(),
        }
        self._tables.write_manifest(manifest, RUNS.name, name=f"{self.name}.json")
        return manifest

    def _described(self, manifest: Mapping[str, Any]) -> MadeRun:
        return MadeRun(
            run_id=self.name,
            path=self._tables.folder.at(RUNS.name, f"{self.name}.parquet"),
            num_queries=manifest["num_queries"],
            num_without_list=manifest["num_without_list"],
            num_rows=manifest["num_rows"],
        )
