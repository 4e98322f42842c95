"""Sign test and sign-flip test of paired differences, intervals that invert them, and families of tests (Holm 1979).

Under the null hypothesis the two values of a query are exchangeable, so the sign of each difference is random (Fisher
1935; Smucker, Allan & Carterette, CIKM 2007). Queries without a difference say nothing about the sign. No random number
is drawn:

- differences of one size, as of scores 0 and 1: the sign test (McNemar 1947), exact
- at most `MAX_EXACT` differences: all flips
- at most `MAX_ON_GRID`, and any number of which a few dominate (`_is_lumpy`; such are the estimates with an auxiliary
  label): all flips, with the differences rounded to a grid
- more: the tail by a saddlepoint approximation (Robinson, JRSS B 1982; Barndorff-Nielsen, Biometrika 1986), with
  Daniels' correction (1987) where the differences are multiples of 1/k. Its relative error is tested against all flips
  (`tests/pure/test_paired_test.py`). For the p-values that a correction over thousands of pairs asks for, random flips
  would have to be millions.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from erag_ray.measures.agreement.intervals import TIE_DIGITS, round_up, spread, standard_errors
from erag_ray.measures.agreement.statistics import Clusters, Floats
from erag_ray.support.numba_jit import compiled

MAX_EXACT = 26
"""With this number of differences or fewer all 2 ** n flips are counted, as sums of two halves."""
MAX_ON_GRID = 128
"""With this number of differences or fewer all flips are counted on a grid of `NUM_STEPS`."""
NUM_STEPS = 1 << 15
MAX_SUBSETS = 16
"""With this number of differences or fewer bounds are means of subsets, else they are solved for."""
SUM_DIGITS = 8
"""Decimal digits to which sums of differences are compared."""
NOISE = 1e-4
"""Of the largest difference: smaller ones count as 0. A perfect auxiliary label is exact up to its penalty only."""
MAX_STEPS = 100
"""Differences that are multiples of 1/k, for a k up to this, have sums on a lattice."""
MOST_NEEDED = 10**12
"""More queries than this are not counted."""
SMALLEST = 1e-12
"""A bound on the significant side of 0 is at least this far from it."""


@dataclass(frozen=True, kw_only=True)
class PairedTest:
    """The test of one column of paired differences; make it with `paired_test`.

    Attributes:
        mean: of all differences.
        count: number of queries, with a difference or without.
        spread: standard deviation of all differences.
        values: the differences that are not 0.
        p_value: two-sided; 1 without any difference.
        bound: of the mean, on either side: the largest difference of a query, and at least 1.
    """

    mean: float
    count: int
    spread: float
    values: Floats
    p_value: float
    bound: float

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return the interval of the mean difference that excludes 0 exactly if the p-value is at most ``alpha``.

        It is the interval of the mean of the differences that are not 0, by inversion of their test (for sign flips:
        quantiles of the means of subsets, Hartigan, JASA 1969; for one size: Clopper & Pearson 1934), times the share
        of queries that differ. The uncertainty of that share (Clopper & Pearson) is added in squares on the scale of
        logarithms (Zou & Donner 2008), and in full on the other side of 0. Without any difference the interval is as
        wide as the largest such share: scores are taken to lie in [0, 1] if no difference is larger than 1.
        """
        # the scaled sum of a cluster may be beyond what the mean can be
        half, bound = alpha / 2, max(1.0, float(np.abs(self.values).max(initial=0.0)))
        least, most = _share_bounds(len(self.values), self.count, half)
        if not len(self.values):
            return -most * bound, most * bound
        center = float(self.values.mean()) if round(float(self.values.sum()), SUM_DIGITS) else 0.0
        share = len(self.values) / self.count
        low, high = (
            sign
            * _with_share(_lower_bound(sign * self.values, half, bound), sign * center, share, least, most)
            for sign in (1.0, -1.0)
        )
        is_significant = self.p_value <= alpha
        if self.mean > 0:
            low = max(low, SMALLEST) if is_significant else min(low, 0.0)
        elif self.mean < 0:
            high = min(high, -SMALLEST) if is_significant else max(high, 0.0)
        return max(low, -self.bound), min(high, self.bound)

    def detectable(self, alpha: float) -> float | None:
        """Return the smallest true mean that a two-sided test detects with a power of .8, on such queries.

        It is t(1 - alpha/2) + t(.8) standard errors (Cohen 1988, section 2.3), and half a step of the sum, by which an
        exact test is stricter (Fleiss, Tytun & Ury 1980). None if all differences are equal.
        """
        errors = standard_errors(alpha, self.count) * self.spread / math.sqrt(self.count)
        return errors + _half_step(self.values) / self.count if self.spread else None

    def num_needed(self, alpha: float, target: float = 0.0) -> int | None:
        """Return how many queries a test at this level needs to tell the mean from ``target`` in 80 % of cases.

        With so many the distance is `detectable`, and as many differ as an exact test needs; rounded up to two digits.
        None if the mean is the target or nothing differs, and at most `MOST_NEEDED`.
        """
        distance = abs(round(self.mean - target, TIE_DIGITS))
        if not distance or not len(self.values):
            return None
        num_different, step = math.ceil(1 - math.log2(alpha)), _half_step(self.values)
        needed = float(MOST_NEEDED)
        # Student's quantiles are those of the number needed, which settles
        for _ in range(12):
            errors = standard_errors(alpha, max(num_different, needed)) * self.spread
            root = (errors + math.sqrt(errors**2 + 4 * distance * step)) / (2 * distance)
            needed = min(MOST_NEEDED, root**2)
        return round_up(max(needed, num_different * self.count / len(self.values)))


