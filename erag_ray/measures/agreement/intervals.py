"""Bootstrap weights and intervals of means, Wilson intervals of shares, and paired differences of two runs.

Only `resample_weights` draws random numbers, so columns that share its weights are compared in pairs. Paired
differences are the values of one run minus those of another per query, NaN if not judged.
"""

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from erag_ray.measures.agreement.statistics import Clusters, Floats, Weights

Interval = tuple[float | None, float | None, float | None]
"""A value and the bounds of its interval."""
POWER = 0.8
TIE_DIGITS = 10
"""Decimal digits to which differences and means are compared; values are rounded to 12 digits."""
MAX_UNDEFINED_SHARE = 0.05
"""There is no interval if the statistic is undefined in more than this fraction of the resamples."""
ROUNDING = 1e-20
MAX_TABLE_VALUES = 2**20
"""Weights in memory at a time: 8 MiB, with enough rows for efficient matrix products."""


def resample_weights(
    num_queries: int, num_resamples: int = 1000, seed: int = 0, clusters: Clusters | None = None
) -> npt.NDArray[np.int16]:
    """Draw bootstrap weights: how often each resample draws each query, or its whole cluster.

    Use one array for all columns over the same queries. For columns over a subset of the queries, select the
    corresponding columns of the array; unequal row sums are valid here.

    Args:
        num_queries: number of queries.
        num_resamples: number of resamples.
        seed: of the draws.
        clusters: [num_queries], numbers from 0 without a gap; None: each query by itself.

    Returns:
        [num_resamples, num_queries]; without clusters rows sum to num_queries.
    """
    generator = np.random.default_rng(seed)
    # a query is drawn once on average, so 16 bits do not overflow, and save memory
    weights = np.zeros((num_resamples, num_queries), dtype=np.int16)
    count = num_queries if clusters is None else int(clusters.max(initial=-1)) + 1
    if num_queries:
        for row in weights:
            drawn = np.bincount(generator.integers(count, size=count), minlength=count)
            row[:] = drawn if clusters is None else drawn[clusters]
    # Fortran order: statistics process several resamples of one query at once
    return np.asfortranarray(weights)


def mean_intervals(
    columns: Floats, weights: Weights, confidence: float = 0.95, clusters: Clusters | None = None
) -> list[Interval]:
    """Return (mean, low, high) of each column of [num_queries, num_columns], with the bootstrap's `percentiles`.

    NaN (not judged) is left out of its column. Of no query there is no mean, of one or of equal values no interval.
    Raises ValueError on weights of another width or a confidence outside (0, 1).
    """
    is_judged = ~np.isnan(columns)
    values, counted = np.where(is_judged, columns, 0.0), is_judged.astype(np.float64)
    checked = checked_weights(weights, len(columns))
    step = max(1, MAX_TABLE_VALUES // max(1, len(columns)))
    parts = [np.empty((0, columns.shape[1]))]
    for start in range(0, len(checked), step):
        drawn = checked[start : start + step].astype(np.float64)
        sums, counts = drawn @ values, drawn @ counted
        # a resample without a value is NaN
        parts.append(np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0))
    intervals = []
    for column, resampled in zip(columns.T, np.concatenate(parts).T, strict=True):
        is_judged = ~np.isnan(column)
        ends = percentiles(resampled, confidence, num_units(is_judged, clusters))
        intervals.append((float(column[is_judged].mean()) if is_judged.any() else None, *ends))
    return intervals


def num_units(is_judged: npt.NDArray[np.bool_], clusters: Clusters | None) -> int:
    """Return the number of judged queries, or of the clusters that they lie in."""
    return int(is_judged.sum()) if clusters is None else len(np.unique(clusters[is_judged]))


def score_intervals(
    judged: Floats,
    estimates: Floats,
    weights: Weights,
    confidence: float,
    clusters: Clusters | None = None,
    signed: Sequence[bool] = (),
) -> list[Interval]:
    """Return (mean, low, high) of each column: `share_of` of scores from 0 or -1 to 1, of others `mean_intervals`.

    Args:
        judged: [num_queries, num_columns]; NaN: not judged. Of one judged query there is no interval.
        estimates: the same, with estimates for other queries; if all are one value, they say no more than ``judged``.
        weights: see `mean_intervals`.
        confidence: coverage of the intervals.
        clusters: see `share_of`.
        signed: [num_columns], whether scores may be below 0; else they are from 0 on, unless one is not.
    """
    intervals, others = list[Interval](), list[int]()
    for column, estimated, is_signed in itertools.zip_longest(judged.T, estimates.T, signed):
        scores, values = column[~np.isnan(column)], estimated[~np.isnan(estimated)]
        is_plain = len(scores) == len(values) or not np.ptp(values)
        if len(scores) > 1 and is_plain and (np.abs(scores) <= 1).all():
            least = -1.0 if is_signed or (scores < 0).any() else 0.0
            share = np.array(share_of((column - least) / (1 - least), confidence, clusters), np.float64)
            mean, low, high = (least + (1 - least) * share).tolist()
            intervals.append((mean, low, high))
            continue
        if len(scores) > 1:
            others.append(len(intervals))
        intervals.append((float(values.mean()) if len(values) else None, None, None))
    for index, interval in zip(
        others, mean_intervals(estimates[:, others], weights, confidence, clusters), strict=True
    ):
        intervals[index] = interval
    return intervals


