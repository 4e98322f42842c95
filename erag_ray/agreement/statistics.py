"""Cells and a table of resamples -> one value per resample: Kendall's tau-b and Spearman's rho.

A statistic is a function ``(Cells, table [num_resamples, num_cells]) -> [num_resamples]``, NaN in a resample where
a column is constant. Add its entry to `STATISTICS` in the room's ``__init__``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from erag_ray.agreement.cells import Cells, Floats, Integers, ratio, sum_of_products


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """One statistic of two columns."""

    name: str
    function: Callable[[Cells, Floats], Floats]
    """(cells, table [num_resamples, num_cells]) -> [num_resamples], NaN where a column is constant."""
    p_value: Callable[[Floats, Floats], float]
    """Two-sided, under no association, of the columns themselves: (x, y) -> p."""


def kendall_tau_b(cells: Cells, table: Floats) -> Floats:
    """(concordant - discordant) / sqrt(pairs untied in x * pairs untied in y); Kendall, Biometrika 33 (1945).

    A query drawn twice makes a pair that is tied in both columns.
    """
    untied = cells.x.num_untied(table) * cells.y.num_untied(table)
    # the surplus counts a pair once, the untied pairs are counted in both directions
    return ratio(2 * _surplus(cells, table), np.sqrt(untied))


def _surplus(cells: Cells, table: Floats) -> Floats:
    """[num_resamples]: concordant minus discordant pairs of draws."""
    surplus = np.zeros(len(table))
    below = np.empty(0, dtype=np.int64)
    for block in cells.blocks:
        surplus += _surplus_between(cells, table, below, block.cells)
        if block.signs is not None:
            surplus += _surplus_within(table.take(block.cells, axis=1), block.signs)
        below = np.union1d(below, block.cells)
    return surplus


def _surplus_between(cells: Cells, table: Floats, below: Integers, block: Integers) -> Floats:
    """Pairs of a cell of ``below`` and one of ``block``, whose y is higher: what counts is the order in x."""
    running = np.zeros((len(table), len(below) + 1))
    np.cumsum(table.take(below, axis=1), axis=1, out=running[:, 1:])
    x_below, x_block = cells.x.group[below], cells.x.group[block]
    balance = running.take(np.searchsorted(x_below, x_block, side="left"), axis=1)
    balance += running.take(np.searchsorted(x_below, x_block, side="right"), axis=1)
    balance -= running[:, -1:]
    return sum_of_products(table.take(block, axis=1), balance)


def _surplus_within(weights: Floats, signs: npt.NDArray[np.int8]) -> Floats:
    """Pairs inside one block: the matrix of their signs, with the weights on both sides."""
    # a product is a whole number, at most the size of the sample: below 2^24 float32 holds it exactly
    exact = np.float32 if weights.sum(axis=1).max(initial=0) < 2**24 else np.float64
    products = weights.astype(exact) @ signs.astype(exact)
    return sum_of_products(weights, products.astype(np.float64)) / 2


def spearman_rho(cells: Cells, table: Floats) -> Floats:
    """Pearson's correlation of the mid-ranks, which are taken anew in every resample."""
    x, y = cells.x.balance(table), cells.y.balance(table)
    weighted_x, weighted_y = table * x, table * y
    spread = sum_of_products(weighted_x, x) * sum_of_products(weighted_y, y)
    return ratio(sum_of_products(weighted_x, y), np.sqrt(spread))


def kendall_p_value(x: Floats, y: Floats) -> float:
    """The normal approximation with ties, as in scipy."""
    return float(stats.kendalltau(x, y, method="asymptotic").pvalue)


def spearman_p_value(x: Floats, y: Floats) -> float:
    """The t approximation, as in scipy."""
    return float(stats.spearmanr(x, y).pvalue)
