"""RUNS -> everything asked of the reader (ASKS), and the distinct readings still to do (REQUESTS). Pure.

Everything a job asks is a list of documents for a question: lists of one are eRAG's pairs, top-k lists are
end-to-end evaluation, the empty list is the closed-book reading. Equal questions with equal texts share a key,
whatever their ids, so each distinct reading is done once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
import xxhash

from erag_ray.schemas import ASKS, REQUESTS, conform
from erag_ray.store import KEY_COLUMNS

DocIds = pl.List(pl.String)


@dataclass(frozen=True, kw_only=True)
class ReaderUse:
    """Which reader answers a dataset's questions, as far as keys are concerned."""

    reader: str
    order_matters: bool
    sees_golds: bool = False
    """It is asked how likely the gold answers are, so they are part of what is asked."""


def text_hash(*fields: str) -> bytes:
    """16 bytes (XXH3-128) of some texts, each with its length before it."""
    parts = [field.encode() for field in fields]
    return xxhash.xxh3_128_digest(b"".join(len(part).to_bytes(8, "big") + part for part in parts))


def document_hashes(corpus: pl.DataFrame) -> dict[str, bytes]:
    """doc_id -> hash of (title, text): what a passage is to a reader."""
    rows = corpus.select("doc_id", "title", "text").iter_rows()
    return {doc_id: text_hash(title, text) for doc_id, title, text in rows}


def ranked_lists(runs: pl.DataFrame, query_ids: pl.Series, depths: Iterable[int]) -> pl.DataFrame:
    """The list of each run, query and depth: columns run_id, query_id, depth, doc_ids in rank order.

    A query that a run has no list for gets an empty one.
    """
    deepest = runs.sort("run_id", "query_id", "rank").group_by("run_id", "query_id", maintain_order=True)
    lists = deepest.agg(doc_ids=pl.col("doc_id"))
    every = runs.select(pl.col("run_id").unique()).join(query_ids.to_frame("query_id"), how="cross")
    complete = every.join(lists, on=["run_id", "query_id"], how="left")
    filled = complete.with_columns(pl.col("doc_ids").fill_null(pl.lit([], dtype=DocIds)))
    cut = [
        filled.with_columns(depth=pl.lit(depth, pl.Int32), doc_ids=pl.col("doc_ids").list.head(depth))
        for depth in depths
    ]
    return pl.concat(cut).select("run_id", "query_id", "depth", "doc_ids").sort("run_id", "query_id", "depth")


def pairs(runs: pl.DataFrame) -> pl.DataFrame:
    """The distinct (query_id, doc_id) of all runs: what the annotators label."""
    return runs.select("query_id", "doc_id").unique().sort("query_id", "doc_id")


def as_lists_of_one(found: pl.DataFrame) -> pl.DataFrame:
    """Pairs as lists: columns query_id, doc_ids."""
    return found.select("query_id", doc_ids=pl.concat_list("doc_id"))


def build_asks(
    lists: pl.DataFrame,
    queries: pl.DataFrame,
    documents: Mapping[str, bytes],
    readers: Mapping[str, ReaderUse],
) -> pl.DataFrame:
    """ASKS of the distinct (query_id, doc_ids) in ``lists``.

    Args:
        lists: columns query_id, doc_ids.
        queries: QUERIES that hold every query of the lists.
        documents: `document_hashes` of every document in them.
        readers: dataset -> the reader of its questions.
    """
    distinct = lists.select("query_id", "doc_ids").unique().sort("query_id", "doc_ids")
    asked = distinct.join(queries.select("query_id", "dataset"), on="query_id", how="left")
    own = queries.join(asked.select("query_id"), on="query_id", how="semi")
    question_keys = {
        query_id: _question_key(question, answers if readers[dataset].sees_golds else ())
        for query_id, dataset, question, answers in own.select(
            "query_id", "dataset", "question", "answers"
        ).iter_rows()
    }
    keys = [
        _passages_key(doc_ids, documents, readers[dataset].order_matters)
        for doc_ids, dataset in asked.select("doc_ids", "dataset").iter_rows()
    ]
    names = {dataset: use.reader for dataset, use in readers.items()}
    table = asked.select(
        "query_id",
        "doc_ids",
        reader=pl.col("dataset").replace_strict(names, return_dtype=pl.String),
        question_key=pl.col("query_id").replace_strict(question_keys, return_dtype=pl.UInt64),
        passages_key=pl.Series(keys, dtype=pl.UInt64),
    )
    conform(table, ASKS)
    return table


def _question_key(question: str, golds: Sequence[str]) -> int:
    return xxhash.xxh3_64_intdigest(text_hash(question, *golds))


def _passages_key(doc_ids: Sequence[str], documents: Mapping[str, bytes], order_matters: bool) -> int:
    hashes = [documents[doc_id] for doc_id in doc_ids]
    return xxhash.xxh3_64_intdigest(b"".join(hashes if order_matters else sorted(hashes)))


def build_requests(
    asks: pl.DataFrame,
    queries: pl.DataFrame,
    corpus: pl.DataFrame,
    documents: Mapping[str, bytes],
    *,
    order_matters: bool,
    sees_golds: bool = False,
) -> pl.DataFrame:
    """REQUESTS: question and texts of each distinct key in ``asks``, sorted by key (a question's stay together).

    For a reader that does not see the order of its passages they stand in the order of their hashes; only one that sees
    golds gets them.
    """
    first = asks.unique(subset=KEY_COLUMNS, keep="first", maintain_order=True).sort(KEY_COLUMNS)
    golds = pl.col("answers") if sees_golds else pl.lit([], dtype=DocIds)
    asked = first.join(queries.select("query_id", "question", golds=golds), on="query_id", how="left")
    texts = {
        doc_id: (title, text) for doc_id, title, text in corpus.select("doc_id", "title", "text").iter_rows()
    }
    lists = asked["doc_ids"].to_list()
    ordered = [ids if order_matters else sorted(ids, key=documents.__getitem__) for ids in lists]
    table = asked.select(
        *KEY_COLUMNS,
        "question",
        titles=pl.Series([[texts[i][0] for i in ids] for ids in ordered], dtype=DocIds),
        texts=pl.Series([[texts[i][1] for i in ids] for ids in ordered], dtype=DocIds),
        golds="golds",
    )
    conform(table, REQUESTS)
    return table


def count_work(asks: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """What is asked, by kind of list: columns kind, asked, distinct, cached, new.

    Args:
        asks: ASKS of one reader.
        known: the keys that were read before.
    """
    num_docs = pl.col("doc_ids").list.len()
    kind = pl.when(num_docs == 0).then(pl.lit("no passages")).when(num_docs == 1).then(pl.lit("pairs"))
    rows = asks.select(*KEY_COLUMNS, kind=kind.otherwise(pl.lit("lists")))
    asked = rows.group_by("kind").agg(asked=pl.len())
    distinct = rows.unique()
    marked = distinct.join(known.with_columns(found=pl.lit(True)), on=KEY_COLUMNS, how="left")
    found = pl.col("found").fill_null(False)
    counts = marked.group_by("kind").agg(distinct=pl.len(), cached=found.sum(), new=(~found).sum())
    return asked.join(counts, on="kind").sort("kind", descending=True)