def share_of(values: Floats, confidence: float, clusters: Clusters | None = None) -> Interval:
    """Return the mean of values from 0 to 1, such as the share of queries with an event, and its Wilson interval.

    It is that of as many independent events as give a mean of this variance (Kish 1965), where that is estimated with
    Student's quantile; of equal values other than 0 and 1, that of the share of other values, none of which was drawn.

    Args:
        values: [num_queries]; NaN: does not count.
        confidence: coverage of the interval.
        clusters: if their sums do not vary, the interval is that of one query a cluster. None: each query by itself.
    """
    is_judged = ~np.isnan(values)
    judged = values[is_judged]
    total, count = float(judged.sum()), len(judged)
    is_event = bool(((judged == 0) | (judged == 1)).all())
    if not count or (is_event and clusters is None):
        return wilson_interval(total, count, confidence)
    mean = total / count
    units = np.arange(count) if clusters is None else np.unique(clusters[is_judged], return_inverse=True)[1]
    sums = np.bincount(units, weights=judged - mean)
    size, plain = float(len(sums)), mean * (1 - mean)
    within = plain if is_event else float(((judged - mean) ** 2).mean())
    if plain and within < ROUNDING:
        other = wilson_interval(0, len(sums), confidence)[2] or 0.0
        return mean, mean - other * mean, mean + other * (1 - mean)
    if (variance := float(sums @ sums) / count) > ROUNDING:
        size = count * plain / max(within, variance * variance_factor(len(sums), confidence))
    return wilson_interval(total, count, confidence, size)


@functools.lru_cache(maxsize=1 << 14)
def variance_factor(count: int, confidence: float) -> float:
    """Return what makes the variance of ``count`` values one by which the normal quantile is as wide as Student's."""
    from scipy.special import ndtri, stdtrit

    level = 0.5 + 0.5 * confidence
    return count / (count - 1) * float(stdtrit(count - 1, level) / ndtri(level)) ** 2


@functools.lru_cache(maxsize=1 << 16)
def wilson_interval(positive: float, count: int, confidence: float, size: float | None = None) -> Interval:
    """Return (share, low, high) by Wilson (1927), with the arithmetic of scipy's ``BinomTestResult.proportion_ci``.

    All three are None if ``count`` is 0. ``size``: the number of independent queries, if it is not ``count``.
    """
    if not count:
        return None, None, None
    # imported lazily: it is slow, and checks of inputs do not need it
    from scipy.special import ndtri

    share, z = positive / count, float(ndtri(0.5 + 0.5 * confidence))
    number = count if size is None else size
    below = 2 * (number + z**2)
    center = (2 * number * share + z**2) / below
    delta = z / below * math.sqrt(4 * number * share * (1 - share) + z**2)
    return share, 0.0 if positive == 0 else center - delta, 1.0 if positive == count else center + delta


def percentiles(resampled: Floats, confidence: float, count: int) -> tuple[float | None, float | None]:
    """Return the percentile interval, of few queries widened as Student's is against the normal one (Hesterberg 2015).

    There is none if too many resamples are undefined, or if it has no width. ``count``: of queries or clusters drawn.
    """
    from scipy.special import ndtr, ndtri

    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} is outside (0, 1)")
    defined = resampled[~np.isnan(resampled)]
    if count < 2 or not len(defined) or len(resampled) - len(defined) > MAX_UNDEFINED_SHARE * len(resampled):
        return None, None
    below = float(ndtr(ndtri(0.5 - 0.5 * confidence) * math.sqrt(variance_factor(count, confidence))))
    low, high = np.quantile(defined, [below, 1 - below])
    return (float(low), float(high)) if high - low > 10**-TIE_DIGITS else (None, None)


def checked_weights(weights: Weights, num_queries: int) -> Weights:
    if weights.ndim != 2 or weights.shape[1] != num_queries or not np.issubdtype(weights.dtype, np.integer):
        got = f"{weights.dtype} {list(weights.shape)}"
        raise ValueError(f"weights must be whole numbers [num_resamples, {num_queries}], got {got}")
    return weights


# --- paired differences ---


def paired_differences(a: Floats, b: Floats) -> Floats:
    """Subtract run b from run a, rounded so that equal differences tie. Always use it to subtract runs.

    The values are rounded already (2/3 is .666666666667), so 2/3 - 1/3 and 1/3 - 0 differ in the twelfth digit.

    Args:
        a: values of one run, [num_queries]; NaN if not judged.
        b: values of the other run, of the same shape.
    """
    return np.asarray(np.round(a - b, TIE_DIGITS), np.float64)


def effect_size(differences: Floats) -> float | None:
    """Return Cohen's d for pairs: mean / standard deviation; None without variation or for one query.

    Args:
        differences: [num_queries], without NaN.
    """
    deviation = spread(differences)
    return float(differences.mean()) / deviation if deviation else None


def round_up(value: float) -> int:
    """Round ``value`` up to two significant digits."""
    unit = 10 ** max(0, math.floor(math.log10(value)) - 1) if value >= 1 else 1
    return math.ceil(value / unit) * unit


@functools.lru_cache(maxsize=1 << 14)
def standard_errors(alpha: float, count: float) -> float:
    """Return the difference that a test of ``count`` queries finds with a power of .8, in standard errors."""
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, 1 - alpha / 2) + stdtrit(count - 1, POWER))


def spread(differences: Floats) -> float:
    """Return the standard deviation; 0 if all are equal, and of one query."""
    # floating-point noise is not variation: dividing by it would give huge effect sizes
    varies = len(differences) > 1 and np.ptp(differences) > 10**-TIE_DIGITS
    return float(differences.std(ddof=1)) if varies else 0.0
