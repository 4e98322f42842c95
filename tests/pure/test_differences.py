"""Differences between runs: families, effect sizes, detectable differences; against scipy and by hand."""

from __future__ import annotations

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
)
from erag_ray.schemas import COMPARISONS, CONTRASTS, conform


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
        assert (row["effect_size"], row["detectable"]) == (None, None)
        if row["p_value"] is not None:
            assert row["p_value"] == pytest.approx(2.0 ** (1 - len(values)) if step else 1.0)
            assert row["reason"] == "no variation: the difference is the same for every query"
        else:
            assert (row["reason"][:15], set(values), step) == ("both runs score", {values[0]}, 0)


def test_noise_of_floating_point_is_no_spread() -> None:
    assert effect_size(np.array([0.1 + 0.2, 0.3])) is None
    assert detectable_difference(np.array([2 / 3 - 1 / 3, 1 / 3 - 0.0]), 0.05) is None
    assert paired_differences(
        np.array([0.666666666667, 0.333333333333]), np.array([0.333333333333, 0.0])
    ).tolist() == [
        0.3333333333,
        0.3333333333,
    ]


def test_effect_size_and_detectable_difference() -> None:
    column = np.array([1.0, 0.0, 1.0, 0.0, 1.0])
    assert effect_size(column) == pytest.approx(0.6 / column.std(ddof=1))
    assert (
        effect_size(np.ones(5)) is effect_size(np.ones(1)) is detectable_difference(np.zeros(4), 0.05) is None
    )
    generator = np.random.default_rng(1)
    for count in (20, 60, 300):
        column = generator.normal(0, 2, count)
        least = detectable_difference(column, 0.05)
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


def test_a_run_that_never_answered_is_tested_unless_the_other_one_never_did_either() -> None:
    columns = {("r", "A", 2): [1] * 40, ("r", "B", 2): [0] * 40, ("r", "C", 2): [0] * 40}
    ends = comparisons(measured(columns), used(columns), numbered(40), settings()).filter(
        annotator="end_to_end"
    )
    assert ends.select("run_a", "run_b", "difference", "reason").rows() == [
        ("A", "B", 1.0, "no variation: the difference is the same for every query"),
        ("A", "C", 1.0, "no variation: the difference is the same for every query"),
        ("B", "C", 0.0, "both runs score 0 for every query"),
    ]
    assert ends["p_value"].to_list() == [2.0**-39, 2.0**-39, None]
    # C is a copy of B, which counts once
    assert ends["p_adjusted"].to_list() == [2.0**-39, 2.0**-39, None]


def test_all_depths_of_utility_are_one_family_and_those_of_labels_are_apart() -> None:
    a, b = [1, 1, 1, 1, 1, 1, 0, 0] * 2, [0, 0, 0, 1, 1, 1, 0, 0] * 2
    columns = {("r", run, depth): v for depth in (1, 2) for run, v in (("A", a), ("B", [*b[:-1], depth - 1]))}
    table = comparisons(measured(columns), used(columns), numbered(16), settings(depths=[1, 2]))
    for (annotator,), rows in table.group_by("annotator"):
        p = rows.sort("p_value")["p_value"].to_list()
        factors = [2, 1] if annotator == "end_to_end" else [1, 1]
        assert rows.sort("p_value")["p_adjusted"].to_list() == pytest.approx(
            [p[0] * factors[0], max(p[1], 2 * p[0]) if factors[0] == 2 else p[1]]
        )


def test_queries_that_are_not_judged_in_both_runs_are_left_out_and_counted() -> None:
    columns = {("r", "A", 2): [0, 1, None, 0], ("r", "B", 2): [0, None, 1, 1]}
    table = comparisons(measured(columns), used({("r", "A", 2): [0, 1, 1, 1]}), numbered(4), settings())
    (row,) = table.filter(measure="P").iter_rows(named=True)
    assert (row["num_queries"], row["num_dropped"], row["difference"]) == (2, 2, -0.5)
    few = {("r", "A", 2): [0, 1, None, None], ("r", "B", 2): [None, None, 1, 1]}
    table = comparisons(measured(few), used({("r", "A", 2): [0, 1, 1, 1]}), numbered(4), settings())
    assert table.select("difference", "reason").rows() == [(None, "no query is judged in both runs")]


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
    assert (row["low"] > 0 or row["high"] < 0) == (row["p_value"] < 0.1)
