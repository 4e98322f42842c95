"""RUNS and CORPUS -> LIST_DUPLICATES: how often a list repeats a text. Pure.

Texts are compared as lower-case words (NFKC). Two are equal if their words are, and nearly equal if the Jaccard
similarity of their sets of `SHINGLE_WORDS` consecutive words is at least `NEARLY_EQUAL` (Broder, 1997).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import scipy.sparse

from erag_ray.measures import Integers
from erag_ray.schemas import LIST_DUPLICATES, conform

SHINGLE_WORDS = 3
NEARLY_EQUAL = 0.8
SMALL = 1e-9
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
Flags = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]


class _Texts(NamedTuple):
    """The distinct documents of all lists."""

    shingles: scipy.sparse.csr_array
    """[num_docs, num_shingles], 1 where a document has a shingle."""
    keys: Integers
    """[num_docs], a number for each distinct text; a blank text has none (-1)."""


def list_duplicates(runs: pl.DataFrame, corpus: pl.DataFrame, depths: Sequence[int]) -> pl.DataFrame:
    """Return LIST_DUPLICATES of every list in ``runs`` at every depth.

    ``num_exact`` counts the documents whose text equals that of one before it, ``num_near`` the others whose text
    nearly equals one before it. A blank text equals none.

    Args:
        runs: RUNS.
        corpus: CORPUS, at least their documents.
        depths: of the lists.
    """
    cut = runs.filter(pl.col("rank") <= max(depths)).sort("run_id", "query_id", "rank")
    documents = (
        cut.select("doc_id").unique().join(corpus, on="doc_id").sort("doc_id").select("doc_id", "text")
    )
    numbered = documents.select("doc_id", row=pl.int_range(pl.len()))
    texts = _texts(documents["text"])
    rows = [
        row
        for (query_id,), part in cut.join(numbered, on="doc_id").group_by("query_id", maintain_order=True)
        for row in _of_query(str(query_id), part, texts, depths)
    ]
    schema = pl.DataFrame(LIST_DUPLICATES.empty()).schema
    table = pl.DataFrame(rows, schema=schema, orient="row").sort(LIST_DUPLICATES.key)
    return pl.DataFrame(conform(table, LIST_DUPLICATES))


def _texts(texts: pl.Series) -> _Texts:
    words = texts.str.normalize("NFKC").str.to_lowercase().str.extract_all(r"\w+")
    normal = words.list.join(" ")
    keys = np.where((normal == "").to_numpy(), -1, normal.rank("dense").cast(pl.Int64).to_numpy())
    lengths = words.list.len().to_numpy().astype(np.int64)
    rows = np.repeat(np.arange(len(texts)), lengths)
    steps = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    hashes = words.explode().drop_nulls().hash(0).to_numpy()
    # texts of fewer words have one shingle, of all their words
    is_whole = (steps == 0) | (steps <= lengths[rows] - SHINGLE_WORDS)
    shingles = pl.DataFrame({"row": rows, "shingle": _shingles(hashes, lengths[rows] - steps)}).filter(
        is_whole
    )
    distinct = shingles.select("row", column=pl.col("shingle").rank("dense").cast(pl.Int64) - 1).unique()
    columns = distinct["column"].to_numpy()
    entries = (np.ones(len(columns), np.int32), (distinct["row"].to_numpy(), columns))
    shape = (len(texts), int(columns.max(initial=0)) + 1)
    return _Texts(scipy.sparse.csr_array(entries, shape=shape), keys)


def _shingles(hashes: Hashes, num_left: Integers) -> Hashes:
    """Return [num_words], the hash of each word and of those after it, as far as the text has any.

    Args:
        hashes: [num_words], of the words of all texts.
        num_left: [num_words], how many words the text has from this one on.
    """
    shingles = hashes.copy()
    for step in range(1, SHINGLE_WORDS):
        following = np.where(num_left > step, np.roll(hashes, -step), 0)
        shingles = shingles * MULTIPLIER ^ following
    return shingles


def _of_query(
    query_id: str, part: pl.DataFrame, texts: _Texts, depths: Sequence[int]
) -> Iterator[tuple[object, ...]]:
    """Yield the rows of a query: its documents are compared once for all runs."""
    rows, positions = np.unique(part["row"].to_numpy(), return_inverse=True)
    is_exact, is_near = _similar(rows, texts)
    numbered = part.select("run_id", "rank", position=positions)
    for (run_id,), listed in numbered.group_by("run_id", maintain_order=True):
        order = listed["position"].to_numpy()
        exact = _has_earlier(is_exact[np.ix_(order, order)])
        near = _has_earlier(is_near[np.ix_(order, order)]) & ~exact
        for depth in depths:
            within = (listed["rank"] <= depth).to_numpy()
            counts = (int(within.sum()), int(exact[within].sum()), int(near[within].sum()))
            yield (str(run_id), query_id, depth, *counts)


def _similar(rows: Integers, texts: _Texts) -> tuple[Flags, Flags]:
    """Return [num_docs, num_docs] for these documents: whether two are equal, and whether nearly."""
    shingles, keys = texts.shingles[rows], texts.keys[rows]
    # only the columns of these documents: a transpose walks all of them
    names, columns = np.unique(shingles.indices, return_inverse=True)
    shape = len(rows), max(1, len(names))
    shingles = scipy.sparse.csr_array((shingles.data, columns, shingles.indptr), shape=shape)
    common = (shingles @ shingles.T).toarray()
    sizes = np.diag(common)
    union = sizes[:, None] + sizes[None, :] - common
    is_near: Flags = common >= NEARLY_EQUAL * np.maximum(union, 1) - SMALL
    is_exact: Flags = (keys[:, None] == keys[None, :]) & (keys >= 0)[:, None]
    return is_exact, is_near


def _has_earlier(is_similar: Flags) -> Flags:
    """Return [num_docs], whether a document is similar to one before it."""
    flags: Flags = np.logical_or.reduce(np.tril(is_similar, -1), axis=1)
    return flags
