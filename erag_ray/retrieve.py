"""QUERIES + CORPUS -> RUNS: a retriever indexes passages, then answers questions with ranked lists.

A retriever has ``settings`` (all that its lists depend on, for manifests) and ``index(corpus)``; what that gives has
``search(queries, depth)``. Lists hold only documents that match, best first, ties by doc_id, last one first, as
trec_eval has them. A new retriever is one class or one `Bm25` with other parts, and one line in `RETRIEVERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import bm25s
import numpy as np
import numpy.typing as npt
import polars as pl
import Stemmer
import xxhash

LIST_COLUMNS = pl.Schema(
    {"query_id": pl.String(), "rank": pl.Int32(), "doc_id": pl.String(), "score": pl.Float64()}
)
# a word with what an apostrophe joins to it: the stemmer takes a possessive 's off
TOKEN = r"(?u)\w+(?:'\w+)*"
CURLY_APOSTROPHE = "\u2019"
FIRST_SENTENCE = r"(?s)^(.*?\w{2,}\p{Pe}?[.!?][\p{Pe}\p{Pf}'\"]*)(?:\s|$)"


class Index(Protocol):
    """Passages, ready to be searched."""

    def search(self, queries: pl.DataFrame, depth: int) -> pl.DataFrame:
        """RUNS without its run_id, for QUERIES in their order; a query that matches nothing has no row."""


class Retriever(Protocol):
    """A way to rank passages."""

    @property
    def settings(self) -> Mapping[str, object]:
        """What its lists depend on, beside questions and passages."""

    def index(self, corpus: pl.DataFrame) -> Index:
        """An index of the passages of CORPUS."""


@dataclass(frozen=True, kw_only=True)
class Bm25:
    """BM25 by `bm25s`: Lucene's formula with Pyserini's k1 and b, English words.

    Attributes:
        field: CORPUS -> the text of each passage that is searched.
        k1, b: saturation by term frequency, and by length.
        method: the variant, as `bm25s` calls it.
    """

    field: Callable[[pl.DataFrame], pl.Series]
    k1: float = 0.9
    b: float = 0.4
    method: str = "lucene"

    @property
    def settings(self) -> Mapping[str, object]:
        """Variant, parameters, field and analyser."""
        return {
            "field": self.field.__name__,
            "k1": self.k1,
            "b": self.b,
            "method": self.method,
            "analyser": "NFC, lower case, stop words of Lucene's English analyser, Snowball's English stemmer",
            "token": TOKEN,
        }

    def index(self, corpus: pl.DataFrame) -> Bm25Index:
        """An index in memory."""
        # in this order a tie goes to the document that stands first
        ordered = corpus.sort("doc_id", descending=True)
        engine = bm25s.BM25(k1=self.k1, b=self.b, method=self.method, backend="numpy")
        tokens = english(self.field(ordered), return_ids=True)
        if any(tokens.ids):
            engine.index(tokens, show_progress=False)
        return Bm25Index(engine=engine, doc_ids=ordered["doc_id"], words=frozenset(tokens.vocab))


@dataclass(frozen=True, kw_only=True)
class Bm25Index:
    """An index of `bm25s`, its documents by id, last one first, and the words that it knows."""

    engine: Any
    doc_ids: pl.Series
    words: frozenset[str]

    def search(self, queries: pl.DataFrame, depth: int) -> pl.DataFrame:
        """As in `Index`; a score is `bm25s`'s own, of single precision."""
        tokens = english(queries["question"], return_ids=False)
        parts = [pl.DataFrame(schema=LIST_COLUMNS)]
        for query_id, words in zip(queries["query_id"], tokens, strict=True):
            known = [word for word in words if word in self.words]
            if known:
                parts.append(self._list(query_id, self.engine.get_scores(known), depth))
        return pl.concat(parts)

    def _list(self, query_id: str, scores: npt.NDArray[np.float32], depth: int) -> pl.DataFrame:
        found = best(scores, depth)
        columns = {
            "query_id": [query_id] * len(found),
            "rank": np.arange(1, len(found) + 1),
            "doc_id": self.doc_ids.gather(found),
            "score": scores[found].astype(np.float64),
        }
        return pl.DataFrame(columns).cast(LIST_COLUMNS)


