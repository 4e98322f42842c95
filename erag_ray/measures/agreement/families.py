"""Families of paired tests, corrected by Holm (1979)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from erag_ray.measures.agreement.differences import by_cluster
from erag_ray.measures.agreement.paired_test import PairedTest, paired_test
from erag_ray.measures.agreement.statistics import Clusters, Floats


def holm(p_values: Floats) -> Floats:
    """Adjust the p-values of one family by Holm (1979), to control the family-wise error.

    Args:
        p_values: [num_tests]; NaN: no test, stays NaN.
    """
    return np.minimum(_stepped_down(p_values), 1.0)


def _stepped_down(p_values: Floats) -> Floats:
    """Return adjusted p-values that may be above 1."""
    adjusted = np.full(len(p_values), np.nan)
    tests = np.flatnonzero(~np.isnan(p_values))
    order = tests[np.argsort(p_values[tests], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.maximum.accumulate(p_values[order] * factors)
    return adjusted


@dataclass(frozen=True, kw_only=True)
class AdjustedTest:
    """A paired test in its family.

    Attributes:
        test: the test by itself.
        p_adjusted: by Holm.
        level: what Holm compares the test's own p-value with: that is at most ``level`` exactly if ``p_adjusted`` is at
            most alpha, so ``test.interval(level)`` is the interval that agrees with ``p_adjusted``.
    """

    test: PairedTest
    p_adjusted: float
    level: float

    def figures(self, alpha: float) -> dict[str, float | None]:
        """Return the mean with p-value and interval, and both corrected by Holm, as columns of a table of tests."""
        interval = self.test.interval(alpha)
        corrected = interval if self.level == alpha else self.test.interval(self.level)
        return {
            "difference": self.test.mean,
            **dict(zip(("low", "high"), interval, strict=True)),
            "p_value": self.test.p_value,
            **dict(zip(("low_adjusted", "high_adjusted"), corrected, strict=True)),
            "p_adjusted": self.p_adjusted,
        }


class Family:
    """Paired tests that are corrected together.

    Tests of the same differences, up to their sign, count once, and those without any difference, which no flip can
    make significant (Tarone, Biometrics 1990), not at all: a copy of a run tells nothing new, and must not make the
    other comparisons less certain.
    """

    def __init__(self) -> None:
        self._members: list[tuple[Hashable, PairedTest]] = []

    def add(self, differences: Floats, part: Hashable = None, clusters: Clusters | None = None) -> int:
        """Add a test; return its index in `adjusted`.

        Args:
            differences: [num_queries] from `paired_differences`, NaN where not judged; at least one is.
            clusters: whose differences are tested, `by_cluster`; None: each query by itself.
            part: what distinguishes these queries from those of other tests in the family, such as a slice.
        """
        test = paired_test(by_cluster(differences, clusters))
        first = test.values[0] if len(test.values) else 1.0
        # a sum of 0 turns -0.0 into 0.0, which has other bytes
        key = (part, hash((np.sign(first) * differences + 0.0).tobytes()))
        self._members.append((key, test))
        return len(self._members) - 1

    def adjusted(self, alpha: float) -> list[AdjustedTest]:
        """Return all tests, adjusted for each other; ``alpha`` is the family's error."""
        distinct = {key: test.p_value for key, test in self._members if len(test.values)}
        p_values = np.array(list(distinct.values()))
        stepped = _stepped_down(p_values)
        # where the two are equal, the level is alpha without rounding
        levels = np.divide(
            alpha * p_values, stepped, out=np.full(len(stepped), alpha), where=stepped > p_values
        )
        of_key = dict(zip(distinct, zip(stepped.tolist(), levels.tolist(), strict=True), strict=True))
        return [
            AdjustedTest(test=test, p_adjusted=min(1.0, p_adjusted), level=level)
            for key, test in self._members
            for p_adjusted, level in [of_key.get(key, (1.0, alpha / max(1, len(distinct))))]
        ]
