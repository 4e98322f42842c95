"""Differences between runs: families, effect sizes, detectable differences; against scipy and by hand."""

from __future__ import annotations

from fractions import Fraction

import hypothesis
import polars as pl
import pytest
from evaluated import comparisons, measured, numbered, settings, used
from hypothesis import given
from hypothesis import strategies as st


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


# --- tables ---
