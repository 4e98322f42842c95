"""Cells, and how often each resample draws each query -> one value per resample: Kendall's tau-b, Spearman's rho.

The loops are compiled (`erag_ray.numba_jit`). Add an entry to `STATISTICS` in the room's ``__init__``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from erag_ray.agreement.cells import Cells, Floats, Integers, Orders, Weights
from erag_ray.numba_jit import compiled, in_threads

LANES = 16
"""Resamples at a time: the processor adds several numbers at once."""
RESAMPLES_AT_A_TIME = 256
"""By one thread."""
MIN_DRAWS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """One statistic of two columns."""

    name: str
    function: Callable[[Cells, Weights], Floats]
    """(cells, weights [num_resamples, num_queries]) -> [num_resamples], NaN where a column is constant."""
    permuted: Callable[[Floats, Floats, Orders], Floats]
    """(columns [num_queries, num_columns], y [num_queries], orders [num_permutations, num_queries]) ->
    [num_permutations, num_columns]: what of the statistic changes when y is put in another order."""


def kendall_tau_b(cells: Cells, weights: Weights) -> Floats:
    """(concordant - discordant) / sqrt(pairs untied in x * pairs untied in y); Kendall, Biometrika 33 (1945).

    A query drawn twice makes a pair that is tied in both columns. Concordant pairs are counted by a tree of running
    sums over the values of y (Knight, JASA 61, 1966, in the form of Fenwick, 1994).
    """
    draws = np.ascontiguousarray(weights.T)

    def some(part: tuple[int, int]) -> Floats:
        return _tau_b(draws, *part, cells.cell, cells.x, cells.y, cells.num_y)

    return np.concatenate([np.empty(0), *in_threads(some, _parts(draws))])


def _parts(draws: Weights) -> list[tuple[int, int]]:
    """From one resample to another, for each thread; few draws are not worth a second one."""
    count = draws.shape[1]
    step = count if draws.size < MIN_DRAWS else RESAMPLES_AT_A_TIME
    return [(start, min(count, start + step)) for start in range(0, count, max(1, step))]


@compiled
def _tau_b(
    draws: Weights, begin: int, stop: int, cell: Integers, x: Integers, y: Integers, num_y: int
) -> Floats:
    values = np.empty(stop - begin)
    held, of_y, tree = np.empty((len(x), LANES)), np.empty((num_y, LANES)), np.empty((num_y + 1, LANES))
    total, tied_x, surplus = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    through, drawn = np.empty(LANES), np.empty(LANES)
    for first in range(begin, stop, LANES):
        width = min(LANES, stop - first)
        held[:], of_y[:], tree[:] = 0.0, 0.0, 0.0
        total[:], tied_x[:], surplus[:] = 0.0, 0.0, 0.0
        for query in range(len(cell)):
            for lane in range(width):
                held[cell[query], lane] += draws[query, first + lane]
        start = 0
        while start < len(x):
            end = start
            drawn[:] = 0.0
            while end < len(x) and x[end] == x[start]:
                through[:] = 0.0
                node = y[end] + 1
                while node > 0:
                    for lane in range(LANES):
                        through[lane] += tree[node, lane]
                    node &= node - 1
                for lane in range(LANES):
                    # of the draws with a lower x: those with a lower y, less those with a higher one
                    balance = 2 * through[lane] - of_y[y[end], lane] - total[lane]
                    surplus[lane] += held[end, lane] * balance
                    drawn[lane] += held[end, lane]
                end += 1
            for place in range(start, end):
                for lane in range(LANES):
                    of_y[y[place], lane] += held[place, lane]
                node = y[place] + 1
                while node <= num_y:
                    for lane in range(LANES):
                        tree[node, lane] += held[place, lane]
                    node += node & -node
            for lane in range(LANES):
                total[lane] += drawn[lane]
                tied_x[lane] += drawn[lane] * drawn[lane]
            start = end
        for lane in range(width):
            tied_y = (of_y[:, lane] * of_y[:, lane]).sum()
            untied = (total[lane] * total[lane] - tied_x[lane]) * (total[lane] * total[lane] - tied_y)
            # the surplus counts a pair once, the untied pairs are counted in both directions
            values[first - begin + lane] = 2 * surplus[lane] / np.sqrt(untied) if untied > 0 else np.nan
    return values


def spearman_rho(cells: Cells, weights: Weights) -> Floats:
    """Pearson's correlation of the mid-ranks, which are taken anew in every resample."""
    draws = np.ascontiguousarray(weights.T)

    def some(part: tuple[int, int]) -> Floats:
        return _rho(draws, *part, cells.cell, cells.x, cells.y, cells.num_x, cells.num_y)

    return np.concatenate([np.empty(0), *in_threads(some, _parts(draws))])


