"""Agreement: worked examples, what is undefined and says so, and intervals from given resamples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from erag_ray.measures import agreement

both_statistics = pytest.mark.parametrize("statistic", list(agreement.STATISTICS))


@both_statistics
@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        ([0, 0, 0], [0, 1, 0], "constant: every label measure is 0.0"),
        ([0, 1, 0], [1, 1, 1], "constant: every utility is 1.0"),
        ([-0.0, 0, 0], [1, 1, 1], "constant: every label measure is 0.0; constant: every utility is 1.0"),
        ([0.5], [1], "number of queries: 1, and a correlation takes at least 2"),
        ([], [], "number of queries: 0, and a correlation takes at least 2"),
    ],
)
def test_undefined_says_why(statistic: str, x: list[float], y: list[float], reason: str) -> None:
    result = agreement.agree(
        x, y, statistic, agreement.resample_weights(len(x), 20), orders=agreement.permutations(len(x))
    )
    assert (result.value, result.low, result.high, result.ceiling, result.p_value) == (None,) * 5
    assert (result.num_queries, result.reason) == (len(x), reason)


@both_statistics
@pytest.mark.parametrize("column", [[0, float("nan"), 1], [0, float("inf"), 1], [0, 1], [[0, 1, 1]]])
def test_bad_columns_are_refused(statistic: str, column: list[float]) -> None:
    with pytest.raises(ValueError, match="column"):
        agreement.agree(column, [0, 1, 1], statistic)
    with pytest.raises(ValueError, match="column"):
        agreement.agree([0, 1, 1], column, statistic)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"whole numbers \[num_resamples, 2\], got int16 \[10, 3\]"):
        agreement.agree([0, 1], [0, 1], "kendall_tau_b", agreement.resample_weights(3, 10))
    with pytest.raises(ValueError, match="float64"):
        agreement.agree([0, 1], [0, 1], "kendall_tau_b", np.ones((10, 2)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="confidence 95 is outside"):
        agreement.agree(
            [0, 1, 2], [0, 1, 1], "kendall_tau_b", agreement.resample_weights(3, 10), confidence=95
        )


def test_two_queries_have_no_p_value() -> None:
    result = agreement.agree([0, 1], [0, 1], "spearman_rho", orders=agreement.permutations(2))
    assert (result.value, result.p_value) == (1.0, None)


def _weights_with_constant_resamples(num_constant: int) -> np.ndarray:
    """100 resamples of 4 queries, of which some draw only the first, and the last only two."""
    weights = np.ones((100, 4), dtype=np.int16)
    weights[90:] = [2, 2, 0, 0]
    weights[:num_constant] = [4, 0, 0, 0]
    return weights


@both_statistics
@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        # few undefined resamples are left out
        (_weights_with_constant_resamples(5), None),
        (_weights_with_constant_resamples(6), "no interval: a column is constant in 6.0% of the resamples"),
        (agreement.resample_weights(4, 0), "no interval: no resamples"),
    ],
)
def test_many_undefined_resamples_or_none_leave_no_interval(
    statistic: str, weights: np.ndarray, reason: str | None
) -> None:
    result = agreement.agree([0, 1, 2, 3], [0, 1, 1, 1], statistic, weights)
    assert result.value is not None
    assert (result.low is None, result.high is None, result.reason) == (bool(reason), bool(reason), reason)


@both_statistics
@pytest.mark.parametrize("num_values", [2, 7, 1000])
def test_a_resample_has_one_value_whichever_stand_beside_it(statistic: str, num_values: int) -> None:
    random = np.random.default_rng(num_values)
    x, y = random.random(150).round(2), random.integers(0, num_values, size=150)
    weights = agreement.resample_weights(150, 40)
    whole = agreement.resampled_agreement(x, y, statistic, weights)
    for width in (1, 7, 16, 33):
        part = agreement.resampled_agreement(x, y, statistic, weights[:width].astype(np.int64))
        assert part.values.tolist() == whole.values[:width].tolist()


def test_orders_are_of_one_seed_and_of_few_all() -> None:
    orders = agreement.permutations(20, 50, seed=1)
    assert (np.sort(orders, axis=1) == np.arange(20)).all()
    assert (orders == agreement.permutations(20, 50, seed=1)).all()
    assert (orders != agreement.permutations(20, 50, seed=2)).any()
    # 3! less the own one
    assert agreement.permutations(3).tolist() == [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]
    assert agreement.permutations(1).shape == (0, 1)


def test_orders_of_some_queries_are_those_of_all_without_the_others() -> None:
    orders, kept = agreement.permutations(12, 30), np.ones(12, bool)
    kept[[2, 5]] = False
    some = agreement.permutations_among(orders, kept)
    assert (np.sort(some, axis=1) == np.arange(10)).all()
    names = np.flatnonzero(kept)
    assert [names[row].tolist() for row in some] == [[one for one in row if kept[one]] for row in orders]
    kept[:5] = False
    assert agreement.permutations_among(orders, kept).shape == (720 - 1, 6)


@both_statistics
@settings(max_examples=40)
@given(data=st.data())
def test_p_values_of_many_columns_are_those_of_each(statistic: str, data: st.DataObject) -> None:
    size = data.draw(st.integers(3, 12))
    column = st.lists(st.integers(0, 3), min_size=size, max_size=size)
    columns = np.array([data.draw(column) for _ in range(3)], dtype=float).T
    y = np.array(data.draw(column), dtype=float)
    orders = agreement.permutations(size, 50)[:50]
    found = agreement.permutation_p_values(columns, y, statistic, orders)
    for x, p_value in zip(columns.T, found, strict=True):
        values = [
            agreement.agree(x, y[order], statistic).value or 0.0 for order in [np.arange(size), *orders]
        ]
        assert p_value == pytest.approx(np.mean(np.abs(values) > abs(values[0]) - 1e-9))


def test_tau_b_stays_exact_where_float32_would_not() -> None:
    # two queries drawn 2^24 + 1 and 1 times, and one that disagrees with neither: all pairs concordant
    weights = np.array([[2**24 + 1, 1, 1]])
    x = np.arange(3.0)
    assert agreement.resampled_agreement(x, x, "kendall_tau_b", weights).values == [1.0]  # type: ignore[union-attr]


def test_what_is_the_same_in_all_resamples_has_no_interval() -> None:
    weights, one_cluster = (agreement.resample_weights(4, clusters=of) for of in (None, np.zeros(4, int)))
    x, other = np.arange(4.0), np.array([0.0, 2.0, 1.0, 3.0])
    for column, draws, value in ((x, weights, "1"), (-x, weights, "-1"), (other, one_cluster, "0.667")):
        result = agreement.agree(x, column, "kendall_tau_b", draws)
        assert (result.low, result.high) == (None, None)
        assert result.reason == f"no interval: the resamples of the queries are all {value}"
    # b is a less 3 everywhere: however the queries are drawn, the difference is 3
    for values in ([0.3], [], agreement.paired_differences(x, x - 3)):
        (interval,) = agreement.mean_intervals(np.reshape(values, (-1, 1)), weights[:, : len(values)])
        assert interval == (values[0] if len(values) else None, None, None)


NAN = float("nan")


@pytest.mark.parametrize(
    ("judged", "estimates", "is_wilson"),
    [
        ([0, 0, 1, NAN], [0, 0, 1, NAN], True),
        ([0, 0, NAN, NAN], [0, 0, 0, 0], True),
        ([0, 1, NAN, NAN], [0.1, 0.9, 0.3, 0.7], False),
        ([1 / 3, 0.5, 1 / 3, NAN], [1 / 3, 0.5, 1 / 3, NAN], True),
        ([-1.1, 0.5, 1 / 3, NAN], [-1.1, 0.5, 1 / 3, NAN], False),
        # one verdict by two of three people: no interval
        ([2 / 3, NAN, NAN, NAN], [2 / 3, 2 / 3, 2 / 3, 2 / 3], False),
    ],
)
def test_scores_from_0_to_1_have_wilsons_interval(
    judged: list[float], estimates: list[float], is_wilson: bool
) -> None:
    columns, weights = np.array([[judged], [estimates]], float).swapaxes(1, 2), agreement.resample_weights(4)
    for clusters in (None, np.array([0, 0, 1, 1])):
        (bootstrap,) = agreement.mean_intervals(columns[1], weights, 0.95, clusters)
        expected = agreement.share_of(columns[0, :, 0], 0.95, clusters) if is_wilson else bootstrap
        assert agreement.score_intervals(*columns, weights, 0.95, clusters) == [expected]


@pytest.mark.parametrize(("usual", "rare", "questions"), [(0.0, 0.3, 30), (0.5, 0.0, 10), (0.5, 1.0, 30)])
def test_intervals_of_graded_scores_hold_what_they_promise(usual: float, rare: float, questions: int) -> None:
    generator, held = np.random.default_rng(0), np.zeros(2)
    weights = agreement.resample_weights(questions, 400)
    for _ in range(1000):
        scores = np.where(generator.random(questions) < 0.05, rare, usual)
        intervals = agreement.share_of(scores, 0.95), *agreement.mean_intervals(scores[:, None], weights)
        held += [(low or 0) <= 0.95 * usual + 0.05 * rare <= (high or 0) for _, low, high in intervals]
    assert held[1] < 850 < 930 < held[0]


@pytest.mark.parametrize(
    ("scores", "is_signed"), [([-1, 0, 0, 1], False), ([-0.5, 0, 0], False), ([0, 0, 1, 1], True)]
)
def test_scores_down_to_minus_1_have_the_interval_of_their_place_between(
    scores: list[float], is_signed: bool
) -> None:
    column, weights = np.array([scores], float).T, agreement.resample_weights(len(scores))
    (interval,) = agreement.score_intervals(column, column, weights, 0.95, signed=[is_signed])
    assert interval == pytest.approx(2 * np.array(agreement.share_of((column[:, 0] + 1) / 2, 0.95)) - 1)


@pytest.mark.parametrize("scores", [[1.0, 0.0, 0.0], [0.3, 0.1, 0.2], [0.3, 0.3, 0.3], [0.0, 0.0, 0.0]])
def test_one_cluster_is_as_sure_as_one_query(scores: list[float]) -> None:
    _, low, high = agreement.share_of(np.array(scores), 0.95, np.zeros(3, int))
    assert high - low > 0.75, "1 query of 1: 0.79"  # type: ignore[operator]


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30))
def test_an_interval_is_in_the_range_of_its_scores_and_holds_their_mean(scores: list[float]) -> None:
    for clusters in (None, np.arange(len(scores)) // 2):
        mean, low, high = agreement.share_of(np.array(scores), 0.95, clusters)
        assert [*sorted([0.0, low, mean, high, 1.0])] == pytest.approx([0.0, low, mean, high, 1.0], abs=1e-12)


@pytest.mark.parametrize("number", [1, 10])
def test_clusters_without_a_difference_count_as_one_query_each(number: int) -> None:
    events, clusters = np.tile([1.0, 0.0, 0.0], 10), np.arange(number).repeat(30 // number)
    assert agreement.share_of(events, 0.95, clusters) == agreement.wilson_interval(10, 30, 0.95, number)


@both_statistics
def test_an_agreement_differs_from_itself_by_nothing_and_from_a_constant_not_at_all(statistic: str) -> None:
    y = np.arange(10.0)
    weights = agreement.resample_weights(10, 100)
    itself, constant = (agreement.resampled_agreement(x, y, statistic, weights) for x in (y, np.ones(10)))
    assert agreement.difference_of(itself, itself) == (0.0, None, None, None)
    assert agreement.difference_of(itself, constant) == (None,) * 4
    with pytest.raises(ValueError, match="two columns of 9 and 10 values"):
        agreement.resampled_agreement(y[1:], y, statistic, weights)


def test_of_few_queries_two_labels_that_agree_equally_are_seldom_told_apart() -> None:
    generator, weights, p_values = np.random.default_rng(0), agreement.resample_weights(20, 400), []
    for _ in range(1000):
        about = generator.normal(size=(4, 20))
        y = about[0] + about[1] > 0
        labels = (np.round(np.clip(about[0] + noise, -1.5, 1.5)) for noise in about[2:])
        sides = [agreement.resampled_agreement(x, y, "kendall_tau_b", weights) for x in labels]
        _, low, high, p_value = agreement.difference_of(*sides)
        if p_value is not None:
            assert (p_value < 0.05) == (low > 0 or high < 0)  # type: ignore[operator]
            p_values.append(p_value)
    assert len(p_values) == 998
    assert 0.03 < np.mean(np.array(p_values) < 0.05) < 0.065, "0.079 by plain percentiles"


@both_statistics
def test_few_runs_carry_no_p_value(statistic: str) -> None:
    seven = agreement.agree_over_runs(np.arange(7), [0, 2, 1, 3, 5, 4, 6], statistic)
    assert seven.value is not None
    assert (seven.p_value, seven.low, seven.high) == (None, None, None)
    assert (seven.num_queries, seven.reason) == (7, "no p-value: 7 runs, fewer than 8")
    eight = agreement.agree_over_runs(np.arange(8), [0, 2, 1, 3, 5, 4, 6, 7], statistic)
    assert eight.p_value < 0.01
    assert (eight.low, eight.reason) == (None, None)
