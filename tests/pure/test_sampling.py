"""A sample of the readings gives, in expectation, what all of them give; looking often finds nothing that is not."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from erag_ray.extras.prediction_powered import LabelSample, powered_values
from erag_ray.extras.sequential_test import design
from erag_ray.extras.sequential_test.looks import BOUNDARIES, critical_values, largest_divisor, look, rejected
from erag_ray.measures.agreement import holm

Floats = npt.NDArray[np.float64]
weights_of_pairs = hnp.arrays(
    np.float64, st.integers(1, 30), elements=st.just(0.0) | st.floats(1e-6, 100)
).filter(np.any)


@given(weights_of_pairs, st.floats(0.01, 1), st.floats(0.01, 1))
def test_probabilities_add_up_to_the_budget_and_grow_with_it(
    weights: Floats, share: float, more: float
) -> None:
    low, high = sorted((share * len(weights), more * len(weights)))
    few, many = design.probabilities(weights, low), design.probabilities(weights, high)
    assert few.sum() == pytest.approx(min(low, np.count_nonzero(weights)))
    assert ((few >= 0) & (few <= many + 1e-12) & (many <= 1)).all()
    assert (few[weights == 0] == 0).all()
    below = (few < 1) & (weights > 1e-3)
    ratios = few[below] / weights[below]
    np.testing.assert_allclose(ratios, ratios[:1].repeat(len(ratios)), rtol=1e-9)


def test_a_larger_budget_reads_all_that_a_smaller_one_read_and_more() -> None:
    queries, documents = ["q1"] * 500 + ["q2"] * 500, [str(number) for number in range(500)] * 2
    numbers = design.random_numbers(queries, documents, seed=4)
    weights = design.rank_weights("DCG", np.tile(np.arange(1, 51), 20)[:, None], 50)[:, 0]
    drawn = [numbers < design.probabilities(weights, budget) for budget in (100, 300, 1000)]
    assert (drawn[0] <= drawn[1]).all()
    assert drawn[2].all()
    assert [part.sum() for part in drawn[:2]] == pytest.approx([100, 300], abs=40)


def test_random_numbers_are_even_and_a_pairs_own() -> None:
    queries, documents = ["a"] * 3000, [str(number) for number in range(3000)]
    numbers = design.random_numbers(queries, documents)
    assert stats.kstest(numbers, "uniform").pvalue > 0.01
    np.testing.assert_array_equal(design.random_numbers(queries[::-1], documents[::-1]), numbers[::-1])
    assert (design.random_numbers(queries, documents, seed=1) != numbers).all()
    assert design.random_numbers(["a:b", "a"], ["c", "b:c"])[0] != design.random_numbers(["a"], ["b:c"])[0]


def test_importance_is_what_two_runs_differ_by() -> None:
    ranks = np.array([[1, 2], [3, 1], [2, 0], [0, 4], [9, 9]])
    third = 1 / 3
    np.testing.assert_allclose(
        design.rank_weights("P", ranks, 3), [[third, third], [third, third], [third, 0], [0, 0], [0, 0]]
    )
    # the first two documents are in both lists: they cannot change the difference of P@3
    np.testing.assert_allclose(design.importance(design.rank_weights("P", ranks, 3)), [0, 0, third, 0, 0])
    discounts = 1 / np.log2([2, 3, 4])
    np.testing.assert_allclose(
        design.importance(design.rank_weights("DCG", ranks, 3)),
        [discounts[0] - discounts[1], discounts[0] - discounts[2], discounts[1], 0, 0],
    )


@pytest.mark.parametrize("name", design.RANK_WEIGHTS)
def test_a_difference_is_right_although_what_both_runs_hold_is_never_read(name: str) -> None:
    """Two lists of three of five documents; the third is in both, at other ranks. All samples, by their probability."""
    labels = np.array([1.0, 0, 1, 1, 0.5])
    ranks = np.array([[1, 0], [2, 0], [3, 1], [0, 2], [0, 3]])
    weights = design.rank_weights(name, ranks, 3)
    chances = design.probabilities(design.importance(weights), 2.5)
    assert (chances[2] == 0) == (name == "P")
    drawn = np.array(list(itertools.product([0, 1], repeat=5)))
    shares = np.where(drawn, chances, 1 - chances).prod(axis=1)
    estimates = [
        powered_values(
            LabelSample(
                questions=np.zeros(5, np.int64),
                weights=weights[:, 0] - weights[:, 1],
                probabilities=chances,
                is_read=is_read == 1,
                labels=np.where(is_read, labels, np.nan),
                auxiliary=np.zeros(5),
            ),
            1,
        ).from_labels[0]
        for is_read in drawn[shares > 0]
    ]
    first, second = (labels[own] @ design.RANK_WEIGHTS[name](3) for own in ([0, 1, 2], [2, 3, 4]))
    assert shares[shares > 0] @ estimates == pytest.approx(first - second, abs=1e-12)


def test_critical_values_are_the_published_ones() -> None:
    """DeMets & Lan, Statistics in Medicine 13 (1994): five looks, alpha .05 two-sided; one look is an ordinary test."""
    looks = [20, 40, 60, 80, 100]
    published = {"late": [4.877, 3.357, 2.680, 2.290, 2.031], "even": [2.438, 2.427, 2.410, 2.397, 2.386]}
    for name, values in published.items():
        np.testing.assert_allclose(critical_values(name, looks, 0.05), values, atol=1e-3)
        assert critical_values(name, [50], 0.05) == pytest.approx([stats.norm.isf(0.025)], abs=1e-4)


def test_the_mixture_is_narrowest_at_half_of_the_last_count() -> None:
    counts = np.arange(10, 401, 10)
    information = critical_values("mixture", counts.tolist(), 0.05) / np.sqrt(counts)
    tuned = critical_values("mixture", [200, 400], 0.05)[0]
    others = [critical_values("mixture", [200, last], 0.05)[0] for last in (250, 300, 600, 1000)]
    assert tuned < min(others)
    assert (np.diff(information) < 0).all()


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_looking_often_misses_the_truth_no_more_often_than_alpha(boundary: str) -> None:
    """Two equal runs, expanded by 1 / .3: skewed, mostly 0; looked at 15 times."""
    generator = np.random.default_rng(6)
    drawn = generator.random((2000, 300)) < 0.3
    values = generator.choice([-1, 0, 0, 1], (2000, 300)) * drawn / 0.3
    counts = list(range(20, 301, 20))
    seen = look(values, counts, critical_values(boundary, counts, 0.05))
    assert seen.is_significant.any(axis=1).mean() < 0.062
    naive = look(values, counts, np.full(15, stats.norm.isf(0.025)))
    assert naive.is_significant.any(axis=1).mean() > 0.15


def test_a_look_says_who_is_better_or_that_the_difference_is_known_well_enough() -> None:
    counts = [20, 100]
    critical = critical_values("late", counts, 0.05)
    better = look(np.tile([0.3, 0.5, 0.7, 0.5], 25), counts, critical)
    assert better.is_significant.tolist() == [True, True]
    assert better.means == pytest.approx([0.5, 0.5])
    equal = look(np.tile([0.1, -0.1], 50), counts, critical)
    assert equal.is_significant.tolist() == [False, False]
    assert equal.is_settled(0.03).tolist() == [False, True]
    half = (equal.highs - equal.lows)[1] / 2
    spread = np.tile([0.1, -0.1], 50).std(ddof=1)
    assert half == pytest.approx(stats.t.isf(stats.norm.sf(critical[1]), 99) * spread / 10, rel=1e-9)


def test_where_hardly_a_query_differs_or_few_agree_nothing_is_settled() -> None:
    critical = critical_values("even", [50, 100], 0.05)
    nine, ten = (look(np.arange(100) < count, [50, 100], critical).is_settled(0.5) for count in (9, 10))
    assert (nine.any(), ten.all()) == (False, True)
    # a query that outweighs nine such ones may not have come yet
    same = look(np.full(100, -0.1), [20, 100], critical_values("late", [20, 100], 0.05))
    assert same.is_significant.tolist() == [False, True]


# --- several hypotheses ---


@given(
    hnp.arrays(np.float64, st.integers(1, 12), elements=st.floats(1e-6, 1)),
    st.sampled_from([0.01, 0.05, 0.2]),
)
def test_with_one_look_the_rejected_are_those_of_holm(p_values: Floats, alpha: float) -> None:
    count = len(p_values)
    divisors = [max((k for k in range(1, count + 1) if p <= alpha / k), default=0) for p in p_values]
    np.testing.assert_array_equal(rejected(divisors), holm(p_values) <= alpha)


def test_a_divisor_is_the_largest_at_which_the_look_is_significant() -> None:
    values = np.random.default_rng(4).normal(0.4, 1, 100)
    counts = [50, 100]
    divisors = [largest_divisor(values, counts, number, "even", 0.05, 40) for number in (1, 2)]
    levels = [look(values, counts, critical_values("even", counts, 0.05 / k)) for k in range(1, 41)]
    assert divisors == sum(level.is_significant for level in levels).tolist()
    assert 0 < divisors[1] < 40, "an example that tells something"


def test_three_equal_pairs_are_called_different_together_as_often_as_alpha_says() -> None:
    """300 sets of three differences without a true one, three looks; the interval of 5 % is 2.5 to 7.5 %."""
    generator = np.random.default_rng(6)
    counts, any_rejected = [30, 60, 90], 0
    for values in generator.normal(size=(300, 3, 90)):
        best = [
            max(largest_divisor(one, counts, number, "even", 0.05, 3) for number in (1, 2, 3))
            for one in values
        ]
        any_rejected += rejected(best).any()
    assert any_rejected / 300 < 0.075
