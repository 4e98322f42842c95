"""Dense retrieval: an encoder's vectors and exact search by inner product (Faiss), over shards of passages.

Passages with the same text share one vector, of half precision; equal texts are thus ties. Faiss proposes candidates;
their scores are then computed one by one in double precision from the stored vectors and rounded to single, and more
candidates are taken until none that is left out could be better. So lists depend on no shards and
on no rounding of Faiss.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import faiss
import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.config import RetrieverConfig
from erag_ray.errors import JobError
from erag_ray.model_sources import ModelSource
from erag_ray.retrieve.dense.encoders import Encoder, Role, encoder_settings, find_encoder, preset_named
from erag_ray.retrieve.dense.inner_product import exact
from erag_ray.retrieve.lists import candidates, ranked
from erag_ray.retrieve.passage_fields import SEARCHED
from erag_ray.retrieve.shards import TEXTS_PER_PART, read_found
from erag_ray.sharded_tasks import Do, Tasks, part, read_frame, undone, write_frame
from erag_ray.store import Folder, open_array, write_array

MARGIN = 10
MOST_ON_A_GPU = 2048
"""Candidates per query that Faiss finds on a GPU; it raises when more are asked for."""


@dataclass(frozen=True, kw_only=True)
class Dense:
    """An encoder and exact search."""

    name: str
    config: RetrieverConfig
    source: ModelSource = field(init=False)
    index_has_shards: ClassVar[bool] = False

    def __post_init__(self) -> None:
        preset_named(self.config)
        object.__setattr__(self, "source", find_encoder(self.config, self.name))

    @property
    def settings(self) -> Mapping[str, object]:
        """What is searched, and all that a vector depends on."""
        return {
            "searches": self.config.searches,
            "vectors": "float16",
            **encoder_settings(self.config, self.source),
        }

    def build(self, corpus: pl.DataFrame, index: Folder, per_shard: int, do: Do) -> None:
        """Write the index of CORPUS: its distinct texts' vectors, and which documents have which text.

        It is the same for any ``per_shard``.
        """
        # in this order a tie goes to the document that stands first
        ordered = corpus.sort("doc_id", descending=True)
        rows = ordered.select("doc_id", text=SEARCHED[self.config.searches](ordered))
        rows = rows.filter(pl.col("text").str.strip_chars() != "")
        texts = rows.select("text").unique(maintain_order=True).with_row_index("number")
        num_parts = math.ceil(texts.height / TEXTS_PER_PART)
        for number, some in enumerate(texts.select("text").iter_slices(TEXTS_PER_PART)):
            write_frame(some, index, "texts", f"{part(number)}.parquet")
        self.encode(index, "passage", num_parts, do)
        documents = rows.join(texts, on="text", how="left", maintain_order="left").select("doc_id", "number")
        write_frame(documents, index, "documents.parquet")
        write_array(np.array([num_parts, TEXTS_PER_PART]), index, "parts.npy")
        index.delete_folder("texts")

    def encode(self, folder: Folder, role: Role, num_parts: int, do: Do) -> None:
        """Vectors of all ``texts`` of a folder."""
        settings = {
            "folder": folder.address,
            "role": role,
            "model": self.source.folder,
            "preset": preset_named(self.config),
            "max_tokens": self.config.max_tokens,
            "dtype": self.config.dtype,
            "batch_size": self.config.batch_size,
        }
        todo = undone(folder, "vectors", ".npy", num_parts)
        noun = f"parts of {TEXTS_PER_PART:,} texts encoded"
        do(Tasks(worker=EncodeTexts, settings=settings, numbers=todo, noun=noun))

    def encode_queries(self, queries: pl.DataFrame, work: Folder, do: Do) -> int:
        """Vectors of the queries in ``work``; gives the number of parts."""
        slices = list(queries.select(text="question").iter_slices(TEXTS_PER_PART))
        for number, some in enumerate(slices):
            write_frame(some, work, "texts", f"{part(number)}.parquet")
        self.encode(work, "query", len(slices), do)
        return len(slices)

    def search(
        self, index: Folder, queries: pl.DataFrame, work: Folder, depth: int, per_shard: int, do: Do
    ) -> pl.DataFrame:
        """The lists of QUERIES; a blank one has no row."""
        num_slices = self.encode_queries(queries, work, do)
        num_parts, texts_per_part = parts_of(index)
        parts_per_shard = max(1, per_shard // texts_per_part)
        num_shards = math.ceil(num_parts / parts_per_shard)
        settings = {
            "index": index.address,
            "work": work.address,
            "depth": depth,
            "num_slices": num_slices,
            "parts_per_shard": parts_per_shard,
        }
        todo = undone(work, "found", ".parquet", num_shards * num_slices)
        do(Tasks(worker=SearchVectors, settings=settings, numbers=todo, noun="searches"))
        blank = queries["question"].str.strip_chars() == ""
        asked = pl.Series(np.flatnonzero(~blank.to_numpy()), dtype=pl.UInt32)
        found = read_found(work, num_shards * num_slices).filter(pl.col("query").is_in(asked.implode()))
        return ranked(found, queries["query_id"], read_frame(index, "documents.parquet")["doc_id"], depth)


class EncodeTexts:
    """Encodes one part of ``texts``; leaves ``vectors``: of passages in half precision, of queries in single."""

    def __init__(self, *, folder: str, role: Role, model: str, **options: Any) -> None:
        self._folder = Folder(folder)
        self._role: Role = role
        self._encode = Encoder(folder=model, **options)

    def __call__(self, number: int) -> None:
        texts = read_frame(self._folder, "texts", f"{part(number)}.parquet")["text"]
        vectors: npt.NDArray[Any] = self._encode(texts.to_list(), self._role)
        if self._role == "passage":
            with np.errstate(over="ignore"):
                vectors = vectors.astype(np.float16)
        if not np.isfinite(vectors).all():
            row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
            raise JobError(
                f"the encoder gives a vector that half precision cannot hold, for the {self._role} {texts[row]!r}"
            )
        write_array(vectors, self._folder, "vectors", f"{part(number)}.npy")


class SearchVectors:
    """Searches one shard for a slice of the queries; leaves ``found``."""

    def __init__(self, *, index: str, work: str, depth: int, num_slices: int, parts_per_shard: int) -> None:
        self._index, self._work = Folder(index), Folder(work)
        self._depth = depth
        self._num_slices, self._parts_per_shard = num_slices, parts_per_shard
        self._documents = Documents(self._index)
        self._open: tuple[int, Shard] | None = None

    def __call__(self, number: int) -> None:
        place, piece = divmod(number, self._num_slices)
        if self._open is None or self._open[0] != place:
            self._open = (place, Shard(self._index, place, self._parts_per_shard))
        vectors = open_array(self._work, "vectors", f"{part(piece)}.npy")
        queries, all_places, all_scores = (
            [np.empty(0, np.uint32)],
            [np.empty(0, np.intp)],
            [np.empty(0, np.float32)],
        )
        for row, (texts, scores) in enumerate(self._open[1].search(vectors, self._depth)):
            places, own = self._documents.of(texts, self._depth)
            queries.append(np.full(len(places), piece * TEXTS_PER_PART + row, np.uint32))
            all_places.append(places)
            all_scores.append(scores[own])
        found = candidates(np.concatenate(queries), np.concatenate(all_places), np.concatenate(all_scores))
        write_frame(found, self._work, "found", f"{part(number)}.parquet")


class Documents:
    """Which documents have which text."""

    def __init__(self, index: Folder) -> None:
        numbers = read_frame(index, "documents.parquet")["number"].to_numpy()
        self._order = np.argsort(numbers, kind="stable")
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(numbers))]).astype(np.int64)

    def of(
        self, texts: npt.NDArray[np.int64], depth: int
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """The first ``depth`` places of each text, and for each place which of the texts it has."""
        places = [self._order[self._starts[text] : self._starts[text + 1]][:depth] for text in texts]
        own = np.repeat(np.arange(len(texts)), [len(some) for some in places])
        return np.concatenate([np.empty(0, np.intp), *places]), own


class Shard:
    """Some parts of an index's vectors, in Faiss: on one GPU where Faiss knows of any.

    Searches for more candidates than a GPU can select go to an index on the CPU, which is built when the first one
    comes. It holds the same vectors, and candidates are scored again in any case, so the lists are the same.
    """

    def __init__(self, index: Folder, number: int, parts_per_shard: int) -> None:
        num_parts, texts_per_part = parts_of(index)
        mine = range(number * parts_per_shard, min((number + 1) * parts_per_shard, num_parts))
        self.vectors = np.concatenate([open_array(index, "vectors", f"{part(one)}.npy") for one in mine])
        self._start = mine.start * texts_per_part
        self._on_gpu = hasattr(faiss, "index_cpu_to_gpu") and faiss.get_num_gpus() > 0
        self._faiss = _flat(self.vectors, on_gpu=self._on_gpu)
        lengths = [np.linalg.norm(rows.astype(np.float32), axis=1).max() for rows in _some(self.vectors)]
        self._longest = float(max(lengths, default=0.0))

    def search(
        self, queries: npt.NDArray[np.float32], depth: int
    ) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
        """The best texts of each query, at least ``depth`` if there are so many, with their scores."""
        found: list[Any] = [None] * len(queries)
        left, wide = np.arange(len(queries)), min(depth + MARGIN, len(self.vectors))
        while len(left):
            index = self._on_cpu if wide > MOST_ON_A_GPU else self._faiss
            rough, texts = index.search(np.ascontiguousarray(queries[left]), wide)
            scores = exact(queries[left], self.vectors, texts)
            kth = np.sort(scores, axis=1)[:, -min(depth, wide)]
            # what was left out scores less than the last candidate, but for rounding on the way
            error = 2 * queries.shape[1] * np.finfo(np.float32).eps * self._longest
            error = error * np.linalg.norm(queries[left], axis=1)
            done = (rough[:, -1] + error < kth) | (wide == len(self.vectors))
            for row in np.flatnonzero(done):
                found[left[row]] = (texts[row] + self._start, scores[row])
            left, wide = left[~done], min(2 * wide, len(self.vectors))
        return found

    @functools.cached_property
    def _on_cpu(self) -> Any:
        return _flat(self.vectors, on_gpu=False) if self._on_gpu else self._faiss


def parts_of(index: Folder) -> tuple[int, int]:
    """How many parts an index has, and how many texts each but the last."""
    num_parts, texts_per_part = open_array(index, "parts.npy")
    return int(num_parts), int(texts_per_part)


def _flat(vectors: npt.NDArray[np.float16], *, on_gpu: bool) -> Any:
    """An index of ``vectors`` by inner product: on the first of the visible GPUs (never on several), or on the CPU."""
    index: Any = faiss.IndexFlatIP(vectors.shape[1])
    if on_gpu:
        index = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
    for rows in _some(vectors):
        index.add(rows.astype(np.float32))
    return index


def _some(vectors: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    return [vectors[start : start + TEXTS_PER_PART] for start in range(0, len(vectors), TEXTS_PER_PART)]
