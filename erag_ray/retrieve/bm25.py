"""BM25 over shards of passages: each an index of `bm25s` with the counts of all, so that shards change no score.

A score is the sum over the query's words, in their order, of single-precision weights; a weight depends on the passage,
on how many passages hold the word, on their number and mean length, and on nothing of the shard.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import bm25s
import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.config.retrieval import RetrieverConfig
from erag_ray.retrieve.analysers import analyser_named, analyser_settings
from erag_ray.retrieve.lists import FOUND_COLUMNS, best, candidates, ranked
from erag_ray.retrieve.shards import read_found, write_queries, write_texts
from erag_ray.store.arrays import open_array, write_array
from erag_ray.store.folder import Folder
from erag_ray.store.sharded_tasks import Do, Tasks, part, read_frame, undone, write_frame

MARGIN = 10
# as words they take several times the memory of their text; far fewer, and the same words are stemmed again and again
TEXTS_AT_A_TIME = 131_072
# compiling takes some seconds, in which as many scores can be had without
COMPILED_FROM = 20_000_000
COUNT_COLUMNS = pl.Schema({"word": pl.String(), "passages": pl.Int64()})


@dataclass(frozen=True, kw_only=True)
class Bm25:
    """BM25 by `bm25s`, with Pyserini's k1 and b by default."""

    config: RetrieverConfig
    index_has_shards: ClassVar[bool] = True

    def __post_init__(self) -> None:
        analyser_named(self.config.analyser)

    @property
    def settings(self) -> Mapping[str, object]:
        """Variant, parameters, what is searched and how it becomes words."""
        return {
            "searches": self.config.searches,
            "k1": self.config.k1,
            "b": self.config.b,
            "method": self.config.method,
            "analyser": analyser_settings(self.config.analyser),
        }

    def build(self, corpus: pl.DataFrame, index: Folder, per_shard: int, do: Do) -> None:
        """Write the index of CORPUS."""
        num_shards = math.ceil(corpus.height / per_shard)
        doc_ids = write_texts(corpus, self.config.searches, per_shard, index)
        counting = {"index": index.address, "analyser": self.config.analyser}
        todo = undone(index, "lengths", ".npy", num_shards)
        do(Tasks(worker=CountWords, settings=counting, numbers=todo, noun="shards counted"))
        self._share_counts(index, num_shards)
        weighing = {
            "index": index.address,
            "k1": self.config.k1,
            "b": self.config.b,
            "method": self.config.method,
        }
        todo = undone(index, "weights", ".npy", num_shards)
        do(Tasks(worker=WeighWords, settings=weighing, numbers=todo, noun="shards weighed"))
        write_frame(doc_ids.to_frame(), index, "documents.parquet")
        for below in ("texts", "times", "held_by"):
            index.delete_folder(below)

    def _share_counts(self, index: Folder, num_shards: int) -> None:
        """Tell each shard how many of all passages contain its words, and how long passages are."""
        words = [read_frame(index, "words", f"{part(number)}.parquet") for number in range(num_shards)]
        every = pl.concat([pl.DataFrame(schema=COUNT_COLUMNS), *words])
        total = every.group_by("word").agg(pl.col("passages").sum().alias("total"))
        for number, shard_words in enumerate(words):
            num_passages = shard_words.join(total, on="word", how="left", maintain_order="left")["total"]
            write_array(num_passages.to_numpy(), index, "held_by", f"{part(number)}.npy")
        lengths = [open_array(index, "lengths", f"{part(number)}.npy") for number in range(num_shards)]
        sizes = np.array([len(shard) for shard in lengths], np.int64)
        count = sum(int(shard.sum(dtype=np.int64)) for shard in lengths)
        write_array(np.array([sizes.sum(), count]), index, "totals.npy")
        write_array(np.concatenate([[0], np.cumsum(sizes)]), index, "bounds.npy")

    def search(
        self, index: Folder, queries: pl.DataFrame, work: Folder, depth: int, per_shard: int, do: Do
    ) -> pl.DataFrame:
        """The lists of QUERIES; one that matches nothing has no row. The shards are those of the index."""
        analyse = analyser_named(self.config.analyser)()
        words = pl.Series(analyse(queries["question"].to_list()), dtype=pl.List(pl.String))
        analysed = pl.DataFrame({"query": np.arange(queries.height, dtype=np.uint32), "words": words})
        num_slices = write_queries(analysed, work)
        num_shards = len(open_array(index, "bounds.npy")) - 1
        settings = {
            "index": index.address,
            "work": work.address,
            "depth": depth,
            "num_slices": num_slices,
            "num_queries": queries.height,
            "method": self.config.method,
        }
        todo = undone(work, "found", ".parquet", num_shards * num_slices)
        do(Tasks(worker=SearchWords, settings=settings, numbers=todo, noun="searches"))
        doc_ids = read_frame(index, "documents.parquet")["doc_id"]
        return ranked(read_found(work, num_shards * num_slices), queries["query_id"], doc_ids, depth)


