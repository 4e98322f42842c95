"""Fold two columns into cells, their distinct pairs of values, on which statistics and resamples are computed.

0/1 columns and P@k have few cells. Weights and ranks are integers that floats represent exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Weights = npt.NDArray[np.integer]
Orders = npt.NDArray[np.int32]


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


def ratio(above: Floats, below: Floats) -> Floats:
    """Return ``above / below``; NaN where ``below`` is 0 (a resample without a value)."""
    return np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)