def best(scores: npt.NDArray[np.float32], depth: int) -> npt.NDArray[np.intp]:
    """Places of the highest scores above 0, at most ``depth``, best first; ties by place, all of them looked at."""
    found = np.flatnonzero(scores > 0)
    if len(found) > depth:
        least = np.partition(scores[found], -depth)[-depth]
        found = found[scores[found] >= least]
    return found[np.argsort(-scores[found], kind="stable")][:depth]


def english(texts: pl.Series, *, return_ids: bool) -> Any:
    """Words of each text in lower case, without stop words, stemmed (see `Bm25`).

    Args:
        texts: the texts.
        return_ids: give `bm25s`'s form for an index; else a list of words for each text.
    """
    clean = texts.str.normalize("NFC").str.replace_all(CURLY_APOSTROPHE, "'", literal=True)
    return bm25s.tokenize(
        clean.to_list(),
        token_pattern=TOKEN,
        stopwords="english",
        stemmer=Stemmer.Stemmer("english"),
        return_ids=return_ids,
        show_progress=False,
    )


@dataclass(frozen=True)
class Random:
    """Passages drawn without looking: the floor of a comparison, and a source of wrong passages."""

    seed: int = 0

    @property
    def settings(self) -> Mapping[str, object]:
        """The seed."""
        return {"seed": self.seed}

    def index(self, corpus: pl.DataFrame) -> RandomIndex:
        """The ids alone, in their order."""
        return RandomIndex(doc_ids=corpus["doc_id"].sort(), seed=self.seed)


@dataclass(frozen=True, kw_only=True)
class RandomIndex:
    """Ids to draw from; a question's list depends on its id, the seed and the ids."""

    doc_ids: pl.Series
    seed: int

    def search(self, queries: pl.DataFrame, depth: int) -> pl.DataFrame:
        """As in `Index`; the score is that of the place, 1 / rank."""
        lists = [self._list(query_id, min(depth, len(self.doc_ids))) for query_id in queries["query_id"]]
        return pl.concat([pl.DataFrame(schema=LIST_COLUMNS), *lists])

    def _list(self, query_id: str, depth: int) -> pl.DataFrame:
        generator = np.random.default_rng(xxhash.xxh3_64_intdigest(f"{self.seed}:{query_id}".encode()))
        drawn = generator.choice(len(self.doc_ids), size=depth, replace=False)
        ranks = np.arange(1, depth + 1)
        columns = {"rank": ranks, "doc_id": self.doc_ids.gather(drawn), "score": 1 / ranks}
        return pl.DataFrame({"query_id": [query_id] * depth, **columns}).cast(LIST_COLUMNS)


def title_and_text(corpus: pl.DataFrame) -> pl.Series:
    """The title and the whole passage."""
    return corpus.select(pl.concat_str("title", "text", separator=" ")).to_series()


def title_and_first_sentence(corpus: pl.DataFrame) -> pl.Series:
    """The title and the passage up to its first sentence mark after a word of two letters (so not after an initial).

    Without such a mark it is the whole passage. An abbreviation ("Dr. ") ends the sentence too early.
    """
    first = pl.col("text").str.strip_chars().str.extract(FIRST_SENTENCE).fill_null(pl.col("text"))
    return corpus.select(pl.concat_str("title", first, separator=" ")).to_series()


RETRIEVERS: dict[str, Retriever] = {
    "bm25": Bm25(field=title_and_text),
    "bm25_lead": Bm25(field=title_and_first_sentence),
    "random": Random(),
}
