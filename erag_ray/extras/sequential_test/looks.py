"""Interim analyses of a difference while queries come in: intervals that hold at all looks together.

Inputs are per-query differences of two runs, queries in random order, and the numbers of queries at the looks. With an
ordinary 95 % interval at each of many looks, some look would miss the truth far more often than in 5 % of the cases.
Here the intervals of all looks together miss it with probability at most alpha, so the last interval holds whatever
rule stops the reading.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import integrate, optimize, special, stats

from erag_ray.extras.sequential_test.design import Floats
from erag_ray.measures.agreement import Clusters

MIN_DIFFERENT = 10
"""There is no interval while fewer queries differ: a mean of almost only zeros is not yet normal."""
SAME = 1e-9
"""Squares around the mean, relative to its own, that are rounding."""
NUM_POINTS = 401
"""Of the grid on which a boundary is worked out; with more its values do not change in the fourth digit."""
NEVER_SPENT = 1e-12


@dataclass(frozen=True, kw_only=True)
class Looks:
    """Results of each look; bounds are infinite while too few queries differ."""

    means: Floats
    """[..., num_looks], mean difference."""
    lows: Floats
    highs: Floats

    def is_settled(self, equivalence_margin: float) -> npt.NDArray[np.bool_]:
        """[..., num_looks]: 0 is outside the interval, or the difference is known to within the margin."""
        return self.is_significant | (self.highs - self.lows <= 2 * equivalence_margin)

    @property
    def is_significant(self) -> npt.NDArray[np.bool_]:
        """[..., num_looks]: 0 is outside the interval, so one run is better."""
        return np.asarray((self.lows > 0) | (self.highs < 0))


def look(
    values: npt.ArrayLike,
    counts: Sequence[int],
    critical: npt.ArrayLike,
    differs: npt.ArrayLike | None = None,
    clusters: Clusters | None = None,
) -> Looks:
    """Return the mean difference after each count of queries, with an interval that holds at all looks together.

    Args:
        values: [..., num_queries], per-query differences in the random order in which queries come.
        counts: [num_looks] ascending, at least 2 and at most num_queries: after how many queries one looks.
        critical: [num_looks], half-widths in standard errors, from `critical_values`.
        differs: [..., num_queries], the queries that count for `MIN_DIFFERENT` (None: those whose value is not 0).
        clusters: [at least num_queries], whose spread and number count, as one looks after whole ones (None: each
            query by itself).
    """
    differences, ends = np.asarray(values, np.float64), np.asarray(counts, np.int64)
    means = np.cumsum(differences, axis=-1)[..., ends - 1] / ends
    is_different = differences != 0 if differs is None else np.asarray(differs, np.bool_)
    if clusters is None:
        units, num_different = ends, np.cumsum(is_different, axis=-1)[..., ends - 1]
        deviations = np.cumsum(differences**2, axis=-1)[..., ends - 1] - ends * means**2
    else:
        so_far = clusters[: differences.shape[-1]]
        units, num_different, deviations = _of_clusters(differences, is_different, so_far, ends, means)
    degrees = np.maximum(units - 1, 1)
    spreads = np.sqrt(np.maximum(deviations, 0) / degrees)
    # Student's quantile of the same tail: the spread is estimated too
    tails = stats.norm.sf(np.asarray(critical, np.float64))
    with np.errstate(invalid="ignore"):
        halves = stats.t.isf(tails, degrees) * spreads / np.sqrt(units) * (units / ends)
    # where all are equal so far, as wide as the share of other ones that may not have come yet (as in `PairedTest`)
    unseen = (1 - (2 * tails) ** (1 / units)) * (np.maximum(1.0, np.abs(means)) + np.abs(means))
    halves = np.where(deviations <= SAME * ends * means**2, unseen, halves)
    halves = np.where(num_different >= MIN_DIFFERENT, halves, np.inf)
    return Looks(means=means, lows=means - halves, highs=means + halves)


def _of_clusters(
    differences: Floats,
    is_different: npt.NDArray[np.bool_],
    clusters: Clusters,
    ends: Clusters,
    means: Floats,
) -> tuple[Clusters, Clusters, Floats]:
    """Return, at each look, the clusters so far, those that differ, and the squares around the mean.

    What a cluster's sum is above its number of queries times the mean is squared.
    """
    starts = np.flatnonzero(np.diff(clusters, prepend=-1))
    units = np.searchsorted(starts, ends)
    sums, sizes = np.add.reduceat(differences, starts, axis=-1), np.diff(starts, append=len(clusters))
    squares, products, weights = (
        np.cumsum(column, axis=-1)[..., units - 1] for column in (sums**2, sums * sizes, sizes**2)
    )
    changed = np.logical_or.reduceat(is_different, starts, axis=-1)
    deviations = squares - 2 * means * products + means**2 * weights
    return units, np.cumsum(changed, axis=-1)[..., units - 1], deviations


def critical_values(boundary: str, counts: Sequence[int], alpha: float) -> Floats:
    """Half-widths in standard errors such that the intervals of all looks together hold with 1 - alpha: [num_looks].

    ``boundary`` is a key of `BOUNDARIES`; ``counts`` are as for `look`, up to the last possible look.
    """
    return _critical(boundary, tuple(counts), alpha)


@functools.lru_cache(maxsize=1 << 12)
def _critical(boundary: str, counts: tuple[int, ...], alpha: float) -> Floats:
    return BOUNDARIES[boundary](np.array(counts, np.float64), alpha)


def largest_divisor(
    values: npt.ArrayLike,
    planned: Sequence[int],
    number: int,
    boundary: str,
    alpha: float,
    most: int,
    differs: npt.ArrayLike | None = None,
    clusters: Clusters | None = None,
) -> int:
    """Return the largest k up to ``most`` for which the ``number``-th look is significant at alpha / k; 0 if none is.

    ``values`` [num_queries], ``differs`` and ``clusters`` are as for `look`, ``planned`` and ``boundary`` as for
    `critical_values`. Looks count from 1. ``alpha`` is the error of the whole family of ``most`` tests.
    """
    for k in range(most, 0, -1):
        critical = critical_values(boundary, planned, alpha / k)[:number]
        if look(values, planned[:number], critical, differs, clusters).is_significant[-1]:
            return k
    return 0


def rejected(divisors: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Return the hypotheses that Holm's procedure rejects over group-sequential tests: [num_hypotheses].

    The smallest level at which a test is significant is compared with alpha / m, the next with alpha / (m - 1), and so
    on (Holm 1979). At each level the boundaries of all looks together have that error, so each intersection of true
    hypotheses is tested by Bonferroni at alpha, whatever the data make one stop: a closed test, which keeps the
    family-wise error (Ye, Li, Liu & Yao, Statistics in Medicine 2013). Splitting alpha evenly would be simpler and
    reject less. The divisor of a hypothesis is the largest `largest_divisor` of its looks so far.
    """
    levels = np.asarray(divisors, np.int64)
    order = np.argsort(-levels, kind="stable")
    is_rejected = np.zeros(len(levels), np.bool_)
    is_rejected[order] = np.logical_and.accumulate(levels[order] >= np.arange(len(levels), 0, -1))
    return is_rejected


