"""One run of a retrieval job: its files and its seal; and `Retriever`, by which its lists are computed."""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa

from erag_ray.config.inputs import QuestionKeys
from erag_ray.config.retrieval import RetrieveConfig, RetrieverConfig
from erag_ray.data.runs.entries import as_entries
from erag_ray.data.runs.orders import rising_fault
from erag_ray.retrieve.lists import LIST_COLUMNS, PAIRS_PER_PART, QUERIES_PER_TASK, TEXTS_PER_PART
from erag_ray.store.fingerprints import code_stamp, fingerprint, provenance_of_code
from erag_ray.store.folder import Folder
from erag_ray.store.schemas import RUNS, conform
from erag_ray.store.sharded_tasks import Do
from erag_ray.store.tables import TableStore, whole_manifest
from erag_ray.support.errors import InputError
from erag_ray.support.progress import counted, stage_progress
from erag_ray.support.user_code import running

QUERIES_AT_A_TIME = 200
BROUGHT = ("title", "text", "seconds")
"""What a list may bring along, next to RUNS."""
MADE_FROM = "made_from.json"
SEAL = "manifest.json"
RUN_FORM = {"run_id": str, "num_rows": int, "num_queries": int, "num_without_list": int, "sha256": str}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MadeRun:
    """A sealed run: its file, its counts, and the seconds that it took (0 if it already existed)."""

    run_id: str
    path: str
    num_queries: int
    num_without_list: int
    num_rows: int
    sha256: str
    indexing_seconds: float = 0.0
    searching_seconds: float = 0.0

    def __str__(self) -> str:
        empty = f"{self.num_without_list:,} without a list"
        counts = f"{self.run_id}: {self.num_queries:,} questions, {self.num_rows:,} documents, {empty}"
        if not self.searching_seconds:
            return f"{counts}; already existed: {self.path}"
        rate = self.num_queries / self.searching_seconds
        indexed = f"indexed in {self.indexing_seconds:.1f} s, " if self.indexing_seconds else ""
        return f"{counts}; {indexed}{rate:,.0f} questions/s: {self.path}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sources:
    """QUERIES, and CORPUS (empty if no run needs it)."""

    queries: pl.DataFrame
    corpus: pl.DataFrame


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retriever(abc.ABC):
    """One way to rank passages, as a config names it."""

    name: str
    config: RetrieverConfig
    brings_texts: ClassVar = False
    """Whether its lists have the texts of their documents, so that neither it nor what uses them needs passages."""

    @property
    @abc.abstractmethod
    def settings(self) -> Mapping[str, object]:
        """All that the lists depend on, except questions and passages."""

    def chosen(self, *keys: str) -> dict[str, Any]:
        """Return these keys of the config."""
        return {key: getattr(self.config, key) for key in keys}

    def needs_passages(self, run: Run) -> bool:
        """Return whether the run needs texts of passages."""
        return False

    def prepare(self, run: Run, sources: Sources, do: Do) -> None:  # noqa: B027 (most have nothing to prepare)
        """Build what several runs can use, such as an index, unless it exists."""

    @abc.abstractmethod
    def lists(self, run: Run, sources: Sources, do: Do) -> pl.DataFrame:
        """Return RUNS without run_id; a query without matches has no row."""