def paired_test(differences: Floats, clusters: Clusters | None = None) -> PairedTest:
    """Return the test of differences from `paired_differences`: [num_queries], NaN if not judged, at least one is.

    With clusters it is that of the sum over each, scaled so that their mean is that of all judged queries.
    """
    is_judged = ~np.isnan(differences)
    tested = judged = differences[is_judged]
    if clusters is not None:
        _, numbers = np.unique(clusters[is_judged], return_inverse=True)
        sums = np.bincount(numbers, weights=judged)
        tested = np.round(sums * len(sums) / len(judged), TIE_DIGITS)
    sizes = np.abs(tested)
    values = tested[sizes > NOISE * sizes.max()]
    return PairedTest(
        mean=float(tested.mean()),
        count=len(tested),
        spread=spread(tested),
        values=values,
        p_value=min(1.0, 2 * _tail(values)),
        bound=max(1.0, float(np.abs(judged).max())),
    )


def _tail(values: Floats) -> float:
    """Return the share of flips whose sum is at least as far on the side of the sum of the values; .5 at 0."""
    total = round(float(values.sum()), SUM_DIGITS)
    if not total:
        return 0.5
    signed = values if total > 0 else -values
    if _is_one_size(values):
        from scipy.special import bdtr

        return float(bdtr(int((signed < 0).sum()), len(values), 0.5))
    if len(values) <= MAX_EXACT:
        # flipping a subset lowers the sum by twice the subset's sum, which is one of the first half and one of the rest
        middle = len(signed) // 2
        first, second = np.sort(_subset_sums(signed[:middle])), _subset_sums(signed[middle:])
        at_most = np.searchsorted(first, 10.0**-SUM_DIGITS - second, side="right")
        return float(at_most.sum()) / 2.0 ** len(signed)
    step = _half_step(values)
    if len(values) <= MAX_ON_GRID or _is_lumpy(np.abs(values)):
        unit = step or float(np.abs(values).sum()) / NUM_STEPS
        sizes = np.round(np.abs(values) / unit).astype(np.int64)
        tail = _share_at_most(sizes, int(sizes[signed < 0].sum()))
    else:
        from scipy.special import ndtr

        tail = float(ndtr(-_root(signed, step)))
    # the observed signs are one of all flips
    return max(tail, 2.0 ** -len(values))


def _is_lumpy(sizes: Floats) -> bool:
    """Return whether a few differences of about one size leave gaps between their sums that the others do not fill."""
    is_large = sizes > sizes.max() / 2
    others = float(np.square(sizes[~is_large]).sum() + is_large.sum() * sizes[is_large].var())
    return math.sqrt(others) < float(sizes[is_large].mean())


@compiled
def _share_at_most(sizes: npt.NDArray[np.int64], most: int) -> float:
    """Return the share of all subsets of whole numbers whose sum is at most ``most``."""
    shares = np.zeros(most + 1)
    shares[0] = 1.0
    for size in sizes:
        for total in range(most, -1, -1):
            lower = shares[total - size] if total >= size else 0.0
            shares[total] = (shares[total] + lower) / 2
    return float(shares.sum())


def _lower_bound(values: Floats, alpha: float, bound: float) -> float:
    """Return the one-sided lower bound of the mean of differences that are not 0; -bound if there is none."""
    count = len(values)
    if _is_one_size(values):
        least, _ = _share_bounds(int((values > 0).sum()), count, alpha)
        return float(np.abs(values).mean()) * (2 * least - 1)
    if count <= MAX_SUBSETS:
        rank = math.floor(alpha * 2**count + 1e-9)
        if not rank:
            return -bound
        # subset i has the values of the bits that are set in i
        means = _subset_sums(values)[1:] / np.bitwise_count(np.arange(1, 2**count))
        return float(np.partition(means, rank - 1)[rank - 1])
    return _solved(values, alpha) if alpha >= 2.0**-count else -bound


def _is_one_size(values: Floats) -> bool:
    sizes = np.abs(values)
    return not len(values) or bool(np.ptp(sizes) <= NOISE * sizes.max())


def _share_bounds(positive: int, count: int, alpha: float) -> tuple[float, float]:
    """Return the one-sided bounds of a share by Clopper & Pearson (1934)."""
    from scipy.special import betaincinv

    least = float(betaincinv(positive, count - positive + 1, alpha)) if positive else 0.0
    most = float(betaincinv(positive + 1, count - positive, 1 - alpha)) if positive < count else 1.0
    return least, most


