"""Kendall's tau-b and Spearman's rho of every bootstrap resample, exactly, from cells and weights.

The cells of two columns are their distinct pairs of values: 0/1 columns and P@k have few. Weights and ranks are
integers that floats represent exactly. The loops are compiled (`support.numba_jit`). To add a statistic, write a
function and an entry in `STATISTICS`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from erag_ray.support.numba_jit import compiled, in_threads

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Weights = npt.NDArray[np.integer]
Orders = npt.NDArray[np.int32]
Clusters = npt.NDArray[np.int64]
"""[num_queries], ascending: the number of each query's cluster."""
LANES = 16
"""Resamples per loop iteration, for SIMD."""
RESAMPLES_AT_A_TIME = 256
"""Resamples per thread and call."""
MIN_DRAWS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Distinct (x, y) pairs of two columns, ordered by x, then y."""

    cell: Integers
    """[num_queries], index of the cell of each query."""
    x: Integers
    """[num_cells], index of the x of each cell among the distinct x, ascending."""
    y: Integers
    """[num_cells], index of the y of each cell among the distinct y."""
    num_x: int
    num_y: int


def fold(x: Floats, y: Floats) -> Cells:
    """Return the cells of two columns [num_queries], with at least one query."""
    order = np.lexsort((y, x))
    is_new_x = np.diff(x[order], prepend=-np.inf) != 0
    is_new = is_new_x | (np.diff(y[order], prepend=-np.inf) != 0)
    cell = np.empty(len(x), np.int64)
    cell[order] = np.cumsum(is_new) - 1
    values, of_y = np.unique(y, return_inverse=True)
    starts = order[is_new]
    numbers = (np.cumsum(is_new_x) - 1)[is_new]
    return Cells(cell=cell, x=numbers, y=of_y[starts], num_x=int(numbers[-1]) + 1, num_y=len(values))


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """One statistic of two columns."""

    name: str
    function: Callable[[Cells, Weights], Floats]
    """(cells, weights [num_resamples, num_queries]) -> [num_resamples], NaN where a column is constant."""
    permuted: Callable[[Floats, Floats, Orders], Floats]
    """(columns [num_queries, num_columns], y [num_queries], orders [num_permutations, num_queries]) ->
    [num_permutations, num_columns]: the part of the statistic that depends on the order of y."""


def kendall_tau_b(cells: Cells, weights: Weights) -> Floats:
    """Compute (concordant - discordant) / sqrt(pairs untied in x * pairs untied in y); Kendall, Biometrika 33 (1945).

    A query drawn twice gives a pair that is tied in both columns. Concordant pairs are counted with a Fenwick tree
    (1994) over the values of y, after Knight (JASA 61, 1966).
    """
    return _of_resamples(_tau_b, cells, weights)


def _of_resamples(function: Callable[..., Floats], cells: Cells, weights: Weights) -> Floats:
    """Return the values of a compiled function for ranges of resamples, one per thread; few draws are not split."""
    draws = np.ascontiguousarray(weights.T)
    count = draws.shape[1]
    step = count if draws.size < MIN_DRAWS else RESAMPLES_AT_A_TIME

    def of_range(start: int) -> Floats:
        stop = min(count, start + step)
        return function(draws, start, stop, cells.cell, cells.x, cells.y, cells.num_x, cells.num_y)

    starts = range(0, count, max(1, step))
    return np.concatenate([np.empty(0), *in_threads(of_range, starts)])


@compiled
def _tau_b(
    draws: Weights, begin: int, stop: int, cell: Integers, x: Integers, y: Integers, num_x: int, num_y: int
) -> Floats:
    values = np.empty(stop - begin)
    cell_weights, of_y = np.empty((len(x), LANES)), np.empty((num_y, LANES))
    tree, at_most, group_weights = np.empty((num_y + 1, LANES)), np.empty(LANES), np.empty(LANES)
    total, tied_x, surplus = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    for first in range(begin, stop, LANES):
        width = min(LANES, stop - first)
        cell_weights[:], of_y[:], tree[:] = 0.0, 0.0, 0.0
        total[:], tied_x[:], surplus[:] = 0.0, 0.0, 0.0
        for query in range(len(cell)):
            for lane in range(width):
                cell_weights[cell[query], lane] += draws[query, first + lane]
        start = 0
        while start < len(x):
            end = start
            group_weights[:] = 0.0
            while end < len(x) and x[end] == x[start]:
                at_most[:] = 0.0
                node = y[end] + 1
                while node > 0:
                    for lane in range(LANES):
                        at_most[lane] += tree[node, lane]
                    node &= node - 1
                for lane in range(LANES):
                    # among draws with a lower x: those with a lower y minus those with a higher y
                    balance = 2 * at_most[lane] - of_y[y[end], lane] - total[lane]
                    surplus[lane] += cell_weights[end, lane] * balance
                    group_weights[lane] += cell_weights[end, lane]
                end += 1
            for index in range(start, end):
                for lane in range(LANES):
                    of_y[y[index], lane] += cell_weights[index, lane]
                node = y[index] + 1
                while node <= num_y:
                    for lane in range(LANES):
                        tree[node, lane] += cell_weights[index, lane]
                    node += node & -node
            for lane in range(LANES):
                total[lane] += group_weights[lane]
                tied_x[lane] += group_weights[lane] * group_weights[lane]
            start = end
        for lane in range(width):
            tied_y = (of_y[:, lane] * of_y[:, lane]).sum()
            untied = (total[lane] * total[lane] - tied_x[lane]) * (total[lane] * total[lane] - tied_y)
            # the surplus counts a pair once, the untied pairs are counted in both directions
            values[first - begin + lane] = 2 * surplus[lane] / np.sqrt(untied) if untied > 0 else np.nan
    return values


def spearman_rho(cells: Cells, weights: Weights) -> Floats:
    """Compute Pearson's correlation of the mid-ranks, which are recomputed in every resample."""
    return _of_resamples(_rho, cells, weights)


