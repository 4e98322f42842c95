"""Proportions: Wilson intervals."""

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
