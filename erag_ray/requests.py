"""RUNS -> everything asked of the reader (ASKS), and the distinct readings still to do (REQUESTS). Pure.

Everything a job asks is a list of documents for a question: lists of one are eRAG's pairs, top-k lists are
end-to-end evaluation, the empty list is the closed-book reading. Equal questions with equal texts share a key,
whatever their ids, so each distinct reading is done once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import xxhash

from erag_ray.schemas import ASKS, REQUESTS, check, conform
from erag_ray.store import KEY_COLUMNS

DocIds = pl.List(pl.String)
HASH_BYTES = 16


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


@dataclass(frozen=True, kw_only=True)
class Documents:
    """The passages of a corpus, row by row: what each is to a reader."""

    rows: pl.DataFrame
    """doc_id, doc_row."""
    hashes: npt.NDArray[np.uint8]
    """[num_docs, 16], of (title, text)."""
    order: npt.NDArray[np.intp]
    """[num_docs], the rows by ascending hash."""
    keys: npt.NDArray[np.uint64]
    """[num_docs], the key of the list that holds this passage alone."""
    titles: pl.Series
    texts: pl.Series


def documents_of(corpus: pl.DataFrame) -> Documents:
    """The passages of CORPUS."""
    hashes = [text_hash(*passage) for passage in corpus.select("title", "text").iter_rows()]
    joined = b"".join(hashes)
    return Documents(
        rows=corpus.select("doc_id").with_row_index("doc_row"),
        hashes=np.frombuffer(joined, np.uint8).reshape(-1, HASH_BYTES),
        order=np.argsort(np.frombuffer(joined, f"S{HASH_BYTES}"), kind="stable"),
        keys=np.fromiter(map(xxhash.xxh3_64_intdigest, hashes), np.uint64, len(hashes)),
        titles=corpus["title"],
        texts=corpus["text"],
    )


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
    lists: pl.DataFrame, queries: pl.DataFrame, documents: Documents, readers: Mapping[str, ReaderUse]
) -> pl.DataFrame:
    """ASKS of the distinct (query_id, doc_ids) in ``lists``.

    Args:
        lists: columns query_id, doc_ids.
        queries: QUERIES that hold every query of the lists.
        documents: `documents_of` a corpus that holds every document in them.
        readers: dataset -> the reader of its questions.
    """
    distinct = lists.select("query_id", "doc_ids").unique().sort("query_id", "doc_ids")
    names = {dataset: use.reader for dataset, use in readers.items()}
    ordered = {dataset: use.order_matters for dataset, use in readers.items()}
    own = queries.join(distinct, on="query_id", how="semi")
    own = own.select(
        "query_id",
        _question_keys(own, readers),
        reader=pl.col("dataset").replace_strict(names, return_dtype=pl.String),
        is_ordered=pl.col("dataset").replace_strict(ordered, return_dtype=pl.Boolean),
    )
    asked = distinct.join(own, on="query_id", how="left", maintain_order="left")
    shown = _shown(asked["doc_ids"], documents, asked["is_ordered"].to_numpy())
    table = asked.with_columns(passages_key=_passages_keys(shown, documents)).select(ASKS.columns.names)
    check(table, ASKS)
    return table


def _question_keys(queries: pl.DataFrame, readers: Mapping[str, ReaderUse]) -> pl.Series:
    rows = queries.select("dataset", "question", "answers").iter_rows()
    keys = [
        xxhash.xxh3_64_intdigest(text_hash(question, *(answers if readers[dataset].sees_golds else ())))
        for dataset, question, answers in rows
    ]
    return pl.Series("question_key", keys, dtype=pl.UInt64)


@dataclass(frozen=True, kw_only=True)
class _Shown:
    """Lists of documents as a reader sees them."""

    rows: npt.NDArray[np.int64]
    """Rows of the documents, list after list."""
    edges: npt.NDArray[np.int64]
    """[num_lists + 1], where each list starts, and the end."""


def _shown(doc_ids: pl.Series, documents: Documents, is_ordered: npt.NDArray[np.bool_]) -> _Shown:
    """The documents' rows; where the order does not matter by their hashes, so that equal sets stand alike.

    Args:
        doc_ids: lists of ids.
        documents: that hold them.
        is_ordered: [num_lists].
    """
    lengths = doc_ids.list.len().to_numpy().astype(np.int64)
    edges = np.concatenate([[0], np.cumsum(lengths)])
    ids = doc_ids.explode().drop_nulls().alias("doc_id").to_frame()
    found = ids.join(documents.rows, on="doc_id", how="left", maintain_order="left")["doc_row"]
    assert not found.null_count(), "preparing the inputs checks that every document is there"
    rows = found.to_numpy().astype(np.int64)
    # most lists have one document
    sort = np.flatnonzero(np.repeat(~is_ordered & (lengths > 1), lengths))
    places = np.empty_like(documents.order)
    places[documents.order] = np.arange(len(places))
    lists = np.repeat(np.arange(len(lengths)), lengths)[sort]
    rows[sort] = rows[sort][np.lexsort((places[rows[sort]], lists))]
    return _Shown(rows=rows, edges=edges)


def _passages_keys(shown: _Shown, documents: Documents) -> pl.Series:
    lengths = np.diff(shown.edges)
    keys = np.empty(len(lengths), np.uint64)
    alone = lengths == 1
    keys[alone] = documents.keys[shown.rows[shown.edges[:-1][alone]]]
    for number in np.flatnonzero(~alone):
        rows = shown.rows[shown.edges[number] : shown.edges[number + 1]]
        keys[number] = xxhash.xxh3_64_intdigest(documents.hashes[rows].tobytes())
    return pl.Series("passages_key", keys)


def to_read(
    asks: pl.DataFrame,
    known: pl.DataFrame,
    queries: pl.DataFrame,
    documents: Documents,
    *,
    order_matters: bool,
) -> pl.DataFrame:
    """What of ASKS is still to be read: one row for each distinct key, sorted by key (a question's stay together).

    Args:
        asks: ASKS of one reader.
        known: the keys that were read before.
        queries: QUERIES that hold every query asked about.
        documents: that hold every document.
        order_matters: whether the reader sees the order of the documents; else they stand in the order of their hashes.

    Returns:
        question_key, passages_key, query_row (in ``queries``), doc_rows (in ``documents``): some 40 bytes each.
    """
    new = asks.join(known, on=KEY_COLUMNS, how="anti", maintain_order="left")
    first = new.unique(subset=KEY_COLUMNS, keep="first", maintain_order=True).sort(KEY_COLUMNS)
    numbered = queries.select("query_id").with_row_index("query_row")
    rows = first.join(numbered, on="query_id", how="left", maintain_order="left")["query_row"]
    shown = _shown(first["doc_ids"], documents, np.full(first.height, order_matters))
    lists = pa.LargeListArray.from_arrays(shown.edges, shown.rows.astype(np.uint32))
    return first.select(*KEY_COLUMNS, rows, doc_rows=pl.Series(lists))


def build_requests(
    new: pl.DataFrame, queries: pl.DataFrame, documents: Documents, *, sees_golds: bool = False
) -> pa.Table:
    """REQUESTS: the question and the texts of each row of `to_read`, which are many times as large.

    Only a reader that sees golds gets them.
    """
    edges = np.concatenate([[0], np.cumsum(new["doc_rows"].list.len().to_numpy(), dtype=np.int64)])
    rows = new["doc_rows"].explode().drop_nulls()
    own = queries[new["query_row"]]
    golds = own["answers"] if sees_golds else pl.Series([[]], dtype=DocIds).new_from_index(0, new.height)
    columns = {
        **{name: new[name].to_arrow() for name in KEY_COLUMNS},
        "question": own["question"].to_arrow(),
        "titles": pa.LargeListArray.from_arrays(edges, documents.titles.gather(rows).to_arrow()),
        "texts": pa.LargeListArray.from_arrays(edges, documents.texts.gather(rows).to_arrow()),
        "golds": golds.to_arrow(),
    }
    return conform(pa.table(columns), REQUESTS, unique=False)


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