@compiled
def _rho(
    draws: Weights, begin: int, stop: int, cell: Integers, x: Integers, y: Integers, num_x: int, num_y: int
) -> Floats:
    values = np.empty(stop - begin)
    cell_weights, of_x, of_y = np.empty((len(x), LANES)), np.empty((num_x, LANES)), np.empty((num_y, LANES))
    total, below, squares = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    product, spread = np.empty(LANES), np.empty(LANES)
    for first in range(begin, stop, LANES):
        width = min(LANES, stop - first)
        cell_weights[:], of_x[:], of_y[:] = 0.0, 0.0, 0.0
        total[:], product[:], spread[:] = 0.0, 0.0, 1.0
        for query in range(len(cell)):
            for lane in range(width):
                cell_weights[cell[query], lane] += draws[query, first + lane]
        for index in range(len(x)):
            for lane in range(LANES):
                of_x[x[index], lane] += cell_weights[index, lane]
                of_y[y[index], lane] += cell_weights[index, lane]
                total[lane] += cell_weights[index, lane]
        for groups in (of_x, of_y):
            below[:], squares[:] = 0.0, 0.0
            for number in range(len(groups)):
                for lane in range(LANES):
                    # 2 * (mid-rank - mean rank) = weight below the value - weight above it
                    weight = groups[number, lane]
                    balance = 2 * below[lane] + weight - total[lane]
                    groups[number, lane] = balance
                    squares[lane] += weight * balance * balance
                    below[lane] += weight
            for lane in range(LANES):
                spread[lane] *= squares[lane]
        for index in range(len(x)):
            for lane in range(LANES):
                product[lane] += cell_weights[index, lane] * of_x[x[index], lane] * of_y[y[index], lane]
        for lane in range(width):
            rho = product[lane] / np.sqrt(spread[lane]) if spread[lane] > 0 else np.nan
            values[first - begin + lane] = rho
    return values


def permuted_ranks(columns: Floats, y: Floats, orders: Orders) -> Floats:
    """Return the numerator of rho: four times the sum of products of centered mid-ranks."""
    ranks = np.stack([_balance(column) for column in columns.T], axis=1)
    return np.asarray(_balance(y)[orders] @ ranks, np.float64)


def permuted_pairs(columns: Floats, y: Floats, orders: Orders) -> Floats:
    """Return the numerator of tau: concordant minus discordant pairs.

    If a column has two distinct values, the count follows from the ranks in the other: it is the numerator of rho.
    """
    if len(np.unique(y)) <= 2:
        return permuted_ranks(columns, y, orders)
    surplus = np.empty((len(orders), columns.shape[1]))
    y_values, y_groups = np.unique(y, return_inverse=True)
    inverse = np.empty_like(orders)
    np.put_along_axis(inverse, orders, np.arange(len(y), dtype=np.int32)[None], axis=1)
    for index, column in enumerate(columns.T):
        values, group = np.unique(column, return_inverse=True)
        if len(values) <= 2:
            surplus[:, index] = permuted_ranks(column[:, None], y, orders)[:, 0]
        elif len(values) < len(y_values):
            # exchange the roles of x and y: the tree is over the column with fewer values, which is faster
            surplus[:, index] = _permuted_surplus(inverse, np.argsort(y_groups), y_groups, group, len(values))
        else:
            surplus[:, index] = _permuted_surplus(orders, np.argsort(group), group, y_groups, len(y_values))
    return surplus


def _balance(column: Floats) -> Floats:
    """Return the number of lower values minus the number of higher values, per query: [num_queries]."""
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
                node, at_most = group + 1, 0.0
                while node > 0:
                    at_most += tree[node]
                    node &= node - 1
                values[number] += 2 * at_most - of_y[group] - start
                end += 1
            for index in range(start, end):
                group = y[orders[number, by_x[index]]]
                of_y[group] += 1
                node = group + 1
                while node <= num_y:
                    tree[node] += 1
                    node += node & -node
            start = end
    return values


STATISTICS = {
    statistic.name: statistic
    for statistic in (
        Statistic(name="kendall_tau_b", function=kendall_tau_b, permuted=permuted_pairs),
        Statistic(name="spearman_rho", function=spearman_rho, permuted=permuted_ranks),
    )
}