class CountWords:
    """Counts the words of a shard's passages: ``words``, ``times``, ``places``, ``starts`` and ``lengths``.

    The entries of word w are ``starts[w]:starts[w + 1]``: the passages that hold it, ascending, and how often.
    """

    def __init__(self, *, index: str, analyser: str) -> None:
        self._index = Folder(index)
        self._analyse = analyser_named(analyser)()

    def __call__(self, number: int) -> None:
        name = part(number)
        texts = read_frame(self._index, "texts", f"{name}.parquet")["text"]
        numbers: dict[str, int] = {}
        lengths = np.zeros(len(texts), np.int32)
        parts = [
            self._pairs(texts, start, numbers, lengths) for start in range(0, len(texts), TEXTS_AT_A_TIME)
        ]
        pairs = np.concatenate([np.empty(0, np.int64), *parts])
        del parts
        # in place: np.unique would hold them three times
        pairs.sort()
        first = np.flatnonzero(np.concatenate([pairs[:1] >= 0, pairs[1:] != pairs[:-1]]))
        times = np.diff(first, append=len(pairs))
        word_numbers, places = np.divmod(pairs[first], max(len(texts), 1))
        passages = np.bincount(word_numbers, minlength=len(numbers))
        frame = pl.DataFrame({"word": list(numbers), "passages": passages}, schema=COUNT_COLUMNS)
        write_frame(frame, self._index, "words", f"{name}.parquet")
        starts = np.concatenate([[0], np.cumsum(passages)]).astype(np.int64)
        write_array(starts, self._index, "starts", f"{name}.npy")
        write_array(places.astype(np.int32), self._index, "places", f"{name}.npy")
        write_array(times.astype(np.float32), self._index, "times", f"{name}.npy")
        # the last file: with it the shard is counted
        write_array(lengths, self._index, "lengths", f"{name}.npy")

    def _pairs(
        self, texts: pl.Series, start: int, numbers: dict[str, int], lengths: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.int64]:
        """Every word of some texts: its number (words without one get the next) times all texts, plus its text."""
        lists = self._analyse(texts.slice(start, TEXTS_AT_A_TIME).to_list())
        batch_lengths = lengths[start : start + len(lists)]
        batch_lengths[:] = [len(words) for words in lists]
        flat = (numbers.setdefault(word, len(numbers)) for words in lists for word in words)
        words = np.fromiter(flat, np.int64, int(batch_lengths.sum(dtype=np.int64)))
        return words * len(texts) + np.repeat(np.arange(start, start + len(lists)), batch_lengths)


class WeighWords:
    """Turns a shard's counts into ``weights``: what each passage gets for each of its words."""

    def __init__(self, *, index: str, k1: float, b: float, method: str) -> None:
        self._index = Folder(index)
        self._k1, self._b, self._method = k1, b, method

    def __call__(self, number: int) -> None:
        name = f"{part(number)}.npy"
        arrays = ("times", "places", "starts", "lengths", "held_by")
        times, places, starts, lengths, held_by = (open_array(self._index, key, name) for key in arrays)
        num_passages, num_words = (int(value) for value in open_array(self._index, "totals.npy"))
        relative = lengths[places] / max(num_words / max(num_passages, 1), 1e-9)
        saturated = weight_of_times(times, relative, self._k1, self._b, self._method)
        rarity = np.repeat(weight_of_rarity(held_by, num_passages, self._method), np.diff(starts))
        write_array((rarity * saturated).astype(np.float32), self._index, "weights", name)


def weight_of_rarity(
    held_by: npt.NDArray[np.int64], num_passages: int, method: str
) -> npt.NDArray[np.float64]:
    """The inverse document frequency of words, as `bm25s` has it for each variant (Kamphuis et al., ECIR 2020)."""
    if method == "atire":
        return np.log(num_passages / held_by)
    odds = (num_passages - held_by + 0.5) / (held_by + 0.5)
    # robertson: a word in more than half of the passages would count against them; bm25s takes 0 then
    return np.log1p(odds) if method == "lucene" else np.log(np.maximum(odds, 1.0))