def _mixture(counts: Floats, alpha: float) -> Floats:
    """Robbins' normal mixture: valid at every number of queries, planned or not.

    Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas, Time-uniform central limit theory and asymptotic confidence sequences
    (Annals of Statistics 2024), theorem 2.2; narrowest at half of the last count.
    """
    best = -float(special.lambertw(-(alpha**2) / math.e, -1).real) - 1
    information = best * counts / (counts[-1] / 2)
    return np.asarray(np.sqrt((1 + 1 / information) * np.log((1 + information) / alpha**2)))


def _late(fractions: Floats, alpha: float) -> Floats:
    """Spends almost nothing early, as O'Brien & Fleming do (Lan & DeMets, Biometrika 1983, alpha_1, on each side)."""
    return np.asarray(4 * stats.norm.sf(stats.norm.isf(alpha / 4) / np.sqrt(fractions)))


def _even(fractions: Floats, alpha: float) -> Floats:
    """Spends evenly, as Pocock does (Lan & DeMets 1983, alpha_2)."""
    return np.asarray(alpha * np.log1p((math.e - 1) * fractions))


def _spending(spent: Callable[[Floats, float], Floats]) -> Callable[[Floats, float], Floats]:
    """Each look's critical value, from how much of alpha is spent by then.

    The sum so far is a Brownian motion seen at the looks; its density on the way, where no bound has been crossed, goes
    from look to look (Armitage, McPherson & Rowe, JRSS A 1969). The bounds give repeated intervals too (Jennison &
    Turnbull, JRSS B 1989).
    """

    def critical(counts: Floats, alpha: float) -> Floats:
        times = counts / counts[-1]
        steps = np.diff(spent(times, alpha), prepend=0.0)
        values, grid, density, before = [], np.zeros(1), np.ones(1), 0.0
        for time, step in zip(times, steps, strict=True):
            spread = math.sqrt(time - before)
            bound = _bound(grid, density, spread, step) if step > NEVER_SPENT else 10.0 * math.sqrt(time)
            values.append(bound / math.sqrt(time))
            after = np.linspace(-bound, bound, NUM_POINTS)
            moves = stats.norm.pdf((after[:, None] - grid) / spread) / spread
            grid, density, before = after, _integral(moves * density, grid), time
        return np.array(values)

    return critical


def _bound(grid: Floats, density: Floats, spread: float, step: float) -> float:
    """Return the bound that the motion exceeds, on either side, with the probability that this look may spend."""

    def excess(bound: float) -> float:
        return 2 * float(_integral(density * stats.norm.sf((bound - grid) / spread), grid)) - step

    return float(optimize.brentq(excess, 0.0, float(grid[-1]) + 10 * spread))


def _integral(values: Floats, grid: Floats) -> Floats:
    """Over the grid; the start is one point with all the mass."""
    return np.asarray(values[..., 0] if len(grid) == 1 else integrate.simpson(values, x=grid))


BOUNDARIES: dict[str, Callable[[Floats, float], Floats]] = {
    "late": _spending(_late),
    "even": _spending(_even),
    "mixture": _mixture,
}
"""How critical values fall from look to look."""