class Run:
    """One run of the job.

    ``others`` are the runs that the retriever uses, by name, and ``stamps`` those of the files of "queries" and of
    "passages" (`store.fingerprints.file_stamp`).
    """

    def __init__(
        self,
        job: RetrieveConfig,
        retriever: Retriever,
        others: Mapping[str, Run],
        stamps: Mapping[str, Mapping[str, str]],
    ) -> None:
        self.name = retriever.name
        self.retriever = retriever
        self.others = others
        self.job = job
        self.stamps = stamps
        out = job.out.rstrip("/")
        self.index = Folder(f"{out}/indexes/{self.name}")
        self.work = Folder(f"{out}/work/{self.name}")
        self.tables = TableStore(job.out)
        self.settings = {"kind": retriever.config.kind, **retriever.settings}
        # of the sample the seal says more
        keys = {one.name for one in dataclasses.fields(QuestionKeys)} - {"num_queries", "seed"}
        query_settings = {key: getattr(job, key) for key in (*keys, "depth")}
        of = {other.name: other.made_from["config"] for other in others.values()}
        # sizes of the tasks: an interrupted run resumes only with the same
        self.cut = [job.search.passages_per_shard, QUERIES_PER_TASK, TEXTS_PER_PART, PAIRS_PER_PART]
        self.made_from: dict[str, Any] = {
            "config": {**query_settings, **self.settings, "of": of},
            "inputs": {**stamps["queries"], **({} if retriever.brings_texts else stamps["passages"])},
        }
        self.sample = None if job.num_queries is None else [job.num_queries, job.seed]

    def read(self, queries: pl.DataFrame) -> pl.DataFrame:
        """Return the documents of the sealed run for these questions; the run may have others too."""
        documents = read_run(self.job.run(self.name), self.name)
        return documents.join(queries, on="query_id", how="semi", maintain_order="left")

    def sealed(self) -> MadeRun | None:
        """Return the sealed run if it has the same inputs and settings and covers the questions, else None."""
        manifest = whole_manifest(self.tables.folder, RUNS.name, name=f"{self.name}.json", form=RUN_FORM)
        if manifest is None:
            return None
        made_from = {key: manifest.get(key) for key in self.made_from}
        sample = manifest.get("sample")
        # all questions include this job's, and a larger sample of its seed
        covers = sample is None or (
            self.sample and sample[1] == self.sample[1] and sample[0] >= self.sample[0]
        )
        folder, name = self.tables.folder, (RUNS.name, f"{self.name}.parquet")
        if not covers or fingerprint(made_from) != fingerprint(self.made_from) or not folder.exists(*name):
            return None
        is_whole = hashlib.sha256(folder.read_bytes(*name)).hexdigest() == manifest["sha256"]
        return self._described(manifest) if is_whole else None

    def make(self, sources: Sources, do: Do) -> MadeRun:
        """Build the index if needed, search, write and seal."""
        start = time.monotonic()
        self.retriever.prepare(self, sources, do)
        prepared = time.monotonic()
        claim_folder(self.work, {**self.made_from, "sample": self.sample, "cut": self.cut})
        lists = self.retriever.lists(self, sources, do).with_columns(run_id=pl.lit(self.name))
        searched = time.monotonic()
        manifest = self._seal(lists, sources.queries.height)
        self.tables.folder.delete_folder("work", self.name)
        return dataclasses.replace(
            self._described(manifest),
            indexing_seconds=prepared - start,
            searching_seconds=searched - prepared,
        )

    def _seal(self, lists: pl.DataFrame, num_queries: int) -> dict[str, Any]:
        folder = self.tables.folder
        folder.delete(RUNS.name, f"{self.name}.json")
        digest = folder.write_parquet(_with_brought(lists), RUNS.name, f"{self.name}.parquet")
        lists = lists.filter(pl.col("rank") > 0)
        manifest = {
            "run_id": self.name,
            "num_rows": lists.height,
            "num_queries": num_queries,
            "num_without_list": num_queries - lists["query_id"].n_unique(),
            "sha256": digest,
            "sample": self.sample,
            **self.made_from,
            **provenance_of_code(),
        }
        self.tables.write_manifest(manifest, RUNS.name, name=f"{self.name}.json")
        return manifest

    def _described(self, manifest: Mapping[str, Any]) -> MadeRun:
        return MadeRun(path=self.job.run(self.name), **{key: manifest[key] for key in RUN_FORM})


class Indexed(Retriever):
    """A retriever with an index on disk, which is reused for other questions."""

    @abc.abstractmethod
    def build(self, corpus: pl.DataFrame, index: Folder, do: Do) -> None:
        """Write the index of CORPUS."""

    def needs_passages(self, run: Run) -> bool:
        """Return whether the index is missing."""
        return not (run.index.exists(SEAL) and is_made_from(run.index, _index_made_from(run)))

    def prepare(self, run: Run, sources: Sources, do: Do) -> None:
        if not self.needs_passages(run):
            return
        made_from = _index_made_from(run)
        claim_folder(run.index, made_from)
        with stage_progress(f"indexing by {self.name}", show=run.job.progress):
            self.build(sources.corpus, run.index, do)
        manifest = {**made_from, "num_passages": sources.corpus.height, **provenance_of_code()}
        run.tables.write_manifest(manifest, "indexes", self.name)


def _index_made_from(run: Run) -> dict[str, Any]:
    return {"config": {**run.settings, "cut": TEXTS_PER_PART}, "inputs": dict(run.stamps["passages"])}


