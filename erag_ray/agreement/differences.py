"""Two retrievers over the same queries: is the difference real, how large is it, and how small a one could be seen.

In: columns of paired differences, a run's value minus another's, query by query; NaN where one was not judged.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

from erag_ray.agreement.cells import Floats

FLIPS_AT_A_TIME = 1000
POWER = 0.8
ALPHA = 0.05
TIE_DIGITS = 10
"""Differences and means of values that were rounded to 12 digits are compared to this many."""


def paired_differences(a: Floats, b: Floats) -> Floats:
    """Subtract run b from run a, rounded so that equal differences tie: the only place where runs are subtracted.

    The values are rounded already (2/3 is .666666666667), so 2/3 - 1/3 and 1/3 - 0 differ in the twelfth digit.

    Args:
        a: values of one run, [num_queries]; NaN where it was not judged.
        b: values of the other run, of the same shape.
    """
    return np.asarray(np.round(a - b, TIE_DIGITS), np.float64)


def sign_flips(num_queries: int, num_flips: int = 10_000, seed: int = 0) -> npt.NDArray[np.int8]:
    """Signs, -1 or 1, for each query in each flip: [num_flips, num_queries]. Columns that share them are in step."""
    bits = np.random.default_rng(seed).integers(0, 2, (num_flips, num_queries), dtype=np.int8)
    return 2 * bits - 1


def randomisation_p_values(differences: Floats, flips: npt.NDArray[np.int8]) -> Floats:
    """Two-sided p-values of paired randomisation: how often chance alone gives as large a mean difference.

    Under the null hypothesis the two values of a query are exchangeable, so the sign of each difference is a coin's
    (Fisher 1935; Smucker, Allan & Carterette, CIKM 2007). p = (b + 1) / (B + 1) for b of B flips at least as large
    (Phipson & Smyth 2010): never 0, and right for any B.

    Args:
        differences: [num_queries, num_columns]; a NaN counts as no difference.
        flips: [num_flips, num_queries] from `sign_flips`.

    Returns:
        [num_columns].
    """
    known = np.nan_to_num(differences, nan=0.0)
    # sums of the same numbers in another order must tie
    least = np.abs(known.sum(axis=0)) - 1e-9 * (1.0 + np.abs(known).sum(axis=0))
    as_large = np.zeros(known.shape[1], np.int64)
    for start in range(0, len(flips), FLIPS_AT_A_TIME):
        sums = flips[start : start + FLIPS_AT_A_TIME].astype(np.float64) @ known
        as_large += (np.abs(sums) >= least).sum(axis=0)
    return np.asarray((as_large + 1.0) / (len(flips) + 1.0), np.float64)


def holm(p_values: Floats) -> Floats:
    """p-values of one family, adjusted by Holm (1979): those at most alpha keep the family-wise error at alpha.

    Args:
        p_values: [num_tests]; NaN is no test, and stays.
    """
    adjusted = np.full(len(p_values), np.nan)
    tests = np.flatnonzero(~np.isnan(p_values))
    order = tests[np.argsort(p_values[tests], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(p_values[order] * factors), 1.0)
    return adjusted


def effect_size(differences: Floats) -> float | None:
    """Cohen's d for pairs: the mean difference in its standard deviations; None without variation, or for one query.

    Args:
        differences: [num_queries], without NaN.
    """
    spread = _spread(differences)
    return float(differences.mean()) / spread if spread else None


def detectable_difference(differences: Floats, alpha: float = ALPHA, power: float = POWER) -> float | None:
    """The smallest true difference that a two-sided paired test would find with this power, on queries like these.

    (t(1 - alpha/2) + t(power)) standard errors, with n - 1 degrees of freedom; Cohen (1988), section 2.3. For one
    test: with many comparisons it is larger. None where all differences are equal or there is one query.

    Args:
        differences: [num_queries], without NaN.
        alpha: how often a test may find what is not there.
        power: how often it must find what is.
    """
    spread, count = _spread(differences), len(differences)
    if not spread:
        return None
    return _standard_errors(alpha, power, count) * spread / math.sqrt(count)


@functools.lru_cache(maxsize=1 << 14)
def _standard_errors(alpha: float, power: float, count: int) -> float:
    """How many standard errors a difference of so many queries must have."""
    # half a second of imports, which a job with bad input need not wait for
    from scipy import stats

    return float(stats.t.ppf([1 - alpha / 2, power], count - 1).sum())


def _spread(differences: Floats) -> float:
    # noise of floating point is no variation: divided by it, any difference would look huge
    varies = len(differences) > 1 and np.ptp(differences) > 10**-TIE_DIGITS
    return float(differences.std(ddof=1)) if varies else 0.0
