"""Two columns and bootstrap weights -> a small table of whole numbers that statistics work on.

Queries are folded into *cells*, the distinct pairs of values, because 0/1 columns and P@k have few. A resample is
then a row of cell weights. Sums of weights are whole numbers, far below what a float holds exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Weights = npt.NDArray[np.integer]

MAX_BLOCK_CELLS = 512
"""Pairs are compared one by one inside blocks of this many cells, and by running sums between blocks."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One of the two columns, seen from the cells: which cells share a value, and the order of the values."""

    group: Integers
    """[num_cells], number of the cell's value in ascending order."""
    order: Integers
    """[num_cells], the cells by ascending value."""
    edges: Integers
    """[num_groups + 1], where each value starts in ``order``, and the end."""

    def num_untied(self, table: Floats) -> Floats:
        """[num_resamples]: ordered pairs of draws that differ in this column, N^2 - sum of W_group^2."""
        groups = self._group_weights(table)
        total: Floats = table.sum(axis=1)
        return np.square(total) - sum_of_products(groups, groups)

    def balance(self, table: Floats) -> Floats:
        """[num_resamples, num_cells]: weight below the cell's value minus weight above it.

        This is twice (mid-rank - mean rank) of the cell in the resample, a whole number.
        """
        groups = self._group_weights(table)
        through = np.cumsum(groups, axis=1)
        balance: Floats = (2 * through - groups - through[:, -1:]).take(self.group, axis=1)
        return balance

    def _group_weights(self, table: Floats) -> Floats:
        """[num_resamples, num_groups], by ascending value."""
        ordered: Floats = table.take(self.order, axis=1)
        has_ties = len(self.edges) <= len(self.order)
        return np.add.reduceat(ordered, self.edges[:-1], axis=1) if has_ties else ordered


@dataclass(frozen=True, kw_only=True)
class Block:
    """Some of the cells, still ordered by x."""

    cells: Integers
    """[num_block_cells], ascending."""
    signs: npt.NDArray[np.int8] | None
    """[num_block_cells, num_block_cells]: 1 a concordant pair of cells, -1 a discordant one, 0 a tie; None
    for a block of one y."""


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The distinct (x, y) pairs of two columns, ordered by x, then y."""

    order: Integers
    """[num_queries], the queries cell by cell."""
    starts: Integers
    """[num_cells], where each cell starts in ``order``."""
    x: Axis
    y: Axis

    def table(self, weights: Weights) -> Floats:
        """[num_resamples, num_cells]: how many draws of each resample fell into each cell."""
        ordered = weights.take(self.order, axis=1)
        if len(self.starts) == len(self.order):
            return ordered.astype(np.float64)
        return np.add.reduceat(ordered, self.starts, axis=1, dtype=np.float64)

    @cached_property
    def blocks(self) -> list[Block]:
        """The cells in neighbouring ranges of y, each of one value or of at most MAX_BLOCK_CELLS cells."""
        numbers, number, size = [], 0, 0
        for num_cells in np.diff(self.y.edges):
            if size and size + num_cells > MAX_BLOCK_CELLS:
                number, size = number + 1, 0
            size += num_cells
            numbers.append(number)
        block_of_cell = np.array(numbers)[self.y.group]
        return [self._block(np.flatnonzero(block_of_cell == block)) for block in range(number + 1)]

    def _block(self, cells: Integers) -> Block:
        x, y = self.x.group[cells], self.y.group[cells]
        return Block(cells=cells, signs=None if y.min() == y.max() else _signs(x) * _signs(y))


def fold(x: Floats, y: Floats) -> Cells:
    """The cells of two columns [num_queries], at least one query."""
    order = np.lexsort((y, x))
    is_new = (np.diff(x[order]) != 0) | (np.diff(y[order]) != 0)
    starts = np.concatenate([[0], np.flatnonzero(is_new) + 1])
    return Cells(order=order, starts=starts, x=_axis(x[order][starts]), y=_axis(y[order][starts]))


def _axis(values: Floats) -> Axis:
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    edges = np.concatenate([[0], np.cumsum(counts)])
    return Axis(group=group, order=np.argsort(group, kind="stable"), edges=edges)


def _signs(group: Integers) -> npt.NDArray[np.int8]:
    """[num_cells, num_cells]: 1, 0 or -1."""
    numbers = group.astype(np.int32)
    is_above = (numbers[:, None] > numbers[None, :]).view(np.int8)
    return is_above - is_above.T


def sum_of_products(*factors: Floats) -> Floats:
    """[num_resamples]: the factors [num_resamples, width] multiplied and summed along each row."""
    indices = ",".join(["rc"] * len(factors))
    result: Floats = np.einsum(f"{indices}->r", *factors)
    return result


def ratio(above: Floats, below: Floats) -> Floats:
    """The quotient, and NaN where ``below`` is 0: a resample without a value."""
    return np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)