@compiled
def _rho(
    draws: Weights, begin: int, stop: int, cell: Integers, x: Integers, y: Integers, num_x: int, num_y: int
) -> Floats:
    values = np.empty(stop - begin)
    held, of_x, of_y = np.empty((len(x), LANES)), np.empty((num_x, LANES)), np.empty((num_y, LANES))
    total, below, squares = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    product, spread = np.empty(LANES), np.empty(LANES)
    for first in range(begin, stop, LANES):
        width = min(LANES, stop - first)
        held[:], of_x[:], of_y[:] = 0.0, 0.0, 0.0
        total[:], product[:], spread[:] = 0.0, 0.0, 1.0
        for query in range(len(cell)):
            for lane in range(width):
                held[cell[query], lane] += draws[query, first + lane]
        for place in range(len(x)):
            for lane in range(LANES):
                of_x[x[place], lane] += held[place, lane]
                of_y[y[place], lane] += held[place, lane]
                total[lane] += held[place, lane]
        for groups in (of_x, of_y):
            below[:], squares[:] = 0.0, 0.0
            for number in range(len(groups)):
                for lane in range(LANES):
                    # twice (mid-rank - mean rank) is the weight below a value, less the weight above it
                    own = groups[number, lane]
                    balance = 2 * below[lane] + own - total[lane]
                    groups[number, lane] = balance
                    squares[lane] += own * balance * balance
                    below[lane] += own
            for lane in range(LANES):
                spread[lane] *= squares[lane]
        for place in range(len(x)):
            for lane in range(LANES):
                product[lane] += held[place, lane] * of_x[x[place], lane] * of_y[y[place], lane]
        for lane in range(width):
            values[first - begin + lane] = (
                product[lane] / np.sqrt(spread[lane]) if spread[lane] > 0 else np.nan
            )
    return values


def permuted_ranks(columns: Floats, y: Floats, orders: Orders) -> Floats:
    """The products of mid-ranks, four times about their means: the numerator of rho."""
    ranks = np.stack([_balance(column) for column in columns.T], axis=1)
    products: Floats = _balance(y)[orders] @ ranks
    return products


def permuted_pairs(columns: Floats, y: Floats, orders: Orders) -> Floats:
    """Concordant less discordant pairs: the numerator of tau.

    Where a column has two values, a query's pairs are as many as its rank in the other says: the numerator of rho.
    """
    if len(np.unique(y)) <= 2:
        return permuted_ranks(columns, y, orders)
    found = np.empty((len(orders), columns.shape[1]))
    own_values, own = np.unique(y, return_inverse=True)
    inverse = np.empty_like(orders)
    np.put_along_axis(inverse, orders, np.arange(len(y), dtype=np.int32)[None], axis=1)
    for place, column in enumerate(columns.T):
        values, group = np.unique(column, return_inverse=True)
        if len(values) <= 2:
            found[:, place] = permuted_ranks(column[:, None], y, orders)[:, 0]
        elif len(values) < len(own_values):
            # the same pairs seen from y: the sums are over the column with fewer values, so they are shorter
            found[:, place] = _permuted_surplus(inverse, np.argsort(own), own, group, len(values))
        else:
            found[:, place] = _permuted_surplus(orders, np.argsort(group), group, own, len(own_values))
    return found


def _balance(column: Floats) -> Floats:
    """[num_queries]: how many have a lower value, less how many have a higher one."""
    _, group, counts = np.unique(column, return_inverse=True, return_counts=True)
    balance = 2 * np.cumsum(counts) - counts - len(column)
    return balance[group].astype(np.float64)


@compiled
def _permuted_surplus(orders: Orders, by_x: Integers, x: Integers, y: Integers, num_y: int) -> Floats:
    values = np.zeros(len(orders))
    of_y, tree = np.empty(num_y), np.empty(num_y + 1)
    for number in range(len(orders)):
        of_y[:], tree[:] = 0.0, 0.0
        start = 0
        while start < len(by_x):
            end = start
            while end < len(by_x) and x[by_x[end]] == x[by_x[start]]:
                group = y[orders[number, by_x[end]]]
                node, through = group + 1, 0.0
                while node > 0:
                    through += tree[node]
                    node &= node - 1
                values[number] += 2 * through - of_y[group] - start
                end += 1
            for place in range(start, end):
                group = y[orders[number, by_x[place]]]
                of_y[group] += 1
                node = group + 1
                while node <= num_y:
                    tree[node] += 1
                    node += node & -node
            start = end
    return values
