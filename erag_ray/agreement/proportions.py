"""A share of counted events, with its interval."""

from __future__ import annotations

import functools
import math


@functools.lru_cache(maxsize=1 << 16)
def wilson_interval(
    positive: int, count: int, confidence: float
) -> tuple[float | None, float | None, float | None]:
    """(share, low, high) by Wilson (1927), in the very steps of scipy's ``BinomTestResult.proportion_ci``.

    scipy also works out a p-value, which takes far longer. All three are None where ``count`` is 0.
    """
    if not count:
        return None, None, None
    # slow to import, and what only checks inputs counts nothing
    from scipy.special import ndtri

    share, z = positive / count, float(ndtri(0.5 + 0.5 * confidence))
    below = 2 * (count + z**2)
    center = (2 * count * share + z**2) / below
    delta = z / below * math.sqrt(4 * count * share * (1 - share) + z**2)
    return share, 0.0 if positive == 0 else center - delta, 1.0 if positive == count else center + delta
