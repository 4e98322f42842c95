"""Subsets of lists that credits need answers to, and credits from their scores. Pure.

Every credit of a document is a weighted sum of differences: the score with a subset of its list minus the score
without the document. Subsets keep the order of the list, and each distinct one is answered once.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import xxhash

from erag_ray.store.schemas import conform, table_schema

CREDITS = table_schema(
    "credits", "reader* score* run_id* query_id* depth credit* doc_id* rank value? standard_error?"
)
"""Part of each document in the score of its list, see `config.job.CREDITS`."""
Bools = npt.NDArray[np.bool_]
Keys = npt.NDArray[np.uint64]
LISTS_AT_A_TIME = 128
"""Lists whose subsets are in memory as tables of flags at a time."""
EXACT = -1
"""Number of the sample of a credit for which nothing is sampled."""
LIST = ["run_id", "query_id"]
DIGITS = 12
"""Credits are compared to this many digits: equal differences must tie."""
CREDIT = ["reader", "score", *LIST, "credit", "doc_id", "rank"]


@dataclass(frozen=True, kw_only=True)
class CreditLists:
    """Subsets of ranked lists, and how credits follow from their scores."""

    subsets: pl.DataFrame
    """run_id, query_id, depth (of the list), subset (its number), doc_ids in rank order: distinct within a list."""
    differences: pl.DataFrame
    """run_id, query_id, credit, doc_id, rank, sample, weight, with_subset, without_subset: see `credits_of`."""


class _Differences(NamedTuple):
    """Differences of subsets with and without a document, of some lists of n documents; [num_differences, ...]."""

    credit: str
    lists: npt.NDArray[np.int64]
    ranks: npt.NDArray[np.int64]
    """From 0."""
    samples: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    subsets: Bools
    """[num_differences, n], the subset with the document; without it, the other is the same."""


def credit_lists(
    ranked: pl.DataFrame, credits: Sequence[str], num_permutations: int, seed: int
) -> CreditLists:
    """Return the subsets of lists (run_id, query_id, depth, doc_ids) that some of `config.job.CREDITS` need.

    Empty lists have no credits. The permutations are those of shapley; their number is even.
    """
    lists = ranked.filter(pl.col("doc_ids").list.len() > 0).sort("run_id", "query_id")
    batches = [
        (int(str(length)), batch)
        for (length,), same in lists.group_by(pl.col("doc_ids").list.len(), maintain_order=True)
        for batch in same.iter_slices(LISTS_AT_A_TIME)
    ]
    # without any list, the tables are empty
    parts = [
        _credit_part(batch, length, credits, num_permutations, seed)
        for length, batch in batches or [(1, lists)]
    ]
    return CreditLists(
        subsets=pl.concat(part.subsets for part in parts),
        differences=pl.concat(part.differences for part in parts),
    )


def _credit_part(
    lists: pl.DataFrame, length: int, credits: Sequence[str], num_permutations: int, seed: int
) -> CreditLists:
    """Return the subsets of lists of ``length`` documents."""
    documents = lists.select("query_id", "doc_ids").explode("doc_ids").rename({"doc_ids": "doc_id"})
    parts = list(_differences(documents, length, credits, num_permutations, seed))
    rows = np.concatenate([part.lists for part in parts])
    ranks = np.concatenate([part.ranks for part in parts])
    included = np.concatenate([part.subsets for part in parts])
    excluded = included.copy()
    excluded[np.arange(len(ranks)), ranks] = False
    numbers, subset_rows, subsets = _distinct(np.tile(rows, 2), np.concatenate([included, excluded]))
    ids = lists.select("run_id", "query_id", "depth")
    doc_ids = documents["doc_id"]
    named = ids[subset_rows].with_columns(
        subset=pl.int_range(pl.len(), dtype=pl.UInt32), doc_ids=_doc_ids(doc_ids, subset_rows, subsets)
    )
    differences = ids[rows].select(
        "run_id",
        "query_id",
        credit=pl.Series(np.repeat([part.credit for part in parts], [len(part.lists) for part in parts])),
        doc_id=doc_ids.gather(rows * length + ranks),
        rank=pl.Series(ranks + 1, dtype=pl.Int32),
        sample=pl.Series(np.concatenate([part.samples for part in parts])),
        weight=pl.Series(np.concatenate([part.weights for part in parts])),
        with_subset=pl.Series(numbers[: len(rows)], dtype=pl.UInt32),
        without_subset=pl.Series(numbers[len(rows) :], dtype=pl.UInt32),
    )
    return CreditLists(subsets=named, differences=differences)


def _distinct(
    rows: npt.NDArray[np.int64], subsets: Bools
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Bools]:
    """Return the number of each subset among the distinct (list, subset), and the list and documents of these."""
    flags = pl.Series([row.tobytes() for row in np.packbits(subsets, axis=1)], dtype=pl.Binary)
    frame = pl.DataFrame({"list": rows, "flags": flags})
    first = frame.with_row_index("first").unique(frame.columns, keep="first", maintain_order=True)
    numbered = first.with_row_index("subset")
    numbers = frame.join(numbered, on=frame.columns, how="left", maintain_order="left")["subset"]
    positions = first["first"].to_numpy()
    return numbers.to_numpy().astype(np.int64), rows[positions], subsets[positions]


def _doc_ids(doc_ids: pl.Series, rows: npt.NDArray[np.int64], subsets: Bools) -> pl.Series:
    """Return the documents of each subset, in rank order; ``doc_ids`` are those of all lists, list after list."""
    numbers, ranks = np.nonzero(subsets)
    edges = np.concatenate([[0], np.cumsum(subsets.sum(axis=1))])
    chosen = doc_ids.gather(rows[numbers] * subsets.shape[1] + ranks)
    return pl.Series(pa.LargeListArray.from_arrays(edges, chosen.to_arrow()), dtype=pl.List(pl.String))


def _differences(
    documents: pl.DataFrame, length: int, credits: Sequence[str], num_permutations: int, seed: int
) -> Iterator[_Differences]:
    """Yield the differences behind each credit.

    ``documents`` are query_id, doc_id of lists of ``length`` documents, list after list.
    """
    num_lists = documents.height // length
    one, ranks = np.ones(length), np.arange(length)
    if "leave_one_out" in credits:
        yield _same("leave_one_out", num_lists, ranks, one, np.ones((length, length), np.bool_))
    if "marginal" in credits:
        yield _same("marginal", num_lists, ranks, one, np.tri(length, dtype=np.bool_))
    if "shapley" in credits and takes_all_subsets(length, num_permutations):
        yield _same("shapley", num_lists, *_all_subsets(length))
    elif "shapley" in credits:
        yield _sampled(documents, length, num_permutations, seed)


def takes_all_subsets(length: int, num_permutations: int) -> bool:
    """Return whether all subsets of a list need no more answers than the permutations may.

    A permutation needs its length - 1 proper starts; all need the whole and the empty list.
    """
    return 2.0**length <= num_permutations * (length - 1) + 2


def _same(
    credit: str,
    num_lists: int,
    ranks: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float64],
    subsets: Bools,
) -> _Differences:
    """Return the same differences for every list."""
    return _Differences(
        credit=credit,
        lists=np.repeat(np.arange(num_lists), len(ranks)),
        ranks=np.tile(ranks, num_lists),
        samples=np.full(num_lists * len(ranks), EXACT),
        weights=np.tile(weights, num_lists),
        subsets=np.tile(subsets, (num_lists, 1)),
    )


def _all_subsets(length: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], Bools]:
    """Return ranks, weights and subsets behind the exact Shapley value (Shapley 1953): |S|! (n - |S| - 1)! / n!."""
    bits = (np.arange(2**length)[:, None] >> np.arange(length)) & 1 == 1
    numbers, ranks = np.nonzero(bits)
    others = bits.sum(axis=1)[numbers] - 1
    table = [1 / (length * math.comb(length - 1, size)) for size in range(length)]
    return ranks, np.array(table)[others], bits[numbers]


def _sampled(documents: pl.DataFrame, length: int, num_permutations: int, seed: int) -> _Differences:
    """Return the differences along permutations, in pairs of one and its reverse (antithetic sampling)."""
    num_lists, num_pairs = documents.height // length, num_permutations // 2
    keys = document_keys(documents, seed).reshape(num_lists, 1, length)
    orders = np.argsort(mixed(keys ^ mixed(np.arange(num_pairs, dtype=np.uint64))[:, None]), axis=2)
    positions = np.argsort(np.concatenate([orders, orders[:, :, ::-1]], axis=1), axis=2)
    subsets = positions[:, :, None, :] <= positions[:, :, :, None]
    lists, permutations, ranks = (part.ravel() for part in np.indices(positions.shape))
    return _Differences(
        credit="shapley",
        lists=lists,
        ranks=ranks,
        samples=permutations % num_pairs,
        weights=np.full(len(lists), 1 / num_permutations),
        subsets=subsets.reshape(-1, length),
    )


def document_keys(documents: pl.DataFrame, seed: int) -> Keys:
    """Return a hash of each (seed, query_id, doc_id): the same in every run, so that orders of shared documents are."""
    rows = documents.select("query_id", "doc_id").iter_rows()
    hashes = (xxhash.xxh3_64_intdigest("\0".join([str(seed), *row]).encode()) for row in rows)
    return np.fromiter(hashes, np.uint64, documents.height)


def mixed(values: Keys) -> Keys:
    """Return SplitMix64's hash of each value (Steele, Lea & Flood 2014)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashes: Keys = mixed ^ (mixed >> np.uint64(31))
    return hashes


