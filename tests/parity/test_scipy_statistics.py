"""Agreement against scipy: values, p-values, resamples written out, intervals; ceilings by trying every order."""

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats

from erag_ray.measures.agreement import STATISTICS, agree, mean_intervals, permutations, resample_weights

pytestmark = pytest.mark.parity

SCIPY: dict[str, Any] = {
    "kendall_tau_b": lambda x, y: stats.kendalltau(x, y, method="asymptotic"),
    "spearman_rho": stats.spearmanr,
}
both_statistics = pytest.mark.parametrize("statistic", list(STATISTICS))


def _columns(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Correlated columns: some binary, some with many ties, some without."""
    random = np.random.default_rng(seed)
    num_queries = int(random.integers(3, 80))
    hidden = random.normal(size=num_queries)
    noisy = hidden + random.normal(size=num_queries)
    x = [hidden, hidden.round(), (hidden > 0).astype(float), hidden.round(1)][seed % 4]
    y = [noisy, noisy.round(), (noisy > 1).astype(float)][seed % 3]
    x[0], y[0] = x.max() + 1, y.min() - 1
    return x, y


@both_statistics
@pytest.mark.parametrize("seed", range(60))
def test_value(statistic: str, seed: int) -> None:
    x, y = _columns(seed)
    assert agree(x, y, statistic).value == pytest.approx(SCIPY[statistic](x, y).statistic, abs=1e-12)


def _permutation_test(statistic: str, x: np.ndarray, y: np.ndarray, num: float) -> float:
    """scipy's; it draws orders of x. Values of equal size must tie, and scipy's are sums of rounded numbers."""
    p_value: float = stats.permutation_test(
        (x,),
        lambda permuted: abs(round(SCIPY[statistic](permuted, y).statistic, 10)),
        permutation_type="pairings",
        alternative="greater",
        vectorized=False,
        n_resamples=num,
        rng=np.random.default_rng(4),
    ).pvalue
    return p_value


@both_statistics
@pytest.mark.parametrize("seed", range(12))
def test_p_value_of_few_is_that_of_all_orders(statistic: str, seed: int) -> None:
    x, y = (column[:6] for column in _columns(seed + 100))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        x, y = np.array([0.0, 1, 1, 2, 3, 3]), np.array([1.0, 0, 0, 1, 1, 1])
    # all 720, as scipy enumerates them where it is asked for at least as many
    expected = _permutation_test(statistic, x, y, np.inf)
    assert agree(x, y, statistic, orders=permutations(len(x))).p_value == pytest.approx(expected, abs=1e-12)


@both_statistics
@pytest.mark.parametrize("seed", range(8))
def test_p_value_of_many_against_scipys(statistic: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    hidden = random.normal(size=40)
    noisy = 0.3 * hidden + random.normal(size=40)
    x = [hidden, hidden.round(), (hidden > 0).astype(float), hidden.round(1)][seed % 4]
    y = [noisy, noisy.round(), (noisy > 0.5).astype(float)][seed % 3]
    result = agree(x, y, statistic, orders=permutations(40, 4000, seed=5))
    # both are shares of thousands: three standard errors of their difference are at most .055
    assert result.p_value == pytest.approx(_permutation_test(statistic, x, y, 1500), abs=0.055)


@both_statistics
@pytest.mark.parametrize("seed", range(12))
def test_interval_is_made_of_scipys_values_of_every_resample(statistic: str, seed: int) -> None:
    x, y = _columns(seed)
    weights = resample_weights(len(x), 60, seed)
    values = []
    for row in weights:
        drawn_x, drawn_y = np.repeat(x, row), np.repeat(y, row)
        if np.ptp(drawn_x) > 0 and np.ptp(drawn_y) > 0:
            values.append(SCIPY[statistic](drawn_x, drawn_y).statistic)
    result = agree(x, y, statistic, weights, confidence=0.9)
    if len(values) < 57:  # 95 % of 60
        assert result.low is None
    else:
        tail = stats.norm.cdf(stats.t.ppf(0.05, len(x) - 1) * np.sqrt(len(x) / (len(x) - 1)))
        assert (result.low, result.high) == pytest.approx(np.quantile(values, [tail, 1 - tail]), abs=1e-12)


@both_statistics
def test_more_cells_than_a_block(statistic: str) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=1300).round(3)
    y = (x + random.normal(size=1300)).round(2)
    weights = resample_weights(1300, 3)
    values = [SCIPY[statistic](np.repeat(x, row), np.repeat(y, row)).statistic for row in weights]
    # the 0 % and 100 % ends of a nearly certain interval are the smallest and largest resample
    result = agree(x, y, statistic, weights, confidence=1 - 1e-12)
    assert result.value == pytest.approx(SCIPY[statistic](x, y).statistic, abs=1e-12)
    assert (result.low, result.high) == pytest.approx((min(values), max(values)), abs=1e-9)


def test_mean_and_paired_difference_against_scipys_bootstrap() -> None:
    random = np.random.default_rng(5)
    a, b = random.random(80), random.random(80)
    weights = resample_weights(80, 4000, seed=6)
    for values in (a, a - b):
        (result,) = mean_intervals(values[:, None], weights)
        expected = stats.bootstrap(
            (values,), np.mean, method="percentile", n_resamples=4000, rng=np.random.default_rng(7)
        ).confidence_interval
        assert result == pytest.approx((values.mean(), expected.low, expected.high), abs=0.01)


@both_statistics
@pytest.mark.parametrize("size", [3, 4, 5, 6, 7])
def test_ceiling_is_the_best_of_all_orders(statistic: str, size: int) -> None:
    random = np.random.default_rng(size)
    x, y = random.integers(0, 4, size=size), np.array([0, 1, *random.integers(0, 3, size=size - 2)])
    x[:2] = [0, 3]
    best = max(
        SCIPY[statistic](np.array(order), y).statistic for order in set(itertools.permutations(x.tolist()))
    )
    assert agree(x, y, statistic).ceiling == pytest.approx(best, abs=1e-12)
