"""Proportions: Wilson intervals, and exact one-sided bounds and tests."""

from __future__ import annotations

import functools
import math


@functools.lru_cache(maxsize=1 << 16)
def wilson_interval(
    positive: int, count: int, confidence: float
) -> tuple[float | None, float | None, float | None]:
    """Return (share, low, high) by Wilson (1927), with the arithmetic of scipy's ``BinomTestResult.proportion_ci``.

    scipy also computes a p-value, which is far slower. All three are None if ``count`` is 0.
    """
    if not count:
        return None, None, None
    # imported lazily: it is slow, and checks of inputs do not need it
    from scipy.special import ndtri

    share, z = positive / count, float(ndtri(0.5 + 0.5 * confidence))
    below = 2 * (count + z**2)
    center = (2 * count * share + z**2) / below
    delta = z / below * math.sqrt(4 * count * share * (1 - share) + z**2)
    return share, 0.0 if positive == 0 else center - delta, 1.0 if positive == count else center + delta


def largest_share(positive: int, count: int, confidence: float) -> float:
    """Return the exact one-sided upper bound of a share (Clopper & Pearson 1934); 1 if ``count`` is 0.

    Other than Wilson's interval it holds for any count, also where none is positive: 149 of 149 negative ones show with
    95 % that the share is below .02.
    """
    if positive >= count:
        return 1.0
    from scipy.special import betaincinv

    return float(betaincinv(positive + 1, count - positive, confidence))


def p_of_share_below(positive: int, count: int, share: float) -> float:
    """Return the exact one-sided p-value for "the true share is below ``share``"; 1 if ``count`` is 0.

    It is P(X <= ``positive``), where X is binomial with ``count`` trials of probability ``share``: a small value speaks
    against the null hypothesis that the true share is at least ``share``, which lies in 0..1.
    """
    from scipy.special import bdtr

    return float(bdtr(positive, count, share))
