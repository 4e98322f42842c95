"""Paired differences of two runs over the same queries, their size and spread.

Inputs are columns of paired differences, the value of one run minus that of another per query; NaN if not judged.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from erag_ray.measures.agreement.statistics import Clusters, Floats

POWER = 0.8
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


def by_cluster(differences: Floats, clusters: Clusters | None) -> Floats:
    """Return the differences of clusters, which tests take in place of those of their queries.

    Each is the sum over a cluster, scaled so that their mean is that of all judged queries.

    Args:
        differences: [num_queries] from `paired_differences`, NaN if not judged.
        clusters: None: each query by itself.

    Returns:
        [num_clusters with a judged query], without NaN.
    """
    is_judged = ~np.isnan(differences)
    judged = differences[is_judged]
    if clusters is None:
        return judged
    _, numbers = np.unique(clusters[is_judged], return_inverse=True)
    sums = np.bincount(numbers, weights=judged)
    return np.asarray(np.round(sums * len(sums) / max(1, len(judged)), TIE_DIGITS), np.float64)


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
    # imported lazily: it is slow, and checks of inputs do not need it
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, 1 - alpha / 2) + stdtrit(count - 1, POWER))


def spread(differences: Floats) -> float:
    """Return the standard deviation; 0 if all are equal, and of one query."""
    # floating-point noise is not variation: dividing by it would give huge effect sizes
    varies = len(differences) > 1 and np.ptp(differences) > 10**-TIE_DIGITS
    return float(differences.std(ddof=1)) if varies else 0.0
