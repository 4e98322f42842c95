"""Statistics of columns of values, and what chance does to them: resamples, permutations, flips of signs.

Resamples and permutations are drawn as documented (`numpy.random.default_rng` of the seed), so that their intervals and
p-values must agree to the last digits. Tests of differences are counted over all flips, or sampled where these are too
many: what follows is `About` right.
"""

import collections
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

Array = npt.NDArray[Any]
Clusters = list[int] | None
"""The number of the cluster of each question; None: each is by itself."""
NEIGHBOURS = 5
TIE = 10
"""Digits to which differences and means tie."""
NUM_FLIPS = 20_000


class About(float):
    """A number that was sampled."""


class Draws:
    """Resamples and permutations of some questions, or of whole clusters of them."""

    def __init__(self, count: int, config: dict[str, Any], clusters: Clusters = None) -> None:
        rng, self.weights = np.random.default_rng(config["seed"]), np.zeros((config["num_resamples"], count))
        self.clusters = clusters
        numbers = [*range(count)] if clusters is None else clusters
        size = len({*numbers})
        for row in self.weights:
            drawn = rng.integers(size, size=size).tolist()
            row[:] = [drawn.count(one) for one in numbers]
        rng, orders = np.random.default_rng(config["seed"]), []
        for _ in range(config["num_permutations"]) if clusters is not None else ():
            # each cluster changes places with some of those beside it
            first, keys = rng.integers(NEIGHBOURS), rng.random(size)
            places = {one: ((one + first) // NEIGHBOURS, keys[one]) for one in range(size)}
            orders.append(sorted(range(count), key=lambda at: (*places[numbers[at]], at)))
        rows = np.tile(np.arange(count), (config["num_permutations"], 1))
        of_each = rng.permuted(rows, axis=1) if count > 8 else all_orders(count)
        self.orders = of_each if clusters is None else np.array(orders)

    def orders_among(self, kept: list[int]) -> Array:
        """The orders of the questions with these numbers."""
        if len(kept) <= 8 and self.clusters is None:
            return all_orders(len(kept))
        return np.array([np.searchsorted(kept, row[np.isin(row, kept)]) for row in self.orders])


def all_orders(count: int) -> Array:
    orders = list(itertools.permutations(range(count)))[1:]
    return np.array(orders, dtype=int).reshape(len(orders), count)


def known(*rows: Array) -> list[int]:
    """The places at which all rows have a value, and not NaN."""
    return np.flatnonzero(~np.isnan(sum(rows))).tolist()


def mean(values: Sequence[float] | Array) -> float:
    return math.fsum(values) / len(values)


def ends(resampled: Array, confidence: float, number: int) -> tuple[float | None, float | None]:
    """The percentile interval of ``number`` questions or clusters, as much wider as Student's (Hesterberg 2015).

    None with more than 5 % undefined resamples, or without width.
    """
    defined = np.sort(resampled[~np.isnan(resampled)])
    if number < 2 or not len(defined) or len(resampled) - len(defined) > 0.05 * len(resampled):
        return None, None
    tail = stats.norm.sf(stats.t.ppf((1 + confidence) / 2, number - 1) * math.sqrt(number / (number - 1)))
    low, high = np.quantile(defined, [tail, 1 - tail])
    return (float(low), float(high)) if high - low > 1e-10 else (None, None)


def mean_interval(values: Array, weights: Array, confidence: float, number: int) -> tuple[float | None, ...]:
    """Mean and interval of the values; no interval with one."""
    if len(values) < 2:
        return (float(values[0]) if len(values) else None, None, None)
    return mean(values), *ends(divided(weights @ values, weights.sum(axis=1)), confidence, number)


def divided(above: Array, below: Array) -> Array:
    """The ratio; NaN where ``below`` is 0."""
    return np.array([x / y if y > 0 else math.nan for x, y in zip(above, below, strict=True)])


def signs(values: Array) -> Array:
    return np.sign(values[:, None] - values[None, :])


def statistic_of(name: str, x: Array, y: Array, weights: Array) -> Array:
    """Kendall's tau-b or Spearman's rho of each resample.

    tau-b is taken over all pairs of draws. rho is Pearson's of mid-ranks less their mean, which are half the sums of
    signs.
    """
    a, b = signs(x), signs(y)
    if name == "spearman_rho":
        of_x, of_y = weights @ a.T, weights @ b.T
        sums = [(weights * one).sum(axis=1) for one in (of_x * of_y, of_x * of_x, of_y * of_y)]
    else:
        sums = [((weights @ one) * weights).sum(axis=1) for one in (a * b, a * a, b * b)]
    return divided(sums[0], np.sqrt(sums[1] * sums[2]))


def of_all(name: str, x: Array, y: Array) -> float | None:
    """The statistic of two columns; None if one is constant or there is one value."""
    varies = len({*x}) > 1 and len({*y}) > 1
    return float(statistic_of(name, x, y, np.ones((1, len(x))))[0]) if varies else None


def permutation_p(name: str, x: Array, y: Array, orders: Array) -> float:
    """The share of pairings that agree as much or more, with the observed one among them."""
    a, b = signs(x), signs(y)
    if name == "spearman_rho":
        ranks, others = a.sum(axis=1), b.sum(axis=1)
        found, observed = others[orders] @ ranks, ranks @ others
    else:
        # sums of signs are exact, of up to 4,096 questions
        a, b = a.astype(np.float32), b.astype(np.float32)
        found, observed = np.array([np.vdot(a, b[order][:, order]) for order in orders]), np.vdot(a, b)
    return (int((np.abs(found) >= abs(observed)).sum()) + 1) / (len(orders) + 1)


def wilson(values: Sequence[float], confidence: float, clusters: Clusters = None) -> tuple[float | None, ...]:
    """The mean of values from 0 to 1, and the interval of as many events as have its variance (Kish 1965)."""
    if not (count := len(values)):
        return None, None, None
    share, size, places = mean(values), float(count), [*clusters] if clusters is not None else [*range(count)]
    number, plain, level = len({*places}), share * (1 - share), (1 + confidence) / 2
    are_events = {*values} <= {0.0, 1.0}
    if not are_events and max(values) - min(values) < 1e-10:
        # other values are events, of which there was none
        most = wilson([0.0] * number, confidence)[2] or 0.0
        return share, share * (1 - most), share + (1 - share) * most
    z = float(stats.norm.ppf(level))
    if clusters is not None or not are_events:
        sums = by_cluster([value - share for value in values], places)
        variance = math.fsum((one * count / number) ** 2 for one in sums) / count
        size = number
        if variance > 1e-20:
            variance *= number / (number - 1) * (float(stats.t.ppf(level, number - 1)) / z) ** 2
            within = plain if are_events else mean([(value - share) ** 2 for value in values])
            size = count * plain / max(variance, within)
    middle = share + z * z / (2 * size)
    half = z * math.sqrt(share * (1 - share) / size + (z / (2 * size)) ** 2)
    low, high = ((middle + side * half) / (1 + z * z / size) for side in (-1, 1))
    return share, low if share else 0.0, high if share < 1 else 1.0


def by_cluster(values: Sequence[float], clusters: Clusters) -> list[float]:
    """The sums of clusters, scaled so that their mean is that of the values."""
    if clusters is None:
        return [float(one) for one in values]
    sums = dict.fromkeys(clusters, 0.0)
    for value, one in zip(values, clusters, strict=True):
        sums[one] += value
    return [round(one * len(sums) / len(values), TIE) for one in sums.values()]


def differences(a: Array, b: Array) -> Array:
    """Paired differences, rounded so that equal ones tie."""
    return (a - b).round(TIE) + 0.0


class Flips:
    """The sign-flip test of differences, and the interval that inverts it."""

    def __init__(self, differences: Sequence[float], clusters: Clusters = None) -> None:
        self.tested = by_cluster(differences, clusters)
        self.mean, self.count = mean(self.tested), len(self.tested)
        self.values = [one for one in self.tested if abs(one) > 1e-4 * max(map(abs, self.tested))]
        sizes = [abs(one) for one in self.values] or [0.0]
        self.is_one_size = max(sizes) - min(sizes) <= 1e-4 * max(sizes)
        self.largest, self.p_value = max(1.0, *sizes), self._p()
        self.bound = max(1.0, *map(abs, differences))  # of the mean; a sum over a cluster may be larger

    def _p(self) -> float:
        total, num = math.fsum(self.values), len(self.values)
        signed = [math.copysign(1, total) * one for one in self.values]
        if round(total, 8) == 0:
            return 1.0
        if self.is_one_size:
            fewer = sum(one < 0 for one in signed)
            return min(1.0, 2 * sum(math.comb(num, one) for one in range(fewer + 1)) / 2**num)
        if num <= 26:
            # flipping a subset lowers the sum by twice the subset's
            counts = collections.Counter([0.0])
            for one in signed:
                for below, number in list(counts.items()):
                    counts[round(below + one, 8)] += number
            return min(1.0, 2 * sum(number for below, number in counts.items() if below <= 1e-6) / 2**num)
        drawn = np.random.default_rng(7).choice([-1.0, 1.0], (NUM_FLIPS, num))
        as_far = int((drawn @ np.array(signed) >= sum(signed) - 1e-9).sum())
        return About(min(1.0, 2 * (as_far + 1) / (NUM_FLIPS + 1)))

    def interval(self, alpha: float) -> tuple[float, float]:
        """Low and high."""
        num, share = len(self.values), len(self.values) / self.count
        least, most = shares(num, self.count, alpha / 2)
        if not num:
            return -most * self.largest, most * self.largest
        kind, found = (float if self.is_one_size or num <= 16 else About), list[float]()
        center = mean(self.values) if round(math.fsum(self.values), 8) else 0.0
        for side in (1.0, -1.0):
            bound, middle = self._bound(side, alpha / 2), side * center
            if bound * middle <= 0:
                found.append(side * bound * most)
                continue
            of_share = most if middle < 0 else least if share < 1 else 1.0
            distance = math.hypot(math.log(bound / middle), math.log(of_share / share))
            found.append(side * middle * share * math.exp(distance if middle < 0 else -distance))
        low, high = found
        is_significant = self.p_value <= alpha
        if self.mean > 0:
            low = max(low, 1e-12) if is_significant else min(low, 0.0)
        elif self.mean < 0:
            high = min(high, -1e-12) if is_significant else max(high, 0.0)
        return kind(max(low, -self.bound)), kind(min(high, self.bound))

    def _bound(self, side: float, alpha: float) -> float:
        """The lower bound of the mean of the differences that are not 0: a quantile of the means of their subsets."""
        values, num = [side * one for one in self.values], len(self.values)
        if self.is_one_size:
            least, _ = shares(sum(one > 0 for one in values), num, alpha)
            return mean([abs(one) for one in values]) * (2 * least - 1)
        if num > 16:
            chosen = np.random.default_rng(11).random((NUM_FLIPS, num)) < 0.5
            means = (chosen @ np.array(values)) / np.maximum(chosen.sum(axis=1), 1)
            return float(np.quantile(means, alpha))
        subsets = (some for size in range(1, num + 1) for some in itertools.combinations(values, size))
        ordered = sorted(round(math.fsum(one), 8) / len(one) for one in subsets)
        rank = math.floor(alpha * 2**num + 1e-9)
        return ordered[rank - 1] if rank else -self.largest

    def num_needed(self, alpha: float) -> int | None:
        """Questions for a power of 80 % at this level."""
        if not round(self.mean, TIE):
            return None
        squares = math.fsum(one * one for one in self.values) - self.count * self.mean**2
        error, half = math.sqrt(max(0.0, squares / max(1, self.count - 1))), step(self.values)
        few = math.ceil(1 - math.log2(alpha))

        def lacking(num: float) -> float:
            return errors(alpha, max(few, num)) * error * num**0.5 + half - num * abs(self.mean)

        by_power = optimize.brentq(lacking, 1e-9, 1e13)
        return rounded_up(max(by_power, few * self.count / len(self.values)))


def step(values: Sequence[float]) -> float:
    """Half of how far two neighbouring sums of flips are apart: what all sizes are multiples of, 1/100 or more."""
    sizes = {round(abs(one), 8) for one in values} - {0.0}
    units = (1 / k for k in range(1, 101) if all(abs(one * k - round(one * k)) < 1e-6 for one in sizes))
    return next(units, 0.0) if len(sizes) > 1 else max(sizes, default=0.0)


@functools.cache
def shares(positive: int, count: int, alpha: float) -> tuple[float, float]:
    """Clopper and Pearson's one-sided bounds of a share."""
    low = float(stats.beta.ppf(alpha, positive, count - positive + 1)) if positive else 0.0
    high = float(stats.beta.ppf(1 - alpha, positive + 1, count - positive)) if positive < count else 1.0
    return low, high


@functools.cache
def errors(alpha: float, count: float) -> float:
    """The difference that is found in 80 % of cases, in standard errors."""
    return float(stats.t.ppf(1 - alpha / 2, count - 1) + stats.t.ppf(0.8, count - 1))


def spread(values: Sequence[float]) -> float:
    """The standard deviation; 0 for one value and up to rounding errors."""
    varies = len(values) > 1 and max(values) - min(values) > 1e-10
    return float(np.std(values, ddof=1)) if varies else 0.0


def rounded_up(value: float) -> int:
    """Up to two significant digits."""
    unit = 10 ** max(0, math.floor(math.log10(value)) - 1) if value >= 1 else 1
    return math.ceil(value / unit) * unit


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, which may be above 1."""
    order = np.argsort(p_values, kind="stable")
    adjusted, num_left = np.zeros(len(p_values)), len(p_values) - np.arange(len(p_values))
    adjusted[order] = np.maximum.accumulate(np.array(p_values)[order] * num_left) if p_values else []
    return adjusted.tolist()
