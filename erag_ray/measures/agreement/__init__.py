"""Agreement of two columns over the same queries, such as a measure of labels and the utility.

Inputs are float arrays without nulls, bootstrap weights and permutations of their queries. Results are `Agreement`, or
means with intervals. Only `resample_weights` and `permutations` draw random numbers, so columns that share them are
compared in pairs.

Every resample is evaluated exactly, see `statistics`. To add a statistic, write a function there and
add an entry to `STATISTICS`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from erag_ray.measures.agreement.cells import Cells, Floats, Orders, Weights, fold, ratio
from erag_ray.measures.agreement.differences import (
    POWER,
    TIE_DIGITS,
    detectable_difference,
    effect_size,
    paired_differences,
    round_up,
)
from erag_ray.measures.agreement.families import AdjustedTest, Family, holm
from erag_ray.measures.agreement.paired_test import PairedTest, paired_test
from erag_ray.measures.agreement.prediction_powered import LabelSample, PoweredValues, powered_values
from erag_ray.measures.agreement.proportions import wilson_interval
from erag_ray.measures.agreement.statistics import (
    Statistic,
    kendall_tau_b,
    permuted_pairs,
    permuted_ranks,
    spearman_rho,
)
from erag_ray.support.numba_jit import in_threads
from erag_ray.support.registry import find_instance
from erag_ray.support.user_code import with_guards

__all__ = [
    "MIN_FOR_P_VALUE",
    "MIN_RUNS_FOR_P_VALUE",
    "POWER",
    "STATISTICS",
    "TIE_DIGITS",
    "AdjustedTest",
    "Agreement",
    "Family",
    "Interval",
    "LabelSample",
    "PairedTest",
    "PoweredValues",
    "Resampled",
    "agree",
    "agree_over_runs",
    "agreement_difference",
    "detectable_difference",
    "difference_of",
    "effect_size",
    "holm",
    "mean_intervals",
    "paired_differences",
    "paired_test",
    "permutation_p_values",
    "permutations",
    "permutations_among",
    "powered_values",
    "resample_weights",
    "resampled_agreement",
    "round_up",
    "share_intervals",
    "wilson_interval",
]

Interval = tuple[float | None, float | None, float | None]

MAX_UNDEFINED_SHARE = 0.05
"""There is no interval if the statistic is undefined in more than this fraction of the resamples."""
MIN_FOR_P_VALUE = 3
MIN_RUNS_FOR_P_VALUE = 8
ORDERS_AT_A_TIME = 250
MAX_FOR_EVERY_ORDER = 8
"""Up to this many queries all orders are used (40,320 for 8)."""
MAX_TABLE_VALUES = 2**20
"""Weights in memory at a time: 8 MiB, with enough rows for efficient matrix products."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """A statistic of two columns with its interval, ceiling and p-value."""

    value: float | None
    low: float | None
    high: float | None
    ceiling: float | None
    """The statistic of both columns sorted: the maximum that the ties in these data allow."""
    p_value: float | None
    num_queries: int
    """Number of pairs of values: queries, or runs in `agree_over_runs`."""
    reason: str | None
    """Why a value is missing."""


def resample_weights(num_queries: int, num_resamples: int = 1000, seed: int = 0) -> npt.NDArray[np.int16]:
    """Draw bootstrap weights: how often each resample draws each query.

    Use one array for all columns over the same queries. For columns over a subset of the queries, select the
    corresponding columns of the array; unequal row sums are valid here.

    Returns:
        [num_resamples, num_queries], rows sum to num_queries.
    """
    generator = np.random.default_rng(seed)
    # a query is drawn once on average, so 16 bits do not overflow, and save memory
    weights = np.zeros((num_resamples, num_queries), dtype=np.int16)
    if num_queries:
        for row in weights:
            row[:] = np.bincount(generator.integers(num_queries, size=num_queries), minlength=num_queries)
    # Fortran order: statistics process several resamples of one query at once
    return np.asfortranarray(weights)


def permutations(num_queries: int, num_permutations: int = 1000, seed: int = 0) -> Orders:
    """Draw random orders of the queries; for at most 8 queries return all orders but the identity, so p is exact.

    Use one array for all columns over the same queries.

    Returns:
        [num_permutations, num_queries].
    """
    if num_queries <= MAX_FOR_EVERY_ORDER:
        orders = list(itertools.permutations(range(num_queries)))[1:]
        return np.array(orders, dtype=np.int32).reshape(len(orders), num_queries)
    rows = np.broadcast_to(np.arange(num_queries, dtype=np.int32), (num_permutations, num_queries))
    return np.random.default_rng(seed).permuted(rows, axis=1)


def permutations_among(orders: Orders, selected: npt.NDArray[np.bool_]) -> Orders:
    """Restrict orders to the selected queries, renumbered: [num_permutations, num_selected]."""
    count = int(selected.sum())
    if count <= MAX_FOR_EVERY_ORDER:
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
) -> Agreement:
    """Compute the agreement of two columns over the same queries.

    Args:
        x: [num_queries].
        y: [num_queries].
        statistic: a key of `STATISTICS`.
        weights: [num_resamples, num_queries] from `resample_weights`; None: no interval.
        confidence: coverage of the percentile bootstrap interval.
        orders: [num_permutations, num_queries] from `permutations`; None: no p-value.
        names: names of the two columns in `Agreement.reason`.
        counted: name of their entries in `Agreement.reason`.

    Returns:
        The agreement. With a constant column or fewer than 2 queries its value is None, with the reason. The interval
        leaves out resamples with a constant column; if they are more than 5 %, it is None, with the reason.

    Raises:
        ValueError: unknown statistic; shapes that do not match; NaN or infinity; a confidence outside (0, 1).
    """
    chosen = _find(statistic)
    first, second = _columns(x, y)
    reason = _why_undefined(first, second, names, counted)
    if reason is not None:
        return Agreement(
            value=None, low=None, high=None, ceiling=None, p_value=None, num_queries=len(first), reason=reason
        )
    cells = _cells(first, second)
    result = Agreement(
        value=_of_all(chosen, cells),
        low=None,
        high=None,
        ceiling=_of_all(chosen, _cells(np.sort(first), np.sort(second))),
        p_value=None if orders is None else _p_value(chosen, first, second, orders),
        num_queries=len(first),
        reason=None,
    )
    if weights is None:
        return result
    resampled = chosen.function(cells, _checked(weights, len(first)))
    low, high = _percentiles(resampled, confidence)
    return replace(result, low=low, high=high, reason=_why_no_interval(resampled) if low is None else None)


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


def mean_intervals(columns: Floats, weights: Weights, confidence: float = 0.95) -> list[Interval]:
    """Return (mean, low, high) of each column of [num_queries, num_columns], with the percentile bootstrap interval.

    NaN (not judged) is left out of its column. With one query there is a mean but no interval, with no query neither.
    Raises ValueError on weights of another width or a confidence outside (0, 1).
    """
    resampled = _resampled_means(columns, weights)
    return [
        _interval(column[~np.isnan(column)], resampled[:, index], confidence)
        for index, column in enumerate(columns.T)
    ]


def share_intervals(
    positive: Floats, counts: Floats, weights: Weights, confidence: float = 0.95
) -> list[Interval]:
    """Return (share, low, high) of each column: the sum of ``positive`` over the sum of ``counts``, of whole queries.

    The percentile bootstrap draws queries, each with all that it counts, such as its documents. Without any there is no
    share, and with one query that counts something no interval.

    Args:
        positive: [num_queries, num_columns].
        counts: [num_queries].
        weights: [num_resamples, num_queries] from `resample_weights`.
        confidence: coverage of the intervals.
    """
    total, drawn = counts.sum(), _checked(weights, len(counts)).astype(np.float64)
    if not total:
        return [(None, None, None)] * positive.shape[1]
    resampled = ratio(
        drawn @ positive, np.broadcast_to((drawn @ counts)[:, None], (len(drawn), positive.shape[1]))
    )
    shares = positive.sum(axis=0) / total
    has_interval = (counts > 0).sum() > 1
    return [
        (float(share), *(_percentiles(column, confidence) if has_interval else (None, None)))
        for share, column in zip(shares, resampled.T, strict=True)
    ]


def _resampled_means(columns: Floats, weights: Weights) -> Floats:
    """Return the mean of each column in each resample, [num_resamples, num_columns]; NaN without values."""
    checked = _checked(weights, len(columns))
    is_judged = ~np.isnan(columns)
    values, counted = np.where(is_judged, columns, 0.0), is_judged.astype(np.float64)
    parts = []
    for rows in _row_chunks(checked):
        drawn = checked[rows].astype(np.float64)
        parts.append(ratio(drawn @ values, drawn @ counted))
    return np.concatenate(parts)


def _interval(column: Floats, resampled: Floats, confidence: float) -> Interval:
    if len(column) < 2:
        return (float(column[0]) if len(column) else None, None, None)
    return (float(column.mean()), *_percentiles(resampled, confidence))


def agreement_difference(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    y: npt.ArrayLike,
    statistic: str,
    weights: Weights,
    confidence: float = 0.95,
) -> Interval:
    """Return (statistic(a, y) - statistic(b, y), low, high): how much better a agrees with y than b.

    All three are [num_queries] over the same queries; see `difference_of`. Raises as `agree`.
    """
    first, second = (resampled_agreement(column, y, statistic, weights) for column in (a, b))
    return difference_of(first, second, confidence=confidence)[:3]


@dataclass(frozen=True, kw_only=True)
class Resampled:
    """A statistic of two columns, and of every resample of them: [num_resamples]."""

    value: float
    values: Floats


def resampled_agreement(
    x: npt.ArrayLike, y: npt.ArrayLike, statistic: str, weights: Weights
) -> Resampled | None:
    """Return a statistic and its resamples, for `difference_of`; None if a column is constant. Raises as `agree`."""
    chosen = _find(statistic)
    first, second = _columns(x, y)
    checked = _checked(weights, len(first))
    if _why_undefined(first, second, ("", ""), "queries"):
        return None
    cells = _cells(first, second)
    return Resampled(value=_of_all(chosen, cells), values=chosen.function(cells, checked))


def difference_of(
    a: Resampled | None, b: Resampled | None, signs: Sequence[int] = (1, 1), confidence: float = 0.95
) -> tuple[float | None, float | None, float | None, float | None]:
    """Return (difference, low, high, p) of two statistics: how much better a agrees than b.

    Paired: the two have the same weights, so each resample draws the same queries for both. The interval excludes 0
    exactly if p, the two-sided bootstrap p-value, is below 1 - ``confidence`` (p is at least 2 / (B + 1) with B
    resamples). There is no difference if a column is constant; resamples with a constant column are left out, and above
    5 % of them there is no interval.

    Args:
        a: a statistic, from `resampled_agreement`.
        b: the other one.
        signs: of both; -1 where a negative agreement is a good one.
        confidence: coverage of the interval.
    """
    if a is None or b is None:
        return None, None, None, None
    resampled = signs[0] * a.values - signs[1] * b.values
    low, high = _percentiles(resampled, confidence)
    p_value = None if low is None else _p_of_zero(resampled[~np.isnan(resampled)])
    return signs[0] * a.value - signs[1] * b.value, low, high, p_value


def _p_of_zero(resampled: Floats) -> float:
    """Return the least alpha whose percentile interval excludes 0, but at least 2 / (B + 1)."""
    ordered = np.sort(resampled)
    share = min(_share_up_to_zero(ordered), _share_up_to_zero(-ordered[::-1]))
    return min(1.0, max(2 * share, 2 / (len(ordered) + 1)))


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


def _columns(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Floats, Floats]:
    first, second = _column(a), _column(b)
    if len(first) != len(second):
        raise ValueError(f"two columns of {len(first)} and {len(second)} values")
    return first, second


def _column(values: npt.ArrayLike) -> Floats:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1 or not np.isfinite(column).all():
        raise ValueError(
            "a column must be one-dimensional and finite; drop and count values that were not judged"
        )
    # turn -0.0 into 0.0, which print differently
    return column + 0.0


def _checked(weights: Weights, num_queries: int) -> Weights:
    if weights.ndim != 2 or weights.shape[1] != num_queries or not np.issubdtype(weights.dtype, np.integer):
        got = f"{weights.dtype} {list(weights.shape)}"
        raise ValueError(f"weights must be whole numbers [num_resamples, {num_queries}], got {got}")
    return weights


def _why_undefined(x: Floats, y: Floats, names: tuple[str, str], counted: str) -> str | None:
    if len(x) < 2:
        return f"number of {counted}: {len(x)}, and a correlation takes at least 2"
    constant = [
        f"constant: every {name} is {column[0]}"
        for name, column in zip(names, (x, y), strict=True)
        if (column == column[0]).all()
    ]
    return "; ".join(constant) or None


def _why_no_interval(resampled: Floats) -> str:
    if not len(resampled):
        return "no interval: no resamples"
    return f"no interval: a column is constant in {np.isnan(resampled).mean():.1%} of the resamples"


def _percentiles(resampled: Floats, confidence: float) -> tuple[float | None, float | None]:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} is outside (0, 1)")
    defined = resampled[~np.isnan(resampled)]
    if not len(defined) or len(resampled) - len(defined) > MAX_UNDEFINED_SHARE * len(resampled):
        return None, None
    low, high = np.quantile(defined, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _p_value(statistic: Statistic, x: Floats, y: Floats, orders: Orders) -> float | None:
    (p_value,) = permutation_p_values(x[:, None], y, statistic.name, orders)
    return float(p_value) if len(x) >= MIN_FOR_P_VALUE else None


def _cells(x: Floats, y: Floats) -> Cells:
    """Fold two columns. Agreement is symmetric, so the column with fewer distinct values becomes y, which is faster."""
    cells = fold(x, y)
    return cells if cells.num_y <= cells.num_x else fold(y, x)


def _of_all(statistic: Statistic, cells: Cells) -> float:
    """Return the statistic of the original columns."""
    return float(statistic.function(cells, np.ones((1, len(cells.cell)), dtype=np.int16))[0])


def _row_chunks(weights: Weights) -> Iterator[slice]:
    num_rows, width = weights.shape
    step = max(1, MAX_TABLE_VALUES // max(1, width))
    # one empty chunk without rows, so that there is always something to concatenate
    return (slice(start, start + step) for start in range(0, max(1, num_rows), step))


STATISTICS = {
    statistic.name: statistic
    for statistic in (
        Statistic(name="kendall_tau_b", function=kendall_tau_b, permuted=permuted_pairs),
        Statistic(name="spearman_rho", function=spearman_rho, permuted=permuted_ranks),
    )
}
