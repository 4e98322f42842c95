"""A sample of the readings gives, in expectation, what all of them give; looking often finds nothing that is not."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from erag_ray.measures import Lists, compute, own_ideal
from erag_ray.sequential_test.design import importance, is_drawn, probabilities, random_numbers
from erag_ray.sequential_test.estimates import ESTIMATES, estimate, mean_interval
from erag_ray.sequential_test.looks import BOUNDARIES, critical_values, look
from erag_ray.sequential_test.sampled import Sampled

Floats = npt.NDArray[np.float64]
CHANCES = np.array([0.9, 0.3, 1.0, 0.15, 0.5, 0.7])
LABELS = {
    "binary": np.array([1.0, 0, 1, 1, 0, 1]),
    "graded": np.array([0.25, 0, 1, 0.6, 0.1, 0.9]),
    "one relevant": np.array([0.0, 0, 0, 1, 0, 0]),
    "nothing relevant": np.zeros(6),
}
UNBIASED = [name for name, item in ESTIMATES.items() if item.is_unbiased]


def every_sample(chances: Floats = CHANCES) -> tuple[npt.NDArray[np.bool_], Floats]:
    """All 64 samples of six documents, and the probability of each."""
    drawn = np.array(list(itertools.product([False, True], repeat=6)))
    return drawn, np.where(drawn, chances, 1 - chances).prod(axis=1)


def expectation(
    name: str, labels: Floats, cutoff: int, *, chances: Floats = CHANCES, guesses: Floats | None = None
) -> float:
    """The estimate over all samples, each with its probability; what was not read is NaN."""
    drawn, shares = every_sample(chances)
    lists = Sampled(
        labels=np.where(drawn, labels, np.nan),
        weights=drawn / chances,
        guesses=None if guesses is None else np.broadcast_to(guesses, drawn.shape),
    )
    return float(shares @ estimate(name, lists, cutoff))


def read_all(labels: Floats, lengths: npt.NDArray[np.int64] | None = None) -> Sampled:
    """Everything was read."""
    depth = labels.shape[-1]
    inside = np.ones(labels.shape) if lengths is None else np.arange(depth) < lengths[:, None]
    return Sampled(labels=labels, weights=inside.astype(np.float64))


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("name", UNBIASED)
@pytest.mark.parametrize("cutoff", [1, 4, 6])
def test_over_all_samples_the_sums_are_those_of_all_labels(name: str, labels: str, cutoff: int) -> None:
    wanted = estimate(name, read_all(LABELS[labels]), cutoff)
    assert expectation(name, LABELS[labels], cutoff) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("name", UNBIASED)
def test_guesses_change_no_expectation_and_right_ones_leave_no_error(name: str) -> None:
    labels, guesses = LABELS["graded"], np.array([0.5, 0.2, 0, 0.6, 0.3, 1])
    wanted = estimate(name, read_all(labels), 6)
    assert expectation(name, labels, 6, guesses=guesses) == pytest.approx(wanted, abs=1e-12)
    drawn, _ = every_sample()
    every = np.broadcast_to(labels, drawn.shape)
    told = estimate(name, Sampled(labels=every, weights=drawn / CHANCES, guesses=every), 6)
    np.testing.assert_allclose(told, wanted, atol=1e-12)


QUOTIENTS = ["AP", "nDCG"]


@pytest.mark.parametrize("name", QUOTIENTS)
@pytest.mark.parametrize("labels", ["binary", "one relevant", "nothing relevant"])
def test_quotients_are_right_where_each_document_is_read_at_least_half_of_the_time(
    name: str, labels: str
) -> None:
    chances = np.maximum(CHANCES, 0.5)
    wanted = estimate(name, read_all(LABELS[labels]), 6)
    assert expectation(name, LABELS[labels], 6, chances=chances) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("name", QUOTIENTS)
def test_below_half_a_quotient_is_right_for_one_relevant_document_and_too_high_for_more(name: str) -> None:
    wanted = estimate(name, read_all(LABELS["one relevant"]), 6)
    assert expectation(name, LABELS["one relevant"], 6) == pytest.approx(wanted, abs=1e-9)
    wanted = estimate(name, read_all(LABELS["binary"]), 6)
    assert 0.01 < expectation(name, LABELS["binary"], 6) - wanted < 0.1


def test_the_plain_quotient_is_far_too_low_where_one_document_is_relevant() -> None:
    wanted = float(estimate("nDCG_graded", read_all(LABELS["one relevant"]), 6))
    assert expectation("nDCG_graded", LABELS["one relevant"], 6) < 0.6 * wanted


def some_lists(*, binary: bool) -> tuple[Floats, npt.NDArray[np.int64], Floats]:
    """Labels [40, 8], lengths 0..8 and a pool of 12 that holds each list."""
    generator = np.random.default_rng(3)
    lengths = generator.integers(0, 9, 40)
    pool = generator.random((40, 12)) * (generator.random((40, 12)) < 0.4)
    pool = np.ceil(pool) if binary else pool
    labels = np.where(np.arange(8) < lengths[:, None], pool[:, :8], 0.0)
    return labels, lengths, pool


@pytest.mark.parametrize("cutoff", [1, 5, 8])
def test_when_all_is_read_the_estimates_are_the_measures(cutoff: int) -> None:
    for name, binary in (("P", False), ("AP", True), ("nDCG", True), ("nDCG_graded", False)):
        labels, lengths, pool = some_lists(binary=binary)
        own = estimate(name, read_all(labels, lengths), cutoff)
        np.testing.assert_allclose(
            own, compute(name.removesuffix("_graded"), own_ideal(labels, lengths), cutoff), atol=1e-12
        )
        ideal = -np.sort(-pool, axis=1)
        wanted = compute(
            name.removesuffix("_graded"), Lists(labels=labels, lengths=lengths, ideal=ideal), cutoff
        )
        pooled = estimate(name, read_all(labels, lengths), cutoff, base=read_all(pool))
        np.testing.assert_allclose(pooled, wanted, atol=1e-12)


def test_dcg_and_the_numerator_of_ap_by_hand() -> None:
    lists = read_all(np.array([1.0, 0, 1]))
    assert estimate("DCG", lists, 3) == pytest.approx(1 / np.log2(2) + 1 / np.log2(4))
    assert estimate("AP_numerator", lists, 3) == pytest.approx(1 / 1 + 2 / 3)


weights_of_pairs = hnp.arrays(
    np.float64, st.integers(1, 30), elements=st.just(0.0) | st.floats(1e-6, 100)
).filter(np.any)


@given(weights_of_pairs, st.floats(0.01, 1), st.floats(0.01, 1))
def test_probabilities_add_up_to_the_budget_and_grow_with_it(
    weights: Floats, share: float, more: float
) -> None:
    low, high = sorted((share * len(weights), more * len(weights)))
    few, many = probabilities(weights, low), probabilities(weights, high)
    assert few.sum() == pytest.approx(min(low, np.count_nonzero(weights)))
    assert ((few >= 0) & (few <= many + 1e-12) & (many <= 1)).all()
    assert (few[weights == 0] == 0).all()
    below = (few < 1) & (weights > 1e-3)
    ratios = few[below] / weights[below]
    np.testing.assert_allclose(ratios, ratios[:1].repeat(len(ratios)), rtol=1e-9)


def test_a_larger_budget_reads_all_that_a_smaller_one_read_and_more() -> None:
    queries, documents = ["q1"] * 500 + ["q2"] * 500, [str(number) for number in range(500)] * 2
    numbers = random_numbers(queries, documents, seed=4)
    weights = importance("DCG", np.tile(np.arange(1, 51), 20)[:, None], 50)
    drawn = [is_drawn(probabilities(weights, budget), numbers) for budget in (100, 300, 1000)]
    assert (drawn[0] <= drawn[1]).all()
    assert drawn[2].all()
    assert [part.sum() for part in drawn[:2]] == pytest.approx([100, 300], abs=40)


def test_random_numbers_are_even_and_a_pairs_own() -> None:
    queries, documents = ["a"] * 3000, [str(number) for number in range(3000)]
    numbers = random_numbers(queries, documents)
    assert stats.kstest(numbers, "uniform").pvalue > 0.01
    np.testing.assert_array_equal(random_numbers(queries[::-1], documents[::-1]), numbers[::-1])
    assert (random_numbers(queries, documents, seed=1) != numbers).all()
    assert random_numbers(["a:b", "a"], ["c", "b:c"])[0] != random_numbers(["a"], ["b:c"])[0]


def test_importance_is_the_largest_over_runs_or_what_two_runs_differ_by() -> None:
    ranks = np.array([[1, 2], [3, 1], [2, 0], [0, 4], [9, 9]])
    np.testing.assert_allclose(importance("P", ranks, 3), [1 / 3, 1 / 3, 1 / 3, 0, 0])
    # d1 and d2 stand in both lists: they cannot change the difference of P@3
    np.testing.assert_allclose(importance("P", ranks, 3, difference=True), [0, 0, 1 / 3, 0, 0])
    discounts = 1 / np.log2([2, 3, 4])
    np.testing.assert_allclose(
        importance("DCG", ranks, 3, difference=True),
        [discounts[0] - discounts[1], discounts[0] - discounts[2], discounts[1], 0, 0],
    )
    np.testing.assert_allclose(
        importance("AP", ranks, 4), [1 + 1 / 2 + 1 / 3 + 1 / 4] * 2 + [13 / 12, 1 / 4, 0]
    )


def test_a_difference_is_right_although_what_both_runs_hold_is_never_read() -> None:
    """Two lists of three of five documents; the third is in both, at other ranks."""
    labels = np.array([1.0, 0, 1, 1, 0.5])
    first, second = np.array([0, 1, 2]), np.array([2, 3, 4])
    ranks = np.array([[1, 0], [2, 0], [3, 1], [0, 2], [0, 3]])
    for name in ("P", "DCG"):
        chances = probabilities(importance(name, ranks, 3, difference=True), 2.5)
        assert (chances[2] == 0) == (name == "P")
        drawn = np.array(list(itertools.product([0, 1], repeat=5)))
        shares = np.where(drawn, chances, 1 - chances).prod(axis=1)
        weights = np.divide(drawn, chances, out=np.zeros(drawn.shape), where=chances > 0)
        weights = weights[shares > 0]
        every = np.broadcast_to(labels, weights.shape)
        found = [
            estimate(name, Sampled(labels=every[:, own], weights=weights[:, own]), 3)
            for own in (first, second)
        ]
        wanted = [estimate(name, read_all(labels[own]), 3) for own in (first, second)]
        assert shares[shares > 0] @ (found[0] - found[1]) == pytest.approx(wanted[0] - wanted[1], abs=1e-12)


def test_an_interval_over_queries_is_students_and_covers_what_sampling_documents_adds() -> None:
    generator = np.random.default_rng(5)
    num_sets, num_queries = 1000, 60
    quality = generator.beta(1, 3, (num_sets, num_queries, 1))
    labels = (generator.random((num_sets, num_queries, 10)) < quality).astype(np.float64)
    chances = probabilities(importance("DCG", np.arange(1, 11)[:, None], 10), 4.0)
    weights = (generator.random(labels.shape) < chances) / chances
    values = estimate("P", Sampled(labels=labels, weights=weights), 10)
    mean, low, high = mean_interval(values)
    first = stats.ttest_1samp(values[0], 0).confidence_interval()
    assert (low[0], high[0]) == pytest.approx(tuple(first))
    assert mean.mean() == pytest.approx(0.25, abs=0.005)
    assert 0.92 <= ((low <= 0.25) & (high >= 0.25)).mean() <= 0.97
    # of the labels' own spread alone the interval would be too narrow
    full = (
        labels.mean(axis=2).std(axis=1, ddof=1) / np.sqrt(num_queries) * stats.t.ppf(0.975, num_queries - 1)
    )
    assert (np.abs(mean - 0.25) <= full).mean() < 0.9


def test_critical_values_are_the_published_ones() -> None:
    """DeMets & Lan, Statistics in Medicine 13 (1994): five looks, alpha .05 two-sided; one look is an ordinary test."""
    looks = [20, 40, 60, 80, 100]
    np.testing.assert_allclose(critical_values("late", looks), [4.877, 3.357, 2.680, 2.290, 2.031], atol=1e-3)
    np.testing.assert_allclose(critical_values("even", looks), [2.438, 2.427, 2.410, 2.397, 2.386], atol=1e-3)
    for name in ("late", "even"):
        assert critical_values(name, [50]) == pytest.approx([stats.norm.isf(0.025)], abs=1e-4)


def test_the_mixture_is_narrowest_at_half_of_the_last_count() -> None:
    counts = np.arange(10, 401, 10)
    information = critical_values("mixture", counts.tolist()) / np.sqrt(counts)
    tuned = critical_values("mixture", [200, 400])[0]
    others = [critical_values("mixture", [200, last])[0] for last in (250, 300, 600, 1000)]
    assert tuned < min(others)
    assert (np.diff(information) < 0).all()


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_looking_often_misses_the_truth_no_more_often_than_alpha(boundary: str) -> None:
    """Two equal runs, expanded by 1 / .3: skewed, mostly 0; looked at 15 times."""
    generator = np.random.default_rng(6)
    drawn = generator.random((2000, 300)) < 0.3
    values = generator.choice([-1, 0, 0, 1], (2000, 300)) * drawn / 0.3
    counts = list(range(20, 301, 20))
    seen = look(values, counts, critical_values(boundary, counts))
    assert seen.is_told.any(axis=1).mean() < 0.062
    naive = look(values, counts, np.full(15, stats.norm.isf(0.025)))
    assert naive.is_told.any(axis=1).mean() > 0.15


def test_a_look_says_who_is_better_or_that_the_difference_is_known_well_enough() -> None:
    counts = [20, 100]
    critical = critical_values("late", counts)
    better = look(np.tile([0.3, 0.5, 0.7, 0.5], 25), counts, critical)
    assert better.is_told.tolist() == [True, True]
    assert better.means == pytest.approx([0.5, 0.5])
    equal = look(np.tile([0.1, -0.1], 50), counts, critical)
    assert equal.is_told.tolist() == [False, False]
    assert equal.is_settled(0.03).tolist() == [False, True]
    halves = (equal.highs - equal.lows) / 2
    spread = np.tile([0.1, -0.1], 50).std(ddof=1)
    assert halves[1] == pytest.approx(
        stats.t.isf(stats.norm.sf(critical[1]), 99) * spread / np.sqrt(100), rel=1e-9
    )


def test_where_hardly_a_query_differs_nothing_is_settled() -> None:
    values = np.zeros(100)
    values[:9] = 1.0
    seen = look(values, [50, 100], critical_values("even", [50, 100]))
    assert not seen.is_settled(0.5).any()
    values[9] = 1.0
    assert look(values, [50, 100], critical_values("even", [50, 100])).is_settled(0.5).all()


ONE = np.ones((2, 3))
WRONG: dict[str, Callable[[], object]] = {
    "budget 0": lambda: probabilities([1, 2], 0),
    "budget 3": lambda: probabilities([1, 2], 3),
    "not all 0": lambda: probabilities([0, 0], 1),
    "at least 0": lambda: probabilities([1, -1], 1),
    "unknown importance 'RR'": lambda: importance("RR", ONE, 3),
    "two runs, by P or DCG": lambda: importance("AP", np.ones((3, 2)), 3, difference=True),
    "ranks must be": lambda: importance("P", [1, 2], 3),
    "unknown estimate 'RR'": lambda: estimate("RR", Sampled(labels=ONE, weights=ONE), 3),
    "outside 1..3": lambda: estimate("P", Sampled(labels=ONE, weights=ONE), 4),
    "labels of 0 and 1": lambda: estimate("AP", Sampled(labels=ONE / 2, weights=ONE), 3),
    "takes no guesses": lambda: estimate("AP", Sampled(labels=ONE, weights=ONE, guesses=ONE), 3),
    "must be finite and at least 0": lambda: Sampled(labels=ONE * np.nan, weights=ONE),
    "weights must be": lambda: Sampled(labels=ONE, weights=ONE / 2),
    "one shape": lambda: Sampled(labels=ONE, weights=np.ones(3)),
    "guesses must be finite": lambda: Sampled(labels=ONE, weights=ONE, guesses=ONE * np.nan),
    "at least 2 queries": lambda: mean_interval([1.0]),
    "at least 2 queries with finite": lambda: mean_interval([1.0, np.nan]),
    "confidence 95": lambda: mean_interval([1.0, 2.0], 95),
    "ascending numbers": lambda: critical_values("late", [20, 20]),
    "unknown boundary": lambda: critical_values("never", [20]),
    "alpha 5 is": lambda: critical_values("late", [20], 5),
    "20 queries": lambda: look(np.zeros(19), [20], [2.0]),
    "numbers of queries, at least 2": lambda: look(np.zeros(19), [1], [2.0]),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_cannot_be_is_refused(message: str) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        WRONG[message]()