@dataclasses.dataclass(frozen=True, kw_only=True)
class InMemory(Retriever):
    """A retriever with an index in memory."""

    code: Any
    """Has ``settings``, all that the lists depend on except questions and passages, and ``index(corpus)``: an object
    with ``search(queries, depth)``, which returns RUNS without run_id, in the order of QUERIES, where a query without
    matches has no row; a column ``seconds``, if there is one, is the same in all rows of a list."""

    @property
    def settings(self) -> Mapping[str, object]:
        """The settings of the code, and a stamp of its module."""
        return {**self.code.settings, "module": code_stamp(self.config.kind)}

    def needs_passages(self, run: Run) -> bool:
        return True

    def lists(self, run: Run, sources: Sources, do: Do) -> pl.DataFrame:
        """Index the passages and search, batch by batch."""
        name, depth = f"retrievers.{self.name}", run.job.depth
        with running(name, self.code):
            index = self.code.index(sources.corpus)
        doc_ids = sources.corpus.select("doc_id")
        parts, done, queries = [pl.DataFrame(schema=LIST_COLUMNS)], 0, sources.queries
        with counted(f"questions by {self.name}", queries.height, show=run.job.progress) as on_progress:
            for batch in queries.iter_slices(QUERIES_AT_A_TIME):
                with running(name, self.code):
                    parts.append(_checked(index.search(batch, depth), batch, doc_ids, depth, self.name))
                done += batch.height
                on_progress(done)
        lists = pl.concat(parts, how="diagonal")
        if fault := rising_fault(lists, name):
            raise InputError([fault])
        return lists


def _checked(
    lists: pl.DataFrame, queries: pl.DataFrame, doc_ids: pl.DataFrame, depth: int, name: str
) -> pl.DataFrame:
    """Check the lists of code that may be from outside, and cut them to the depth."""
    by_rank = pl.int_range(1, pl.len() + 1).over("query_id", order_by="rank")
    faults = {
        "returns documents that are not in the passages": lists.join(doc_ids, on="doc_id", how="anti"),
        "returns lists of other questions": lists.join(queries, on="query_id", how="anti"),
        "returns a document more than once": lists.filter(pl.struct("query_id", "doc_id").is_duplicated()),
        "ranks must be 1, 2, ... in each list": lists.filter(pl.col("rank") != by_rank),
    }
    for fault, rows in faults.items():
        for query_id, rank, doc_id in rows.select("query_id", "rank", "doc_id").head(1).iter_rows():
            text = f"{fault}, such as {doc_id!r} at rank {rank} for query {query_id!r}"
            raise InputError([f"retrievers.{name}: {text}"])
    cut = lists.filter(pl.col("rank") <= depth).cast({"rank": pl.Int32, "score": pl.Float64})
    timed = {"seconds": pl.Float64()} if "seconds" in lists.columns else {}
    cut = cut.match_to_schema(pl.Schema({**LIST_COLUMNS, **timed}))
    conform(cut.select(*LIST_COLUMNS.names(), run_id=pl.lit(name)), RUNS)
    return cut


def _with_brought(lists: pl.DataFrame) -> pa.Table:
    """Return RUNS with the columns that a list may bring along (title, text, seconds), and rows of rank 0 last."""
    brought = [name for name in BROUGHT if name in lists.columns]
    documents, found_nothing = lists.filter(pl.col("rank") > 0), lists.filter(pl.col("rank") == 0)
    runs = pl.DataFrame(conform(documents.select(RUNS.columns.names), RUNS))
    whole = runs.hstack(documents.select(brought).get_columns())
    return pl.concat([whole, found_nothing.select(whole.columns).cast(whole.schema)]).to_arrow()


def read_run(path: str, run_id: str) -> pl.DataFrame:
    """Return the documents of a sealed run: RUNS, with texts and latencies if its retriever brings them."""
    folder, _, name = path.rpartition("/")
    return as_entries(pl.DataFrame(Folder(folder).read_parquet(name)).filter(pl.col("rank") > 0), run_id)


def claim_folder(folder: Folder, made_from: Mapping[str, Any]) -> None:
    """Mark a folder as made from these inputs; empty it first if it was made from others."""
    if not is_made_from(folder, made_from):
        folder.delete_folder()
        folder.write_bytes(json.dumps({"fingerprint": fingerprint(made_from)}).encode(), MADE_FROM)


def is_made_from(folder: Folder, made_from: Mapping[str, Any]) -> bool:
    """Return whether the folder is marked as made from these inputs."""
    mark = whole_manifest(folder, name=MADE_FROM)
    return mark is not None and bool(mark.get("fingerprint") == fingerprint(made_from))