def credits_of(lists: CreditLists, scores: pl.DataFrame) -> pl.DataFrame:
    """Return CREDITS: the weighted sum of a document's differences, with its standard error over samples.

    A sample of shapley is a permutation with its reverse: the standard error is that of the mean of independent pairs.
    It is 0 if nothing is sampled, and only then: null (unknown) if all samples of a credit are equal. A document of
    which a score is null, not judged, has a null credit. Scores, of every subset of `credit_lists`, have the columns
    reader, score, run_id, query_id, subset, value.
    """
    of_subset = scores.select(*LIST, "reader", "score", "subset", "value")
    without = of_subset.select(*LIST, without_subset="subset", lower="value")
    joined = lists.differences.join(of_subset, left_on=[*LIST, "with_subset"], right_on=[*LIST, "subset"])
    both = joined.join(without, on=[*LIST, "without_subset"])
    weighted = pl.col("weight") * (pl.col("value") - pl.col("lower"))
    is_judged = pl.col("value").is_not_null() & pl.col("lower").is_not_null()
    by_sample = both.group_by(*CREDIT, "sample").agg(part=weighted.sum(), is_judged=is_judged.all())
    is_exact, judged = (pl.col("sample") == EXACT).all(), pl.col("is_judged").all()
    # the sum of n parts has the standard error of n times their mean
    spread = (pl.col("part").std() * pl.len().sqrt()).round(DIGITS)
    error = pl.when(is_exact).then(0.0).when(spread > 0).then(spread)
    credits = (
        by_sample.sort("sample")
        .group_by(CREDIT)
        .agg(
            value=pl.when(judged).then(pl.col("part").sum().round(DIGITS)),
            standard_error=pl.when(judged).then(error),
        )
    )
    depths = lists.subsets.select(*LIST, "depth").unique()
    table = credits.join(depths, on=LIST).select(CREDITS.columns.names).sort(CREDITS.key)
    return pl.DataFrame(conform(table, CREDITS))
