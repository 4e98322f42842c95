"""Paired comparison of two runs over the same queries: significance test, effect size and detectable difference.

Inputs are columns of paired differences, the value of one run minus that of another per query; NaN if not judged.
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
"""Decimal digits to which differences and means are compared; values are rounded to 12 digits."""


def paired_differences(a: Floats, b: Floats) -> Floats:
    """Subtract run b from run a, rounded so that equal differences tie. Always use it to subtract runs.

    The values are rounded already (2/3 is .666666666667), so 2/3 - 1/3 and 1/3 - 0 differ in the twelfth digit.

    Args:
        a: values of one run, [num_queries]; NaN if not judged.
        b: values of the other run, of the same shape.
    """
    return np.asarray(np.round(a - b, TIE_DIGITS), np.float64)


def sign_flips(num_queries: int, num_flips: int = 10_000, seed: int = 0) -> npt.NDArray[np.int8]:
    """Draw a sign, -1 or 1, per flip and query: [num_flips, num_queries]. Use one array for all columns."""
    bits = np.random.default_rng(seed).integers(0, 2, (num_flips, num_queries), dtype=np.int8)
    return 2 * bits - 1


def randomisation_p_values(differences: Floats, flips: npt.NDArray[np.int8]) -> Floats:
    """Compute two-sided p-values of the paired randomisation test of a mean difference.

    Under the null hypothesis the two values of a query are exchangeable, so the sign of each difference is random
    (Fisher 1935; Smucker, Allan & Carterette, CIKM 2007). p = (b + 1) / (B + 1) for b of B flips at least as large
    (Phipson & Smyth 2010): never 0, and valid for any B.

    Args:
        differences: [num_queries, num_columns]; NaN counts as 0.
        flips: [num_flips, num_queries] from `sign_flips`.

    Returns:
        [num_columns].
    """
    values = np.nan_to_num(differences, nan=0.0)
    # tolerance: sums of the same numbers in another order must tie
    least = np.abs(values.sum(axis=0)) - 1e-9 * (1.0 + np.abs(values).sum(axis=0))
    as_large = np.zeros(values.shape[1], np.int64)
    for start in range(0, len(flips), FLIPS_AT_A_TIME):
        sums = flips[start : start + FLIPS_AT_A_TIME].astype(np.float64) @ values
        as_large += (np.abs(sums) >= least).sum(axis=0)
    return np.asarray((as_large + 1.0) / (len(flips) + 1.0), np.float64)


def holm(p_values: Floats) -> Floats:
    """Adjust the p-values of one family by Holm (1979), to control the family-wise error.

    Args:
        p_values: [num_tests]; NaN: no test, stays NaN.
    """
    adjusted = np.full(len(p_values), np.nan)
    tests = np.flatnonzero(~np.isnan(p_values))
    order = tests[np.argsort(p_values[tests], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(p_values[order] * factors), 1.0)
    return adjusted


def effect_size(differences: Floats) -> float | None:
    """Return Cohen's d for pairs: mean / standard deviation; None without variation or for one query.

    Args:
        differences: [num_queries], without NaN.
    """
    spread = _spread(differences)
    return float(differences.mean()) / spread if spread else None


def detectable_difference(differences: Floats, alpha: float = ALPHA, power: float = POWER) -> float | None:
    """Return the smallest true difference that a two-sided paired test detects with this power, on such queries.

    (t(1 - alpha/2) + t(power)) standard errors, with n - 1 degrees of freedom; Cohen (1988), section 2.3. It is for
    one test; with many comparisons it is larger. None if all differences are equal or there is one query.

    Args:
        differences: [num_queries], without NaN.
        alpha: significance level.
        power: probability of detection.
    """
    spread, count = _spread(differences), len(differences)
    if not spread:
        return None
    return _standard_errors(alpha, power, count) * spread / math.sqrt(count)


def num_needed(count: int, detectable: float | None, difference: float | None) -> int | None:
    """Return how many queries a paired test needs to detect a difference, rounded up to two digits.

    The detectable difference falls with the square root of the number of queries.

    Args:
        count: number of queries behind ``detectable``.
        detectable: from `detectable_difference`.
        difference: the one to be detected, taken as true.

    Returns:
        None if either is 0 or None.
    """
    if not detectable or not difference:
        return None
    return round_up(count * (detectable / difference) ** 2)


def round_up(value: float) -> int:
    """Round ``value`` up to two significant digits."""
    unit = 10 ** max(0, math.floor(math.log10(value)) - 1) if value >= 1 else 1
    return math.ceil(value / unit) * unit


@functools.lru_cache(maxsize=1 << 14)
def _standard_errors(alpha: float, power: float, count: int) -> float:
    """Return the detectable difference in standard errors, for ``count`` queries."""
    # half a second of imports, which a job with bad input need not wait for
    from scipy import stats

    return float(stats.t.ppf([1 - alpha / 2, power], count - 1).sum())


def _spread(differences: Floats) -> float:
    # floating-point noise is not variation: dividing by it would give huge effect sizes
    varies = len(differences) > 1 and np.ptp(differences) > 10**-TIE_DIGITS
    return float(differences.std(ddof=1)) if varies else 0.0
