"""BM25 by `bm25s`: its index of all passages, mapped from disk while slices of the questions are searched.

A score is the sum over the query's words, in their order, of bm25s' single-precision weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import bm25s
import numpy as np
import polars as pl

from erag_ray.retrieve.analysers import analyser_named, analyser_settings
from erag_ray.retrieve.lists import FOUND_COLUMNS, QUERIES_PER_TASK, SEARCHED, best, ranked, read_found
from erag_ray.retrieve.run import Indexed, Run, Sources
from erag_ray.store import sharded_tasks
from erag_ray.store.folder import Folder
from erag_ray.support.logs import warn

MARGIN = 10
# as words they take several times the memory of their text; far fewer, and the same words are stemmed again and again
TEXTS_AT_A_TIME = 131_072
# compiling takes some seconds, in which as many scores can be had without
COMPILED_FROM = 20_000_000
ARRAYS = ("data", "indices", "indptr")


@dataclass(frozen=True, kw_only=True)
class Bm25(Indexed):
    """BM25 by `bm25s`, with Pyserini's k1 and b by default."""

    def __post_init__(self) -> None:
        analyser_named(self.config.analyser)

    @property
    def settings(self) -> Mapping[str, object]:
        """Variant, parameters, what is searched and how it becomes words."""
        chosen = self.chosen("searches", "k1", "b", "method")
        return {**chosen, "analyser": analyser_settings(self.config.analyser)}

    def build(self, corpus: pl.DataFrame, index: Folder, do: sharded_tasks.Do) -> None:
        """Write the index of CORPUS, in this process: with 4.5 GB of memory for a million passages."""
        # the order of ties
        order = corpus["doc_id"].arg_sort(descending=True)
        analyse = analyser_named(self.config.analyser)()
        numbers: dict[str, int] = {}
        passages: list[list[int]] = []
        for start in range(0, corpus.height, TEXTS_AT_A_TIME):
            texts = SEARCHED[self.config.searches](corpus[order.slice(start, TEXTS_AT_A_TIME)])
            lists = analyse(texts.to_list())
            passages.extend([numbers.setdefault(word, len(numbers)) for word in words] for words in lists)
        engine = bm25s.BM25(k1=self.config.k1, b=self.config.b, method=self.config.method)
        if numbers:
            engine.index((passages, numbers), create_empty_token=False, show_progress=False)
        for name in ARRAYS:
            sharded_tasks.write_array(engine.scores[name] if numbers else np.zeros(1), index, f"{name}.npy")
        words = pl.DataFrame({"word": list(numbers)}, schema={"word": pl.String})
        sharded_tasks.write_frame(words, index, "words.parquet")
        sharded_tasks.write_frame(corpus.select(pl.col("doc_id").gather(order)), index, "documents.parquet")

    def lists(self, run: Run, sources: Sources, do: sharded_tasks.Do) -> pl.DataFrame:
        queries, work, depth = sources.queries, run.work, run.job.depth
        analyse = analyser_named(self.config.analyser)()
        words = pl.Series(analyse(queries["question"].to_list()), dtype=pl.List(pl.String))
        if count := queries["question"].str.contains(getattr(analyse, "without_words", "$^")).sum():
            reason = "are in a script without spaces, of which the analyser takes a whole clause for one word"
            warn(f"retrievers.{self.name}: {count:,} of {queries.height:,} questions {reason}")
        analysed = pl.DataFrame({"query": np.arange(queries.height, dtype=np.uint32), "words": words})
        slices = list(analysed.iter_slices(QUERIES_PER_TASK))
        for number, rows in enumerate(slices):
            sharded_tasks.write_frame(rows, work, "queries", f"{sharded_tasks.part(number)}.parquet")
        doc_ids = sharded_tasks.read_frame(run.index, "documents.parquet")["doc_id"]
        settings = {
            "index": run.index.address,
            "work": work.address,
            "depth": depth,
            "num_docs": len(doc_ids),
            "method": self.config.method,
            "is_compiled": queries.height * len(doc_ids) >= COMPILED_FROM,
        }
        todo = sharded_tasks.undone(work, "found", ".parquet", len(slices))
        do(sharded_tasks.Tasks(worker=SearchWords, settings=settings, numbers=todo, noun="searches"))
        return ranked(read_found(work, len(slices)), queries["query_id"], doc_ids, depth)


class SearchWords:
    """Searches for one slice of the queries; leaves ``found``."""

    def __init__(self, *, index: str, work: str, depth: int, **opening: Any) -> None:
        self._work, self._depth = Folder(work), depth
        self._engine, self._words = open_index(Folder(index), **opening)

    def __call__(self, number: int) -> None:
        queries = sharded_tasks.read_frame(self._work, "queries", f"{sharded_tasks.part(number)}.parquet")
        known = {
            query: numbers
            for query, words in queries.iter_rows()
            if (numbers := [self._words[word] for word in words if word in self._words])
        }
        hits = _search(self._engine, known, self._depth)
        sharded_tasks.write_frame(hits, self._work, "found", f"{sharded_tasks.part(number)}.parquet")


def open_index(index: Folder, *, num_docs: int, method: str, is_compiled: bool) -> tuple[Any, dict[str, int]]:
    """Return the index as `bm25s` searches it, and the numbers of its words."""
    words = sharded_tasks.read_frame(index, "words.parquet")["word"].to_list()
    engine = bm25s.BM25(method=method, backend="numba" if is_compiled else "numpy")
    engine.scores = {name: sharded_tasks.open_array(index, f"{name}.npy") for name in ARRAYS} | {
        "num_docs": num_docs
    }
    # bm25s asks only whether it holds a number
    engine.vocab_dict, engine.unique_token_ids_set = {}, range(len(words))
    engine.nonoccurrence_array = None
    return engine, {word: number for number, word in enumerate(words)}


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
    places, scores = np.take_along_axis(places, order, axis=1), np.take_along_axis(scores, order, axis=1)
    is_found = (scores > 0) & ~ends_equal[:, None]
    hits = [(np.broadcast_to(queries[:, None], scores.shape)[is_found], places[is_found], scores[is_found])]
    for query in queries[ends_equal]:
        everything = engine.get_scores_from_ids(known[int(query)])
        top = best(everything, depth)
        hits.append((np.full(len(top), query), top, everything[top]))
    columns = (np.concatenate(column) for column in zip(*hits, strict=True))
    return pl.DataFrame(dict(zip(FOUND_COLUMNS, columns, strict=True))).cast(FOUND_COLUMNS)