def weight_of_times(
    times: npt.NDArray[np.float32], relative: npt.NDArray[np.float64], k1: float, b: float, method: str
) -> npt.NDArray[np.float64]:
    """How much it counts that a word occurs several times in a passage of a length relative to the mean."""
    saturated: npt.NDArray[np.float64] = times / (times + k1 * (1 - b + b * relative))
    return saturated * (k1 + 1) if method == "atire" else saturated


class SearchWords:
    """Searches one shard for a slice of the queries; leaves ``found``."""

    def __init__(
        self, *, index: str, work: str, depth: int, num_slices: int, num_queries: int, method: str
    ) -> None:
        self._index, self._work = Folder(index), Folder(work)
        self._depth = depth
        self._num_slices = num_slices
        self._bounds = open_array(self._index, "bounds.npy")
        self._method, self._num_queries = method, num_queries
        self._open: tuple[int, Any, dict[str, int]] | None = None

    def __call__(self, number: int) -> None:
        shard, piece = divmod(number, self._num_slices)
        engine, words = self._shard(shard)
        queries = read_frame(self._work, "queries", f"{part(piece)}.parquet")
        known = {
            query: ids
            for query, words_of_query in queries.iter_rows()
            if (ids := [words[word] for word in words_of_query if word in words])
        }
        hits = _search(engine, known, self._depth)
        position = (pl.col("place") + int(self._bounds[shard])).cast(pl.UInt32)
        write_frame(hits.with_columns(position), self._work, "found", f"{part(number)}.parquet")

    def _shard(self, number: int) -> tuple[Any, dict[str, int]]:
        """The shard's engine and its words; the last one stays open."""
        if self._open is None or self._open[0] != number:
            words = read_frame(self._index, "words", f"{part(number)}.parquet")["word"].to_list()
            engine = open_shard(self._index, number, self._method, len(words), self._num_queries)
            self._open = (
                number,
                engine,
                {word: number_in_shard for number_in_shard, word in enumerate(words)},
            )
        return self._open[1], self._open[2]


def open_shard(index: Folder, number: int, method: str, num_words: int, num_queries: int) -> Any:
    """The shard as `bm25s` searches it, its arrays mapped from disk; compiled where there is much to search."""
    name = f"{part(number)}.npy"
    num_docs = len(open_array(index, "lengths", name))
    engine = bm25s.BM25(
        method=method, backend="numba" if num_queries * num_docs >= COMPILED_FROM else "numpy"
    )
    engine.scores = {
        "data": open_array(index, "weights", name),
        "indices": open_array(index, "places", name),
        "indptr": open_array(index, "starts", name),
        "num_docs": num_docs,
    }
    engine.nonoccurrence_array = None
    engine.vocab_dict = {}
    # only asked whether it holds an id
    engine.unique_token_ids_set = range(num_words)
    return engine


def _search(engine: Any, known: Mapping[int, Sequence[int]], depth: int) -> pl.DataFrame:
    """The best candidates of each query; where equal scores go on beyond the margin, all of them are looked at."""
    if not known:
        return pl.DataFrame(schema=FOUND_COLUMNS)
    num_docs = engine.scores["num_docs"]
    wide = min(depth + MARGIN, num_docs)
    places, scores = engine.retrieve(list(known.values()), k=wide, show_progress=False)
    order = np.lexsort((places, -scores), axis=-1)[:, :depth]
    ends_equal = (scores[:, -1] == scores[:, min(depth, wide) - 1]) & (scores[:, -1] > 0) & (wide < num_docs)
    queries = np.fromiter(known, np.uint32, len(known))
    plain = np.flatnonzero(~ends_equal)
    top_scores = np.take_along_axis(scores, order, axis=1)[plain]
    is_found = top_scores > 0
    hits = [
        (
            np.broadcast_to(queries[plain, None], top_scores.shape)[is_found],
            np.take_along_axis(places, order, axis=1)[plain][is_found],
            top_scores[is_found],
        )
    ]
    for row in np.flatnonzero(ends_equal):
        everything = engine.get_scores_from_ids(known[int(queries[row])])
        top = best(everything, depth)
        hits.append((np.full(len(top), queries[row]), top, everything[top]))
    return candidates(*(np.concatenate(column) for column in zip(*hits, strict=True)))
