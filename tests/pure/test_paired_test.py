"""Sign tests and sign flips of paired differences, and intervals that agree with them; against scipy and by hand."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paired import flip_p_value, holm_by_hand
from scipy import stats

from erag_ray.extras.gate.decide import p_above
from erag_ray.measures.agreement import Family, paired_test

Floats = npt.NDArray[np.float64]
KINDS = {
    "binary": [-1.0, 0.0, 1.0],
    "halves": [-1.0, -0.5, 0.0, 0.5, 1.0],
    "thirds": [-1.0, -0.6666666667, -0.3333333333, 0.0, 0.3333333333, 0.6666666667, 1.0],
    "any": [-0.91, -0.4, -0.13, 0.0, 0.07, 0.29, 0.4, 0.83],
    "not within 1": [-30.0, -2.5, 0.0, 4.0, 17.0],
}


@given(
    st.sampled_from(list(KINDS.values())).flatmap(
        lambda kind: st.lists(st.sampled_from(kind), min_size=1, max_size=11)
    )
)
def test_the_p_value_is_the_share_of_all_flips(differences: list[float]) -> None:
    assert paired_test(np.array(differences)).p_value == pytest.approx(flip_p_value(differences))


@given(st.integers(0, 3000), st.integers(0, 400), st.integers(0, 3000))
def test_scores_of_0_and_1_have_the_exact_sign_test(won: int, lost: int, same: int) -> None:
    if not won + lost + same:
        return
    test = paired_test(np.repeat([1.0, -1.0, 0.0], [won, lost, same]))
    expected = stats.binomtest(won, won + lost).pvalue if won + lost else 1.0
    # scipy returns 0 for some below 1e-250
    assert test.p_value == pytest.approx(expected, rel=1e-9, abs=1e-250)


def all_flips(values: npt.NDArray[np.int64]) -> float:
    """The share of all flips of whole numbers whose sum is as far from 0: by the distribution of the negative ones."""
    sizes, shares = np.abs(values), np.ones(1)
    for size in sizes:
        shares = (np.pad(shares, (size, 0)) + np.pad(shares, (0, size))) / 2
    return min(1.0, 2 * float(shares[: (sizes.sum() - abs(values.sum())) // 2 + 1].sum()))


# sizes of differences: whole numbers, and what they are divided by
SIZES: dict[str, tuple[int, Callable[[np.random.Generator, int], npt.NDArray[np.int64]]]] = {
    "fifths": (5, lambda generator, count: generator.integers(1, 6, count)),
    "thirds": (3, lambda generator, count: generator.integers(1, 4, count)),
    "f1": (210, lambda generator, count: generator.choice([210, 105, 140, 84, 168, 60], count)),
    "any": (999, lambda generator, count: generator.integers(1, 1999, count)),
    # as of few questions that were read, and many that only an auxiliary label knows
    "lumpy": (
        999,
        lambda generator, count: np.where(np.arange(count) < 6, 999, generator.integers(10, 40, count)),
    ),
}


@pytest.mark.parametrize(
    ("kind", "least_count", "most_count", "tolerance"),
    [
        ("fifths", 27, 128, 1e-9),
        ("thirds", 27, 128, 1e-9),
        ("f1", 27, 128, 0.02),
        ("any", 27, 128, 0.01),
        ("lumpy", 27, 128, 0.05),
        ("lumpy", 129, 300, 0.05),
        ("fifths", 129, 300, 0.01),
        ("thirds", 129, 300, 0.01),
        ("f1", 129, 300, 0.05),
        ("any", 129, 300, 0.01),
    ],
)
def test_the_tail_of_many_differences_is_near_that_of_all_flips(
    kind: str, least_count: int, most_count: int, tolerance: float
) -> None:
    """For p-values from 1e-5 to 1; from 129 differences on, by the saddlepoint approximation but for the lumpy ones."""
    generator, (unit, draw) = np.random.default_rng(7), SIZES[kind]
    for number in range(40):
        sizes = draw(generator, int(generator.integers(least_count, most_count + 1)))
        values = sizes * np.where(generator.random(len(sizes)) < 0.5 + 0.4 * number / 40, 1, -1)
        expected = all_flips(values)
        if expected >= 1e-5:
            assert paired_test(values / unit).p_value == pytest.approx(expected, rel=tolerance), number


@st.composite
def columns(draw: st.DrawFn) -> Floats:
    kind = draw(st.sampled_from(list(KINDS.values())))
    count, share = draw(st.integers(1, 60)), draw(st.floats(0, 1))
    weights = np.array(
        [share if value > 0 else 1 - share if value < 0 else draw(st.floats(0, 1)) for value in kind]
    )
    generator = np.random.default_rng(draw(st.integers(0, 1000)))
    return generator.choice(kind, count, p=(weights + 1e-9) / (weights + 1e-9).sum())


@given(columns(), st.sampled_from([0.2, 0.1, 0.05, 0.01, 0.05 / 561]), st.sampled_from([1, 5]))
def test_an_interval_excludes_0_exactly_if_significant(column: Floats, alpha: float, size: int) -> None:
    clusters = np.minimum(np.arange(len(column)) // size, 3) if size > 1 else None  # the last is the largest
    test, near = paired_test(column, clusters), 1e-8 if size > 1 else 1e-9  # scaled sums are rounded
    low, high = test.interval(alpha)
    assert max(-low, high) <= max(1.0, np.abs(column).max())
    assert (low > 0 or high < 0) == (test.p_value <= alpha)
    assert low - near <= test.mean <= high + near
    wider = test.interval(alpha / 2)
    assert wider[0] - near <= low <= high <= wider[1] + near
    mirrored = paired_test(-column, clusters).interval(alpha)
    assert mirrored == pytest.approx((-high, -low), abs=1e-9)


def test_intervals_of_known_cases() -> None:
    # Clopper & Pearson: of 4 wins and no loss the share of wins is above .398; of 50, at most 19.2 % differ
    four = paired_test(np.repeat([1.0, 0.0], [4, 46]))
    most = stats.binomtest(4, 50).proportion_ci(0.95, method="exact").high
    assert four.p_value == 0.125
    assert four.interval(0.05) == pytest.approx(((2 * 0.025**0.25 - 1) * most, most))
    # no difference: the largest share that differs, each way
    none = paired_test(np.zeros(149))
    assert none.interval(0.1) == pytest.approx((0.05 ** (1 / 149) - 1, 1 - 0.05 ** (1 / 149)))
    # differences whose sum is 0, up to the digits that rounding takes from thirds
    thirds, quarters = (paired_test(np.round(np.array([1, 1, -2, 0] * 4) / n, 10)) for n in (3, 4))
    assert thirds.interval(0.05) == pytest.approx([4 / 3 * end for end in quarters.interval(0.05)])
    # many differences: the ordinary interval of a mean
    generator = np.random.default_rng(0)
    many = np.round(generator.normal(0.1, 0.5, 2000), 10)
    t = stats.ttest_1samp(many, 0).confidence_interval(0.95)
    assert paired_test(many).interval(0.05) == pytest.approx((t.low, t.high), abs=1e-3)


@pytest.mark.parametrize(("won", "lost", "count"), [(0.1, 0.02, 60), (0.3, 0.1, 40), (0.04, 0.04, 200)])
def test_intervals_cover_the_difference(won: float, lost: float, count: int) -> None:
    generator, missed, ends = np.random.default_rng(1), 0, {}
    for row in generator.multinomial(count, [won, lost, 1 - won - lost], size=2000):
        key = tuple(row)
        if key not in ends:
            ends[key] = paired_test(np.repeat([1.0, -1.0, 0.0], row)).interval(0.05)
        missed += not ends[key][0] <= won - lost <= ends[key][1]
    # 5 % and two standard errors
    assert missed / 2000 <= 0.06


def test_a_one_sided_p_value_is_the_level_at_which_the_bound_passes() -> None:
    test = paired_test(np.repeat([1.0, -1.0, 0.0], [20, 8, 172]))
    for value in (-0.05, 0.0, 0.03):
        p = p_above(test, value)
        assert test.interval(2 * p * 1.01)[0] > value >= test.interval(2 * p * 0.99)[0]
    assert p_above(test, 0.0) == pytest.approx(test.p_value / 2, rel=1e-6)
    assert p_above(test, 0.5) == 1.0


@pytest.mark.parametrize(
    ("won", "lost", "same"), [(10, 2, 88), (6, 0, 94), (30, 20, 50), (20, 10, 70), (3, 1, 6), (2, 0, 1)]
)
def test_questions_needed_have_the_power_that_they_promise(won: int, lost: int, same: int) -> None:
    needed = paired_test(np.repeat([1.0, -1.0, 0.0], [won, lost, same])).num_needed(0.05) or 0
    shares = np.array([won, lost, same]) / (won + lost + same)
    drawn = np.random.default_rng(2).multinomial(needed, shares, size=1000)
    significant = [stats.binomtest(int(w), int(w + n)).pvalue <= 0.05 for w, n, _ in drawn if w + n]
    assert 0.77 < sum(significant) / 1000 < 0.95
    assert paired_test(np.array([1.0, -1.0])).num_needed(0.05) is None
    assert paired_test(np.array([0.5, -0.5] * 20 + [1e-4, -1e-4 + 1e-8])).num_needed(0.05) == 10**12


# --- families ---


@given(st.integers(0, 1000), st.integers(2, 6), st.integers(3, 12), st.integers(0, 4))
def test_a_family_is_corrected_by_holm_and_copies_change_nothing(
    seed: int, num: int, count: int, copies: int
) -> None:
    generator = np.random.default_rng(seed)
    distinct = [generator.choice([-1.0, 0.0, 0.5, 1.0], count) for _ in range(num)]
    echoes = [distinct[index % num] * (-1) ** index for index in range(copies)]
    family = Family()
    for column in [*distinct, *echoes]:
        family.add(column)
    tests = family.adjusted(0.05)
    p_values = [one.test.p_value for one in tests]
    assert p_values == pytest.approx([flip_p_value(column) for column in [*distinct, *echoes]])
    expected = holm_by_hand([*map(list, distinct), *map(list, echoes)], p_values)
    assert [one.p_adjusted for one in tests] == pytest.approx(expected)
    assert expected[:num] == holm_by_hand([*map(list, distinct)], p_values[:num])
    for one in tests:
        low, high = one.test.interval(one.level)
        assert (one.p_adjusted <= 0.05) == (one.test.p_value <= one.level) == (low > 0 or high < 0)


def test_the_smallest_p_values_have_a_level() -> None:
    family = Family()
    for column in (np.ones(1074), np.eye(1074)[0]):
        family.add(column)
    for one in family.adjusted(0.05):
        assert (one.test.p_value <= one.level) == (one.p_adjusted <= 0.05)
        assert one.test.num_needed(one.level)


@pytest.mark.parametrize(
    ("num_runs", "count", "num_sets"), [(2, 40, 400), (10, 60, 200), (34, 100, 60), (200, 60, 6)]
)
def test_equal_runs_are_seldom_told_apart(num_runs: int, count: int, num_sets: int) -> None:
    """The family-wise error: in at most 5 % of data sets any two of several equal runs differ."""
    wrong = 0
    for number in range(num_sets):
        generator = np.random.default_rng([num_runs, number])
        difficulty = generator.random((count, 1))
        runs = (generator.random((count, num_runs)) < difficulty).astype(float)
        family = Family()
        for a in range(num_runs):
            for b in range(a):
                family.add(runs[:, a] - runs[:, b])
        wrong += any(one.p_adjusted <= 0.05 for one in family.adjusted(0.05))
    assert wrong <= stats.binom.isf(0.001, num_sets, 0.05)
