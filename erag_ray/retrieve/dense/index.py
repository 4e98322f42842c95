"""Dense retrieval: an encoder and exact search by inner product (Faiss), over shards of passages.

Passages with the same text share one vector in half precision, and thus tie. Faiss proposes candidates; their scores
are recomputed in double precision from the stored vectors and rounded to single precision, and the search widens until
no other passage can have a better score. Lists therefore do not depend on the shards or on Faiss's rounding.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.retrieve.dense import encoders
from erag_ray.retrieve.lists import SEARCHED, TEXTS_PER_PART, ranked, read_found
from erag_ray.retrieve.run import Indexed, Run, Sources
from erag_ray.store.folder import Folder
from erag_ray.store.model_sources import ModelSource
from erag_ray.store.sharded_tasks import (
    Do,
    Tasks,
    open_array,
    part,
    read_frame,
    undone,
    write_array,
    write_frame,
)
from erag_ray.support.errors import JobError
from erag_ray.support.logs import warn

MARGIN = 10
PROPOSED_COLUMNS = pl.Schema({"query": pl.UInt32(), "number": pl.UInt32(), "score": pl.Float64()})
"""Candidates: the numbers of the query and of the text, both from 0."""
MOST_ON_A_GPU = 2048
"""Maximum of candidates per query for Faiss on a GPU; it raises for more."""


@dataclass(frozen=True, kw_only=True)
class Dense(Indexed):
    """A dense retriever: an encoder and exact search."""

    source: ModelSource = field(init=False)

    def __post_init__(self) -> None:
        encoders.preset_named(self.config)
        object.__setattr__(self, "source", encoders.find_encoder(self.config, self.name))

    @property
    def settings(self) -> Mapping[str, object]:
        """The searched fields, and all that a vector depends on."""
        preset = encoders.preset_named(self.config)
        return {
            **self.chosen("searches", "max_tokens", "dtype"),
            "vectors": "float16",
            "preset": {preset: encoders.PRESETS[preset]} if preset in encoders.PRESETS else preset,
            "weights": encoders.model_digests(self.source),
        }

    def build(self, corpus: pl.DataFrame, index: Folder, do: Do) -> None:
        """Write the index of CORPUS: vectors of its distinct texts, and each document's text."""
        # in this order, ties are resolved by position
        ordered = corpus.sort("doc_id", descending=True)
        rows = ordered.select("doc_id", text=SEARCHED[self.config.searches](ordered))
        rows = rows.filter(pl.col("text").str.strip_chars() != "")
        texts = rows.select("text").unique(maintain_order=True).with_row_index("number")
        self.encode(texts.select("text"), "passage", index, do)
        documents = rows.join(texts, on="text", how="left", maintain_order="left").select("doc_id", "number")
        write_frame(documents, index, "documents.parquet")
        index.delete_folder("texts")

    def encode(self, texts: pl.DataFrame, role: encoders.Role, folder: Folder, do: Do) -> int:
        """Write ``texts`` to a folder in parts, and encode each into ``vectors``; return the number of parts."""
        parts = list(texts.iter_slices(TEXTS_PER_PART))
        for number, batch in enumerate(parts):
            write_frame(batch, folder, "texts", f"{part(number)}.parquet")
        settings = {
            "folder": folder.address,
            "role": role,
            "model": self.source.folder,
            "preset": encoders.preset_named(self.config),
            **self.chosen("max_tokens", "dtype", "batch_size"),
        }
        todo = undone(folder, "vectors", ".npy", len(parts))
        noun = f"parts of {TEXTS_PER_PART:,} texts encoded"
        do(Tasks(worker=EncodeTexts, settings=settings, numbers=todo, noun=noun))
        encoders.warn_of_cut(self.name, {"query": "questions", "passage": "passages"}[role], folder)
        return len(parts)

    def lists(self, run: Run, sources: Sources, do: Do) -> pl.DataFrame:
        """Search the index, in shards of the size that the job has; a blank query has no row."""
        index, queries, work, depth = run.index, sources.queries, run.work, run.job.depth
        is_preset = encoders.preset_named(self.config) in encoders.PRESETS
        if names := [] if is_preset else encoders.unused_prompts(self.source.folder):
            reason = f"no prompt, because the model has none for query, only {', '.join(names)}"
            warn(
                f"retrievers.{self.name}: questions get {reason}. Set query in config_sentence_transformers.json"
            )
        num_slices = self.encode(queries.select(text="question"), "query", work, do)
        parts_per_shard = max(1, run.job.search.passages_per_shard // TEXTS_PER_PART)
        documents = read_frame(index, "documents.parquet").with_row_index("place")
        num_parts = math.ceil(documents["number"].n_unique() / TEXTS_PER_PART)
        num_shards = math.ceil(num_parts / parts_per_shard)
        settings = {
            "index": index.address,
            "work": work.address,
            "depth": depth,
            "num_slices": num_slices,
            "num_parts": num_parts,
            "parts_per_shard": parts_per_shard,
        }
        todo = undone(work, "proposed", ".parquet", num_shards * num_slices)
        do(Tasks(worker=SearchVectors, settings=settings, numbers=todo, noun="searches"))
        blank = queries["question"].str.strip_chars() == ""
        numbers = pl.Series(np.flatnonzero(~blank.to_numpy()), dtype=pl.UInt32)
        proposed = read_found(work, num_shards * num_slices, PROPOSED_COLUMNS, "proposed")
        proposed = proposed.filter(pl.col("query").is_in(numbers.implode()))
        of_texts = documents.group_by("number", maintain_order=True).head(depth).select("number", "place")
        return ranked(proposed.join(of_texts, on="number"), queries["query_id"], documents["doc_id"], depth)


class EncodeTexts:
    """Task: encode one part of ``texts`` into ``vectors``: float16 for passages, float32 for queries."""

    def __init__(self, *, folder: str, role: encoders.Role, model: str, **options: Any) -> None:
        self._folder = Folder(folder)
        self._role: encoders.Role = role
        self._encode = encoders.Encoder(folder=model, **options)

    def __call__(self, number: int) -> None:
        texts = read_frame(self._folder, "texts", f"{part(number)}.parquet")["text"].to_list()
        vectors: npt.NDArray[Any] = self._encode(texts, self._role)
        if self._role == "passage":
            with np.errstate(over="ignore"):
                vectors = vectors.astype(np.float16)
        if not np.isfinite(vectors).all():
            row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
            text = f"for the {self._role} {texts[row]!r}"
            raise JobError(f"the encoder returns a vector beyond the range of half precision {text}")
        encoders.write_lengths(self._encode.model, [texts], self._folder, number)
        write_array(vectors, self._folder, "vectors", f"{part(number)}.npy")


class SearchVectors:
    """Task: search one shard for a slice of the queries, and write the candidates."""

    def __init__(
        self, *, index: str, work: str, depth: int, num_slices: int, num_parts: int, parts_per_shard: int
    ) -> None:
        folder, self._work = Folder(index), Folder(work)
        self._depth, self._num_slices = depth, num_slices
        parts = range(num_parts)
        shards = [parts[start : start + parts_per_shard] for start in parts[::parts_per_shard]]
        # tasks of one shard follow each other
        self._shard = functools.lru_cache(1)(lambda number: Shard(folder, shards[number]))

    def __call__(self, number: int) -> None:
        shard, batch = divmod(number, self._num_slices)
        vectors = open_array(self._work, "vectors", f"{part(batch)}.npy")
        hits = self._shard(shard).search(vectors, self._depth)
        rows = np.repeat(np.arange(len(hits)), [len(texts) for texts, _ in hits])
        texts, scores = (np.concatenate(column) for column in zip(*hits, strict=True))
        columns = {"query": batch * TEXTS_PER_PART + rows, "number": texts, "score": scores}
        proposed = pl.DataFrame(columns).cast(PROPOSED_COLUMNS)
        write_frame(proposed, self._work, "proposed", f"{part(number)}.parquet")


class Shard:
    """Consecutive parts of an index in Faiss: on one GPU if Faiss sees any.

    Searches for more candidates than a GPU can select use an index on the CPU, which is built for the first of them.
    The lists do not depend on it: its vectors are the same, and candidates are scored again in any case.
    """

    def __init__(self, index: Folder, parts: range) -> None:
        names = (f"{part(number)}.npy" for number in parts)
        self.vectors = np.concatenate([open_array(index, "vectors", name) for name in names])
        self._start = parts.start * TEXTS_PER_PART
        self._on_gpu = hasattr(faiss, "index_cpu_to_gpu") and faiss.get_num_gpus() > 0
        self._faiss = _flat(self.vectors, on_gpu=self._on_gpu)
        norms = [np.linalg.norm(rows.astype(np.float32), axis=1).max() for rows in _batches(self.vectors)]
        self._max_norm = float(max(norms, default=0.0))

    def search(
        self, queries: npt.NDArray[np.float32], depth: int
    ) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
        """Return the best texts of each query, at least ``depth`` if there are as many, with their scores."""
        results: list[Any] = [None] * len(queries)
        pending, width = np.arange(len(queries)), min(depth + MARGIN, len(self.vectors))
        while len(pending):
            index = self._on_cpu if width > MOST_ON_A_GPU else self._faiss
            rough, texts = index.search(np.ascontiguousarray(queries[pending]), width)
            scores = exact(queries[pending], self.vectors, texts)
            kth = np.sort(scores, axis=1)[:, -min(depth, width)]
            # other texts score less than the last candidate, up to a bound of Faiss's rounding error
            error = 2 * queries.shape[1] * np.finfo(np.float32).eps * self._max_norm
            error = error * np.linalg.norm(queries[pending], axis=1)
            done = (rough[:, -1] + error < kth) | (width == len(self.vectors))
            for row in np.flatnonzero(done):
                results[pending[row]] = (texts[row] + self._start, scores[row])
            pending, width = pending[~done], min(2 * width, len(self.vectors))
        return results

    @functools.cached_property
    def _on_cpu(self) -> Any:
        return _flat(self.vectors, on_gpu=False) if self._on_gpu else self._faiss


def exact(
    queries: npt.NDArray[np.float32], vectors: npt.NDArray[np.float16], texts: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Return inner products of each query with its candidates' vectors, computed in double precision.

    A score depends only on its two vectors (and, in the last of 16 digits before rounding to 7, on the kind of
    processor), so a pair has the same score in any batch. ``queries`` [queries, width] and ``vectors`` [texts, width]
    are finite; ``texts`` [queries, candidates] are rows of ``vectors``.
    """
    scores = np.empty(texts.shape, np.float32)
    for row, query in enumerate(queries.astype(np.float64)):
        # unlike a product of matrices, a sum of each row does not depend on the number of rows
        scores[row] = (vectors[texts[row]].astype(np.float64) * query).sum(axis=1)
    return scores


def vectors_of(index: Folder, texts: npt.NDArray[np.integer]) -> npt.NDArray[np.float16]:
    """Return the vectors of texts, whose numbers must ascend."""
    parts, rows = np.divmod(texts.astype(np.int64), TEXTS_PER_PART)
    vectors = [
        open_array(index, "vectors", f"{part(int(number))}.npy")[rows[parts == number]]
        for number in np.unique(parts)
    ]
    return np.concatenate(vectors) if vectors else np.empty((0, 1), np.float16)


def _flat(vectors: npt.NDArray[np.float16], *, on_gpu: bool) -> Any:
    """Build an index of inner products: on the first visible GPU (never on several), or on the CPU."""
    index: Any = faiss.IndexFlatIP(vectors.shape[1])
    if on_gpu:
        index = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
    for rows in _batches(vectors):
        index.add(rows.astype(np.float32))
    return index


def _batches(vectors: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    return [vectors[start : start + TEXTS_PER_PART] for start in range(0, len(vectors), TEXTS_PER_PART)]
