"""Retrieval: one measurement each, ours and its peer's in turn: seconds, peak memory, bytes on disk."""

import pathlib
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import bm25s
import faiss
import numpy as np
import numpy.typing as npt
import polars as pl
import rank_bm25
import sentence_transformers

from bench.config import BenchmarkConfig
from bench.synthetic_texts import passages, questions, unit_vectors
from bench.timing import Row, in_turn, seconds_of
from erag_ray.config.retrieval import RetrieverConfig
from erag_ray.retrieve import make_retriever
from erag_ray.retrieve.analysers import English
from erag_ray.retrieve.bm25 import open_index
from erag_ray.retrieve.dense.encoders import Encoder, find_encoder, preset_named
from erag_ray.retrieve.dense.index import Shard
from erag_ray.retrieve.lists import TEXTS_PER_PART
from erag_ray.retrieve.run import Sources
from erag_ray.store.folder import Folder
from erag_ray.store.sharded_tasks import do_tasks, part, write_array

RANK_BM25_QUERIES = 20
PER_SHARD = 1_000_000


def bytes_in(folder: pathlib.Path) -> int:
    """All files in a folder together."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def write_passages(config: BenchmarkConfig, size: int) -> Iterator[Row]:
    """Write the passages that the others read; nothing is measured."""
    pathlib.Path(config.out).mkdir(parents=True, exist_ok=True)
    passages(size, config.seed).write_parquet(_passages_of(config, size))
    yield from ()


def _passages_of(config: BenchmarkConfig, size: int) -> pathlib.Path:
    return pathlib.Path(config.out, f"passages-{size}.parquet")


def _texts(config: BenchmarkConfig, size: int) -> list[str]:
    return pl.read_parquet(_passages_of(config, size), columns=["text"])["text"].to_list()


def bm25_build(config: BenchmarkConfig, size: int) -> Iterator[Row]:
    """Building our index, from passages in memory."""
    folder = pathlib.Path(config.out, f"bm25-{size}")
    corpus = pl.read_parquet(_passages_of(config, size))
    retriever = make_retriever("bm25", RetrieverConfig(kind="bm25"))
    seconds = seconds_of(lambda: retriever.build(corpus, Folder(str(folder)), do_tasks))
    yield {
        "what": "bm25 build",
        "by": "erag_ray",
        "seconds": seconds,
        "count": size,
        "disk_bytes": bytes_in(folder),
    }


def bm25_build_peer(config: BenchmarkConfig, size: int) -> Iterator[Row]:
    """Building the index of `bm25s`, from the same passages."""
    texts = _texts(config, size)
    engine = bm25s.BM25(k1=0.9, b=0.4, method="lucene", backend="numba")

    def build() -> None:
        engine.index(English()(texts), show_progress=False)

    yield {"what": "bm25 build", "by": "bm25s", "seconds": seconds_of(build), "count": size}


def bm25_search(config: BenchmarkConfig, size: int) -> Iterator[Row]:
    """Searching our index, and its arrays with `bm25s` itself."""
    queries = questions(config.num_queries, config.seed)
    index, work = Folder(f"{config.out}/bm25-{size}"), Folder(f"{config.out}/work")
    retriever = make_retriever("bm25", RetrieverConfig(kind="bm25"))
    run: Any = types.SimpleNamespace(index=index, work=work, job=config)

    def ours() -> None:
        work.delete_folder()
        retriever.lists(run, Sources(queries=queries, corpus=pl.DataFrame()), do_tasks)

    engine, numbers = open_index(index, num_docs=size, method="lucene", is_compiled=True)

    def peer() -> None:
        words = English()(queries["question"].to_list())
        known = [[numbers[word] for word in one if word in numbers] for one in words]
        engine.retrieve(known, k=config.depth, show_progress=False)

    works: dict[str, Callable[[], object]] = {"erag_ray": ours, "bm25s": peer}
    for compile_once in works.values():
        compile_once()
    for by, seconds in in_turn(works, config.repeats).items():
        yield {"what": "bm25 search", "by": by, "seconds": seconds, "count": config.num_queries}


def rank_bm25_search(config: BenchmarkConfig, size: int) -> Iterator[Row]:
    """Searching with `rank_bm25`."""
    lists = English()(_texts(config, size))
    engine = rank_bm25.BM25Okapi(lists, k1=0.9, b=0.4)
    queries = English()(questions(RANK_BM25_QUERIES, config.seed)["question"].to_list())
    seconds = seconds_of(lambda: [engine.get_top_n(one, range(size), n=config.depth) for one in queries])
    yield {"what": "bm25 search", "by": "rank_bm25", "seconds": seconds, "count": len(queries)}


def dense_search(config: BenchmarkConfig, size: int) -> Iterator[Row]:
    """Searching random vectors, a shard after the other: with ours, and with a flat index of Faiss over the same."""
    index = Folder(f"{config.out}/dense-{size}")
    parts = range(_write_vectors(index, config, size))
    queries = unit_vectors(config.num_queries, config.width, config.seed - 1 if config.seed else 987_654)
    per_shard = PER_SHARD // TEXTS_PER_PART
    opening, searching = 0.0, {"erag_ray": 0.0, "faiss": 0.0}
    for first in parts[::per_shard]:
        start = time.perf_counter()
        shard = Shard(index, parts[first : first + per_shard])
        opening += time.perf_counter() - start
        for by, seconds in in_turn(_searches(shard, queries, config), config.repeats).items():
            searching[by] += seconds
    yield {
        "what": "dense opening",
        "by": "erag_ray",
        "seconds": opening,
        "count": size,
        "disk_bytes": bytes_in(pathlib.Path(index.path)),
    }
    for by, seconds in searching.items():
        yield {"what": "dense search", "by": by, "seconds": seconds, "count": config.num_queries}


def _write_vectors(index: Folder, config: BenchmarkConfig, size: int) -> int:
    """An index of random vectors; gives the number of its parts."""
    num_parts = -(-size // TEXTS_PER_PART)
    for number in range(num_parts):
        count = min(TEXTS_PER_PART, size - number * TEXTS_PER_PART)
        halves = unit_vectors(count, config.width, config.seed + number).astype(np.float16)
        write_array(halves, index, "vectors", f"{part(number)}.npy")
    return num_parts


def _searches(
    shard: Shard, queries: npt.NDArray[np.float32], config: BenchmarkConfig
) -> dict[str, Callable[[], object]]:
    raw = faiss.IndexFlatIP(config.width)
    for start in range(0, len(shard.vectors), TEXTS_PER_PART):
        raw.add(shard.vectors[start : start + TEXTS_PER_PART].astype(np.float32))
    return {
        "erag_ray": lambda: shard.search(queries, config.depth),
        "faiss": lambda: raw.search(queries, config.depth),
    }


def encode(config: BenchmarkConfig, size: int) -> Iterator[Row]:
    """Encoding passages of different lengths with ours, and with sentence-transformers as it comes."""
    generator = np.random.default_rng(config.seed)
    whole = passages(config.num_encoded, config.seed)["text"].to_list()
    lengths = generator.integers(20, 101, len(whole))
    texts = [" ".join(text.split()[:length]) for text, length in zip(whole, lengths, strict=True)]
    settings = RetrieverConfig(kind="dense", model=config.model)
    folder, preset = find_encoder(settings, "encode").folder, preset_named(settings)
    ours = Encoder(
        folder=folder, preset=preset, max_tokens=None, dtype="float32", batch_size=settings.batch_size
    )
    theirs = sentence_transformers.SentenceTransformer(folder)
    works: dict[str, Callable[[], object]] = {
        "erag_ray": lambda: ours(texts, "passage"),
        "sentence-transformers": lambda: theirs.encode(texts, show_progress_bar=False),
    }
    for by, seconds in in_turn(works, config.repeats).items():
        yield {"what": "encode", "by": by, "seconds": seconds, "count": len(texts)}
