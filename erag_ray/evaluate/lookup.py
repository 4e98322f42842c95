"""Rows of one table in another: tables of millions of strings, looked up through whole numbers."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.numba_jit import compiled, in_threads

Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

SPREAD = 0x9E3779B97F4A7C15
"""An odd number: rows times it are all different."""


def numbered(table: pl.DataFrame, names: list[str]) -> tuple[pl.DataFrame, Integers]:
    """The distinct rows of some columns in order of appearance, and for each row of the table the number of its own.

    Neighbours that are equal are looked up once, so a table that lies in blocks is numbered by its blocks.
    """
    is_new = [pl.col(name).ne_missing(pl.col(name).shift()) for name in names]
    starts = table.select(pl.any_horizontal(is_new).alias("is_new"))["is_new"].arg_true().to_numpy()
    blocks = table.select(names)[starts]
    distinct = blocks.unique(maintain_order=True).with_row_index("number")
    numbers = blocks.join(distinct, on=names, how="left", maintain_order="left")["number"].to_numpy()
    return distinct.drop("number"), np.repeat(numbers.astype(np.int64), np.diff(starts, append=table.height))


def taken(table: pl.DataFrame, kept: npt.NDArray[np.bool_]) -> pl.DataFrame:
    """The rows that are kept; the very table where all are."""
    return table if kept.all() else table.filter(kept)


def places_of(
    rows: Integers, doc_ids: pl.Series, known_rows: Integers, known_ids: pl.Series, num_rows: int
) -> Integers:
    """Where each document of a query stands among the known ones, -1 where it does not.

    Args:
        rows: [num_docs], the query's number, below ``num_rows``; -1: no query.
        doc_ids: [num_docs].
        known_rows: [num_known], the same of the known ones; no pair is there twice.
        known_ids: [num_known].
        num_rows: how many queries there are.
    """
    counts = np.bincount(known_rows[known_rows >= 0], minlength=num_rows)
    for seed in itertools.count():
        keys, known = _keys(rows, doc_ids, seed), _keys(known_rows, known_ids, seed)
        starts, sizes, slots = _place(known, known_rows, counts)
        work = functools.partial(_find, keys, rows, known, starts, sizes, slots)
        places = np.concatenate(in_threads(work, _halves(len(keys))))
        # two documents of one query with one key: once in millions of millions; then with other keys
        if (known_ids.gather(np.maximum(places, 0)) == doc_ids).to_numpy()[places >= 0].all():
            return places
    raise AssertionError("there is no end to the seeds")


def _keys(rows: Integers, doc_ids: pl.Series, seed: int) -> Keys:
    """A hash of each pair: a document's, mixed with the row so that it is another in every query."""
    keys: Keys = doc_ids.hash(seed).to_numpy() ^ (rows.view(np.uint64) * np.uint64(SPREAD))
    return keys


def _halves(length: int) -> list[tuple[int, int]]:
    return [(0, length // 2), (length // 2, length)]


@compiled
def _place(
    known: Keys, known_rows: Integers, counts: Integers
) -> tuple[Integers, Integers, npt.NDArray[np.int32]]:
    """Slots for the known keys, by open addressing; a query's slots are neighbours."""
    sizes = np.ones(len(counts), np.int64)
    for row in range(len(counts)):
        while sizes[row] < 2 * counts[row]:
            sizes[row] *= 2
    starts = np.cumsum(sizes) - sizes
    # behind a full neighbourhood comes the next one; behind the last there is room for all
    slots = np.full(sizes.sum() + len(known) + 1, -1, np.int32)
    for place in range(len(known)):
        row = known_rows[place]
        if row >= 0:
            slot = starts[row] + (np.int64(known[place]) & (sizes[row] - 1))
            while slots[slot] >= 0:
                slot += 1
            slots[slot] = place
    return starts, sizes, slots


@compiled
def _find(
    keys: Keys,
    rows: Integers,
    known: Keys,
    starts: Integers,
    sizes: Integers,
    slots: npt.NDArray[np.int32],
    part: tuple[int, int],
) -> Integers:
    """The place of each key of a part among the known ones, -1 where it is not."""
    first, end = part
    places = np.full(end - first, -1, np.int64)
    for number in range(first, end):
        row = rows[number]
        if row >= 0:
            slot = starts[row] + (np.int64(keys[number]) & (sizes[row] - 1))
            while slots[slot] >= 0 and known[slots[slot]] != keys[number]:
                slot += 1
            places[number - first] = slots[slot]
    return places
