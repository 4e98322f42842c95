"""Differences between runs: p-values, families, effect sizes, detectable differences; against scipy and by hand."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import hypothesis
import numpy as np
import polars as pl
import pytest
from evaluated import comparisons, contrasts, measured, numbered, settings, used
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from erag_ray.agreement import (
    detectable_difference,
    effect_size,
    holm,
    paired_differences,
    randomisation_p_values,
    sign_flips,
)
from erag_ray.schemas import COMPARISONS, CONTRASTS, conform


def every_flip(count: int) -> np.ndarray:
    return np.array(list(itertools.product([-1, 1], repeat=count)), np.int8)


@given(st.lists(st.sampled_from([-1.0, -0.5, -0.1, 0.0, 0.1, 0.3, 1.0]), min_size=2, max_size=9))
def test_over_all_flips_the_p_value_is_scipys(differences: list[float]) -> None:
    column = np.array(differences)
    flips = every_flip(len(column))
    (p_value,) = randomisation_p_values(column[:, None], flips)
    as_large = np.abs(flips @ column) >= abs(column.sum()) - 1e-9
    assert p_value == pytest.approx((as_large.sum() + 1) / (len(flips) + 1))
    found = stats.permutation_test(
        (column, np.zeros_like(column)),
        lambda a, b, axis: (a - b).mean(axis=axis),
        permutation_type="samples",
        n_resamples=np.inf,
    )
    # scipy doubles the smaller side, which is the same for a symmetric distribution but never above 1
    assert (as_large.mean()) == pytest.approx(min(1.0, found.pvalue), abs=1e-9) or as_large.all()


def test_p_values_of_many_columns_and_of_drawn_flips() -> None:
    generator = np.random.default_rng(0)
    columns = generator.normal([0.0, 0.3, 3.0], 1.0, (200, 3))
    columns[50:60, 1] = np.nan
    flips = sign_flips(200, 10_000, 3)
    assert set(np.unique(flips)) == {-1, 1}
    assert abs(flips.mean()) < 0.01
    found = randomisation_p_values(columns, flips)
    kept = columns[~np.isnan(columns[:, 1]), 1]
    wanted = [stats.ttest_1samp(columns[:, 0], 0).pvalue, stats.ttest_1samp(kept, 0).pvalue]
    assert found[:2] == pytest.approx(wanted, abs=0.02)
    assert found[2] == 1 / 10_001
    assert randomisation_p_values(np.zeros((200, 1)), flips) == [1.0]


def test_holm_by_hand() -> None:
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    adjusted = holm(np.array([0.5, np.nan, 0.9]))
    assert adjusted[[0, 2]] == pytest.approx([1.0, 1.0])
    assert math.isnan(adjusted[1])


def test_differences_that_are_equal_but_for_rounding_have_no_effect_size() -> None:
    columns = {("r", "A", 2): [0.3, 0.4, 0.5], ("r", "B", 2): [0.1, 0.2, 0.3]}
    table = comparisons(measured(columns), used(columns), numbered(3), settings())
    assert table["difference"].to_list() == pytest.approx([0.2, 0.2])
    assert table["effect_size"].is_null().all()


# each example goes through the whole table of comparisons
@hypothesis.settings(max_examples=20)
@given(
    st.lists(st.fractions(min_value=0, max_value=1, max_denominator=30), min_size=2, max_size=12), st.data()
)
def test_runs_that_are_equally_far_apart_show_no_variation(
    values: list[Fraction], data: st.DataObject
) -> None:
    step = data.draw(st.fractions(min_value=0, max_value=1, max_denominator=30))
    columns = {
        ("r", "A", 2): [float(value + step) for value in values],
        ("r", "B", 2): [float(value) for value in values],
    }
    rows = comparisons(measured(columns), used(columns), numbered(len(values)), settings(num_resamples=100))
    for row in rows.filter(pl.col("difference").is_not_null()).iter_rows(named=True):
        assert row["difference"] == pytest.approx(float(step), abs=1e-10)
        assert [row["low"], row["high"]] == pytest.approx([row["difference"]] * 2, abs=1e-12)
        assert (row["effect_size"], row["detectable"]) == (None, None)
        assert row["reason"] == "no variation: the difference is the same for every query"


def test_noise_of_floating_point_is_no_spread() -> None:
    assert effect_size(np.array([0.1 + 0.2, 0.3])) is None
    assert detectable_difference(np.array([2 / 3 - 1 / 3, 1 / 3 - 0.0])) is None
    assert paired_differences(
        np.array([0.666666666667, 0.333333333333]), np.array([0.333333333333, 0.0])
    ).tolist() == [
        0.3333333333,
        0.3333333333,
    ]


def test_effect_size_and_detectable_difference() -> None:
    column = np.array([1.0, 0.0, 1.0, 0.0, 1.0])
    assert effect_size(column) == pytest.approx(0.6 / column.std(ddof=1))
    assert effect_size(np.ones(5)) is effect_size(np.ones(1)) is detectable_difference(np.zeros(4)) is None
    generator = np.random.default_rng(1)
    for count in (20, 60, 300):
        column = generator.normal(0, 2, count)
        least = detectable_difference(column)
        assert least is not None
        shift = least / (column.std(ddof=1) / math.sqrt(count))
        limit = stats.t.ppf(0.975, count - 1)
        power = stats.nct.sf(limit, count - 1, shift) + stats.nct.cdf(-limit, count - 1, shift)
        assert power == pytest.approx(0.8, abs=0.01)


# --- tables ---


def test_every_two_runs_are_compared_once_for_each_quantity() -> None:
    columns = {("r", "A", 2): [0, 1, 1, 0], ("r", "B", 2): [0, 0, 1, 0], ("r", "C", 2): [1, 1, 1, 1]}
    table = comparisons(measured(columns), used(columns), numbered(4), settings())
    conform(table, COMPARISONS)
    ends = table.filter(annotator="end_to_end")
    assert ends.select("run_a", "run_b", "difference").rows() == [
        ("A", "B", 0.25),
        ("A", "C", -0.5),
        ("B", "C", -0.75),
    ]
    assert (ends["p_adjusted"] >= ends["p_value"]).all()
    assert ends["p_adjusted"].to_list() == pytest.approx(holm(ends["p_value"].to_numpy()).tolist())
    assert (ends["low"] <= ends["difference"]).all()
    assert ends["num_queries"].to_list() == [4, 4, 4]


def test_a_run_that_never_answered_is_not_compared_and_counts_in_no_family() -> None:
    columns = {("r", "A", 2): [0, 1, 1, 0], ("r", "B", 2): [0, 0, 1, 0], ("r", "C", 2): [0, 0, 0, 0]}
    table = comparisons(measured(columns), used(columns), numbered(4), settings())
    ends = table.filter(annotator="end_to_end")
    assert ends.select("run_a", "run_b", "reason").rows() == [
        ("A", "B", None),
        ("A", "C", "C never scored above 0"),
        ("B", "C", "C never scored above 0"),
    ]
    assert ends["p_value"].is_null().to_list() == [False, True, True]
    assert ends["p_adjusted"][0] == ends["p_value"][0]
    # labels of 0 are labels
    assert table.filter(pl.col("annotator") != "end_to_end")["reason"].is_null().all()


def test_queries_that_are_not_judged_in_both_runs_are_left_out_and_counted() -> None:
    columns = {("r", "A", 2): [0, 1, None, 0], ("r", "B", 2): [0, None, 1, 1]}
    table = comparisons(measured(columns), used({("r", "A", 2): [0, 1, 1, 1]}), numbered(4), settings())
    (row,) = table.filter(measure="P").iter_rows(named=True)
    assert (row["num_queries"], row["num_dropped"], row["difference"]) == (2, 2, -0.5)
    few = {("r", "A", 2): [0, 1, None, None], ("r", "B", 2): [None, 1, 1, 1]}
    table = comparisons(measured(few), used({("r", "A", 2): [0, 1, 1, 1]}), numbered(4), settings())
    assert table["reason"].to_list() == ["fewer than 2 queries are judged in both runs"]


def test_a_contrast_is_the_difference_of_two_correlations() -> None:
    utility = {("r", "A", 2): [0, 1, 1, 0, 1, 0] * 6}
    other = [1, 1, 0, 0, 1, 0] * 6
    both = pl.concat(
        [measured(utility, annotator="erag"), measured({("", "A", 2): other}, annotator="other")]
    )
    given = (both, used(utility), numbered(36), settings(statistics=["kendall_tau_b"]))
    table = contrasts(*given)
    conform(table, CONTRASTS)
    (row,) = table.iter_rows(named=True)
    assert (row["annotator_a"], row["annotator_b"], row["num_queries"]) == ("erag", "other", 36)
    assert row["difference"] == pytest.approx(1 - stats.kendalltau(other, utility["r", "A", 2]).statistic)
    assert row["low"] <= row["difference"] <= row["high"]
