"""The study of labels: made runs are what they are said to be, its agreement is scipy's, its page stands."""

import pathlib

import numpy as np
import polars as pl
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from scripts import import_script
from tiny import Tiny, compare

study, mixed_runs = import_script("notebooks/study.py"), import_script("notebooks/mixed_runs.py")
LISTS = st.lists(st.sampled_from("abcdefghij"), unique=True)


@given(LISTS, LISTS, st.floats(0, 1), st.text(max_size=3))
def test_a_mixture_keeps_the_order_of_both_lists_and_loses_nothing(
    one: list[str], other: list[str], share: float, query_id: str
) -> None:
    mixed = mixed_runs.mixed(query_id, one, other, share)
    assert sorted(mixed) == sorted({*one, *other})
    for run in (one, other):
        own = [doc for doc in mixed if doc in run and not (doc in one and doc in other)]
        assert own == [doc for doc in run if doc in own]
    assert mixed_runs.mixed(query_id, one, other, 0.0) == list(dict.fromkeys([*one, *other]))
    assert mixed_runs.mixed(query_id, one, other, share) == mixed


def test_a_dozen_runs_of_three() -> None:
    made = dict(
        mixed_runs.made_of({name: {"q": list(docs)} for name, docs in (("a", "xy"), ("b", "z"), ("c", ""))})
    )
    assert len(made) == 15
    assert made["a_from_2"] == {"q": ["y"]}


@given(st.integers(2, 9), st.integers(0, 99))
def test_tau_of_each_row_is_scipys(num_runs: int, seed: int) -> None:
    x, y = np.random.default_rng(seed).integers(0, 4, (2, 5, num_runs)).astype(float)
    expected = [scipy.stats.kendalltau(*pair).statistic for pair in zip(x, y, strict=True)]
    np.testing.assert_allclose(study.tau_b(x, y), expected, atol=1e-12)


def test_resamples_without_a_value_are_left_out_and_too_many_of_them_give_no_interval() -> None:
    values = np.linspace(0, 1, 1001)
    assert study.interval(0.5, values) == (0.5, pytest.approx(0.025), pytest.approx(0.975))
    assert study.interval(0.5, np.append(values, [np.nan] * 100)) == (0.5, None, None)
    assert study.p_of(values - 0.01) == pytest.approx(2 * 11 / 1002, abs=0.002)
    np.testing.assert_array_equal(study.mean_of([np.array([1.0, np.nan]), np.array([3.0, 4.0])]), [2.0, 4.0])


@pytest.mark.long
def test_the_page_of_two_comparisons(compared: Tiny) -> None:
    credit = compared.with_config(
        out=f"{compared.config.out}-credit",
        credits=["leave_one_out"],
        orders=["reversed"],
        annotators=["erag", "gain"],
    )
    compare(credit)
    out = compared.folder / "page"
    study.main(str(out), [pathlib.Path(compared.config.out), pathlib.Path(credit.config.out)])
    text = (out / "study.md").read_text()
    assert "of labels with credit, within lists" in text
    assert "the score when the list is changed" in text
    # the same questions count once, those of the first comparison
    (table,) = (part for part in text.split("## ") if part.startswith("Per question"))
    assert "out-credit" not in table
    assert (out / "report" / "index.html").exists()
    # the value is the mean over runs of what the report has
    rows = pl.concat(
        map(pl.read_parquet, pathlib.Path(compared.config.out).glob("correlations/**/*.parquet"))
    )
    own = rows.filter(annotator="erag", measure="P", statistic="kendall_tau_b", over="queries")
    of_lists = own.filter(pl.col("run_id").is_in(["good", "bad"]), depth=3, cutoff=3)
    assert f"| 3 | P of erag | {of_lists['value'].drop_nulls().mean():.3f}" in table