def _with_share(low: float, center: float, share: float, least: float, most: float) -> float:
    """Return the lower bound of the mean of all queries, from that of the queries that differ."""
    if low * center <= 0:
        return low * most
    of_share = most if center < 0 else least if share < 1 else 1.0
    distance = math.hypot(math.log(low / center), math.log(of_share / share))
    return center * share * math.exp(distance if center < 0 else -distance)


def _subset_sums(values: Floats) -> Floats:
    """Return the sums of all subsets, [2 ** count]: the value at place i is in those whose number has bit i."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums, sums + value])
    return np.round(sums, SUM_DIGITS)


def _half_step(values: Floats) -> float:
    """Return half the distance of two neighbouring sums of flips; 0 if they are on no lattice."""
    sizes = np.unique(np.round(np.abs(values), SUM_DIGITS))
    if len(sizes) < 2:
        return float(sizes.sum())
    if len(sizes) > MAX_STEPS:
        return 0.0
    steps = np.arange(1, MAX_STEPS + 1)
    multiples = sizes[:, None] * steps
    on_lattice = np.abs(multiples - np.round(multiples)).max(axis=0) < 1e-6
    return 1.0 / float(steps[np.argmax(on_lattice)]) if on_lattice.any() else 0.0


def _solved(values: Floats, alpha: float) -> float:
    """Return the shift at which the tail of the shifted differences is ``alpha``, below their mean."""
    from scipy.special import ndtri

    wanted, center = -float(ndtri(alpha)), float(values.mean())
    # roots at the ends of the bracket: infinite at the smallest difference, 0 at the mean
    low, high = float(values.min()), center
    shift = center - wanted * float(values.std()) / math.sqrt(len(values))
    before, root_before = center, 0.0
    for _ in range(60):
        if not low < shift < high:
            shift = (low + high) / 2
        root = _root(values - shift, 0.0)
        low, high = (shift, high) if root > wanted else (low, shift)
        if abs(root - wanted) < 1e-5 or high - low < 1e-12:
            break
        slope = (root - root_before) / (shift - before) if math.isfinite(root) else math.nan
        before, root_before = shift, root
        shift = shift + (wanted - root) / slope if slope < 0 else (low + high) / 2
    return shift


@compiled
def _root(values: Floats, half_step: float) -> float:
    """Return the signed root r* of P(sum of flips >= sum of values): that tail is about the normal one above r*."""
    target, largest, squares = -half_step, 0.0, 0.0
    for value in values:
        target += value
        largest += abs(value)
        squares += value * value
    if target <= 0:
        return 0.0
    if target >= largest * (1 - 1e-12):
        return np.inf
    # the slope of the cumulant function is concave above 0, so Newton's steps come from below and never overshoot
    tilt, second = target / squares, squares
    for _ in range(200):
        first, second = 0.0, 0.0
        for value in values:
            tangent = np.tanh(tilt * value)
            first += value * tangent
            second += value * value * (1 - tangent * tangent)
        if second <= 0:
            return np.inf
        step = (target - first) / second
        tilt += step
        if abs(step) <= 1e-9 * tilt:
            break
    cumulant = 0.0
    for value in values:
        size = abs(tilt * value)
        cumulant += size + np.log1p(np.exp(-2 * size)) - np.log(2.0)
    root = np.sqrt(max(2 * (tilt * target - cumulant), 0.0))
    if root < 1e-4:
        return float(root)
    scale = tilt if half_step == 0 else np.sinh(half_step * tilt) / half_step
    return float(root + np.log(scale * np.sqrt(second) / root) / root)


# --- families ---


def holm(p_values: Floats) -> Floats:
    """Adjust the p-values of one family by Holm (1979), to control the family-wise error; NaN, no test, stays NaN."""
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

    def add(self, differences: Floats, part: Hashable = None, clusters: Clusters | None = None) -> None:
        """Add a test; `adjusted` has them in this order.

        Args:
            differences: [num_queries] from `paired_differences`, NaN where not judged; at least one is.
            clusters: whose differences are tested; None: each query by itself.
            part: what distinguishes these queries from those of other tests in the family, such as a slice.
        """
        test = paired_test(differences, clusters)
        first = test.values[0] if len(test.values) else 1.0
        # a sum of 0 turns -0.0 into 0.0, which has other bytes
        key = (part, hash((np.sign(first) * differences + 0.0).tobytes()))
        self._members.append((key, test))

    def adjusted(self, alpha: float) -> list[AdjustedTest]:
        """Return all tests, adjusted for each other; ``alpha`` is the family's error."""
        distinct = {key: test.p_value for key, test in self._members if len(test.values)}
        p_values = np.array(list(distinct.values()))
        stepped = _stepped_down(p_values)
        # the ratio first: alpha times the smallest p-values may be 0
        levels = alpha * np.divide(p_values, stepped, out=np.ones(len(stepped)), where=stepped > p_values)
        of_key = dict(zip(distinct, zip(stepped.tolist(), levels.tolist(), strict=True), strict=True))
        return [
            AdjustedTest(test=test, p_adjusted=min(1.0, p_adjusted), level=level)
            for key, test in self._members
            for p_adjusted, level in [of_key.get(key, (1.0, alpha / max(1, len(distinct))))]
        ]
