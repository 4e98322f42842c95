"""Agreement of two columns over the same queries, such as a measure of labels and the utility.

Inputs are float arrays without nulls, bootstrap weights and permutations of their queries. Every resample is evaluated
exactly, see `statistics`.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from erag_ray.measures.agreement.intervals import MAX_UNDEFINED_SHARE, checked_weights, percentiles
from erag_ray.measures.agreement.statistics import (
    STATISTICS,
    Cells,
    Clusters,
    Floats,
    Orders,
    Statistic,
    Weights,
    fold,
)
from erag_ray.support.numba_jit import in_threads
from erag_ray.support.registry import find_instance
from erag_ray.support.user_code import with_guards

MIN_FOR_P_VALUE = 3
MIN_RUNS_FOR_P_VALUE = 8
ORDERS_AT_A_TIME = 250
MAX_FOR_EVERY_ORDER = 8
"""Up to this many queries all orders are used (40,320 for 8)."""
NEIGHBOURS = 5


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """A statistic of two columns with its interval, ceiling and p-value."""

    num_queries: int
    """Number of pairs of values: queries, or runs in `agree_over_runs`."""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    ceiling: float | None = None
    """The statistic of both columns sorted: the maximum that the ties in these data allow."""
    p_value: float | None = None
    reason: str | None = None
    """Why a value is missing."""


def permutations(
    num_queries: int, num_permutations: int = 1000, seed: int = 0, clusters: Clusters | None = None
) -> Orders:
    """Draw random orders of the queries; for at most 8 queries return all orders but the identity, so p is exact.

    Use one array for all columns over the same queries. Clusters change places as a whole, each with one of the
    `NEIGHBOURS` next to it: where these are sorted by size, that keeps the queries of a cluster side by side.

    Args:
        num_queries: number of queries.
        num_permutations: number of orders.
        seed: of the orders.
        clusters: None: each query by itself.

    Returns:
        [num_permutations, num_queries].
    """
    if clusters is not None:
        return _orders_of_clusters(clusters, num_permutations, seed)
    if num_queries <= MAX_FOR_EVERY_ORDER:
        orders = list(itertools.permutations(range(num_queries)))[1:]
        return np.array(orders, dtype=np.int32).reshape(len(orders), num_queries)
    rows = np.broadcast_to(np.arange(num_queries, dtype=np.int32), (num_permutations, num_queries))
    return np.random.default_rng(seed).permuted(rows, axis=1)


def _orders_of_clusters(clusters: Clusters, num_permutations: int, seed: int) -> Orders:
    generator = np.random.default_rng(seed)
    sizes = np.unique(clusters, return_counts=True)[1]
    starts, number = np.cumsum(sizes) - sizes, np.arange(len(sizes))
    orders = np.empty((num_permutations, len(clusters)), np.int32)
    for row in orders:
        groups = (number + generator.integers(NEIGHBOURS)) // NEIGHBOURS
        order = np.lexsort((generator.random(len(sizes)), groups))
        before = np.cumsum(sizes[order]) - sizes[order]
        row[:] = np.arange(len(clusters)) + np.repeat(starts[order] - before, sizes[order])
    return orders


def permutations_among(
    orders: Orders, selected: npt.NDArray[np.bool_], *, has_clusters: bool = False
) -> Orders:
    """Restrict orders to the selected queries, renumbered: [num_permutations, num_selected]."""
    count = int(selected.sum())
    if count <= MAX_FOR_EVERY_ORDER and not has_clusters:
        return permutations(count)
    numbers = (np.cumsum(selected) - 1).astype(np.int32)
    return numbers[orders[selected[orders]]].reshape(len(orders), count)


def agree(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    statistic: str,
    weights: Weights | None = None,
    confidence: float = 0.95,
    orders: Orders | None = None,
    names: tuple[str, str] = ("label measure", "utility"),
    counted: str = "queries",
    num_units: int | None = None,
) -> Agreement:
    """Compute the agreement of two columns over the same queries.

    Args:
        x: [num_queries].
        y: [num_queries].
        statistic: a key of `STATISTICS`.
        weights: [num_resamples, num_queries] from `resample_weights`; None: no interval.
        confidence: coverage of the bootstrap's interval, see `percentiles`.
        orders: [num_permutations, num_queries] from `permutations`; None: no p-value.
        names: names of the two columns in `Agreement.reason`.
        counted: name of their entries in `Agreement.reason`.
        num_units: number of queries or clusters that a resample draws; None: of queries.

    Returns:
        The agreement. With a constant column or fewer than 2 queries its value is None, with the reason. The interval
        leaves out resamples with a constant column; if they are more than 5 %, or all are equal, it is None.

    Raises:
        ValueError: unknown statistic; shapes that do not match; NaN or infinity; a confidence outside (0, 1).
    """
    chosen = _find(statistic)
    first, second = _columns(x, y)
    reason = _why_undefined(first, second, names, counted)
    if reason is not None:
        return Agreement(num_queries=len(first), reason=reason)
    cells = _cells(first, second)
    value, low, high, p_value = _of_all(chosen, cells), None, None, None
    if weights is not None:
        resampled = chosen.function(cells, checked_weights(weights, len(first)))
        low, high = percentiles(resampled, confidence, num_units or len(first))
        if not len(resampled):
            reason = "no interval: no resamples"
        elif (undefined := np.isnan(resampled).mean()) > MAX_UNDEFINED_SHARE:
            reason = f"no interval: a column is constant in {undefined:.1%} of the resamples"
        elif low is None:
            reason = f"no interval: the resamples of the {counted} are all {value:.3g}"
    if orders is not None and len(first) >= MIN_FOR_P_VALUE:
        p_value = float(permutation_p_values(first[:, None], second, statistic, orders)[0])
    return Agreement(
        value=value,
        low=low,
        high=high,
        ceiling=_of_all(chosen, _cells(np.sort(first), np.sort(second))),
        p_value=p_value,
        num_queries=len(first),
        reason=reason,
    )


def permutation_p_values(columns: Floats, y: Floats, statistic: str, orders: Orders) -> Floats:
    """Compute two-sided permutation p-values: how often the statistic of a permuted pairing is as far from 0.

    p = (b + 1) / (B + 1) for b of B permutations (Phipson & Smyth 2010): never 0, and valid for any B.

    Args:
        columns: [num_queries, num_columns], without NaN.
        y: [num_queries].
        statistic: a key of `STATISTICS`.
        orders: [num_permutations, num_queries] from `permutations`.

    Returns:
        [num_columns]; 1 for a constant column.
    """
    chosen = _find(statistic)
    observed = np.abs(chosen.permuted(columns, y, np.arange(len(y), dtype=np.int32)[None]))

    def num_as_far(start: int) -> npt.NDArray[np.int64]:
        permuted = chosen.permuted(columns, y, orders[start : start + ORDERS_AT_A_TIME])
        return np.asarray((np.abs(permuted) >= observed).sum(axis=0))

    starts = range(0, len(orders), ORDERS_AT_A_TIME)
    as_far = np.zeros(columns.shape[1]) + sum(in_threads(num_as_far, starts))
    return np.asarray((as_far + 1) / (len(orders) + 1), np.float64)


def agree_over_runs(
    x: npt.ArrayLike, y: npt.ArrayLike, statistic: str, num_permutations: int = 1000, seed: int = 0
) -> Agreement:
    """Compute whether two means rank the runs alike: x and y are [num_runs], one mean per run.

    There is no interval, and no p-value below 8 runs, which are too few. Raises as `agree`.
    """
    count = np.size(x)
    orders = permutations(count, num_permutations, seed) if count >= MIN_RUNS_FOR_P_VALUE else None
    names = ("mean label measure", "mean utility")
    result = agree(x, y, statistic, orders=orders, names=names, counted="runs")
    if result.value is None or orders is not None:
        return result
    return replace(result, reason=f"no p-value: {count} runs, fewer than {MIN_RUNS_FOR_P_VALUE}")


@dataclass(frozen=True, kw_only=True)
class Resampled:
    """A statistic of two columns, and of every resample of them: [num_resamples]."""

    value: float
    values: Floats
    num_units: int
    """Number of queries or clusters that a resample draws."""


def resampled_agreement(
    x: npt.ArrayLike, y: npt.ArrayLike, statistic: str, weights: Weights, num_units: int | None = None
) -> Resampled | None:
    """Return a statistic and its resamples, for `difference_of`; None if a column is constant. Raises as `agree`."""
    chosen = _find(statistic)
    first, second = _columns(x, y)
    checked = checked_weights(weights, len(first))
    if _why_undefined(first, second, ("", ""), "queries"):
        return None
    cells = _cells(first, second)
    value, values = _of_all(chosen, cells), chosen.function(cells, checked)
    return Resampled(value=value, values=values, num_units=num_units or len(first))


def difference_of(
    a: Resampled | None, b: Resampled | None, signs: Sequence[int] = (1, 1), confidence: float = 0.95
) -> tuple[float | None, float | None, float | None, float | None]:
    """Return (difference, low, high, p) of two statistics: how much better a agrees than b.

    Paired: the two have the same weights, so each resample draws the same queries for both. The interval excludes 0
    exactly if p, the two-sided bootstrap p-value, is below 1 - ``confidence`` (with B resamples of many queries at
    least 2 / (B + 1)). There is no difference if a column is constant; resamples with a constant column are left out,
    and above 5 % of them, or if all are equal, there is neither interval nor p.

    Args:
        a: a statistic, from `resampled_agreement`.
        b: the other one.
        signs: of both; -1 where a negative agreement is a good one.
        confidence: coverage of the interval.
    """
    from scipy.special import ndtri, stdtr

    if a is None or b is None:
        return None, None, None, None
    resampled = signs[0] * a.values - signs[1] * b.values
    low, high = percentiles(resampled, confidence, a.num_units)
    p_value = None
    if low is not None:
        # the least alpha whose interval excludes 0
        ordered = np.sort(resampled[~np.isnan(resampled)])
        share = min(_share_up_to_zero(ordered), _share_up_to_zero(-ordered[::-1]))
        below = ndtri(min(0.5, max(share, 1 / (len(ordered) + 1)))) * math.sqrt(1 - 1 / a.num_units)
        p_value = 2 * float(stdtr(a.num_units - 1, below))
    return signs[0] * a.value - signs[1] * b.value, low, high, p_value


def _share_up_to_zero(ordered: Floats) -> float:
    """Return the largest share whose quantile is at most 0; quantiles between two values are interpolated."""
    count = int(np.searchsorted(ordered, 0.0, side="right"))
    if count in (0, len(ordered)):
        return float(count > 0)
    before, after = ordered[count - 1], ordered[count]
    return float(count - 1 - before / (after - before)) / (len(ordered) - 1)


def _find(name: str) -> Statistic:
    statistic = find_instance("statistic", name, STATISTICS, Statistic, "permuted=...")
    return with_guards(statistic, f"statistics: {name}", "function", "permuted")


def _columns(*columns: npt.ArrayLike) -> tuple[Floats, Floats]:
    # the sum turns -0.0 into 0.0, which print differently
    first, second = (np.asarray(column, dtype=np.float64) + 0.0 for column in columns)
    if any(column.ndim != 1 or not np.isfinite(column).all() for column in (first, second)):
        raise ValueError("a column must be one-dimensional and finite; drop and count values not judged")
    if len(first) != len(second):
        raise ValueError(f"two columns of {len(first)} and {len(second)} values")
    return first, second


def _why_undefined(x: Floats, y: Floats, names: tuple[str, str], counted: str) -> str | None:
    if len(x) < 2:
        return f"number of {counted}: {len(x)}, and a correlation takes at least 2"
    columns = zip(names, (x, y), strict=True)
    constant = [f"constant: every {name} is {one[0]}" for name, one in columns if (one == one[0]).all()]
    return "; ".join(constant) or None


def _cells(x: Floats, y: Floats) -> Cells:
    """Fold two columns. Agreement is symmetric, so the column with fewer distinct values becomes y, which is faster."""
    cells = fold(x, y)
    return cells if cells.num_y <= cells.num_x else fold(y, x)


def _of_all(statistic: Statistic, cells: Cells) -> float:
    """Return the statistic of the original columns."""
    return float(statistic.function(cells, np.ones((1, len(cells.cell)), dtype=np.int16))[0])
