"""Evaluation on tables small enough to do the sums by eye."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import evaluated
import hypothesis
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ranked_lists import runs_of

from erag_ray.analyses import comparisons as of_runs
from erag_ray.analyses import means
from erag_ray.analyses.columns import DatasetColumns, Draws
from erag_ray.analyses.lists.values import per_query_parts
from erag_ray.annotators import requested_measures
from erag_ray.labels.end_to_end import list_responses
from erag_ray.measures.agreement import resample_weights
from erag_ray.store.schemas import LABELS, RESPONSES, conform


def labels(annotator: str, found: Mapping[str, Mapping[str, float | None]]) -> pl.DataFrame:
    """Query -> document -> label."""
    rows = [
        ("", "", annotator, query, doc, label)
        for query, of_query in found.items()
        for doc, label in of_query.items()
    ]
    return pl.DataFrame(conform(pl.DataFrame(rows, schema=LABELS.columns.names, orient="row"), LABELS))


def value(rows: pl.DataFrame, **key: object) -> float | None:
    found = rows.filter(pl.col(name) == wanted for name, wanted in key.items())
    assert found.height == 1, found
    result: float | None = found["value"][0]
    return result


# --- utility ---


def test_a_list_without_a_response_is_a_fault_and_not_a_null() -> None:
    documents = {"query_id": ["q1", "q1"], "doc_ids": [["a"], ["b"]]}
    lists = pl.DataFrame({"run_id": ["A", "B"], "depth": [2, 2], **documents})
    keys = {name: ["m", "n"] if name == "model" else [1, 2] for name in RESPONSES.key}
    requests = pl.DataFrame({**documents, **keys})
    responses = pl.DataFrame({**keys, "output": ["x", "x"], "num_prompt_tokens": [1, 1]})
    assert list_responses(lists, requests, responses)["output"].to_list() == ["x", "x"]
    for some in ((requests, responses.head(1)), (requests.head(1), responses)):
        with pytest.raises(ValueError, match=r"1 lists lack a response.*'B'"):
            list_responses(lists, *some)


# --- list values ---

TWO = evaluated.queries(("q1", "d", "exact_match"), ("q2", "d", "exact_match"))
# B has no list for q2
LISTS = runs_of({"A": {"q1": "a b e", "q2": "a"}, "B": {"q1": "c d"}})
BINARY = {"q1": {"a": 1.0, "b": 0.0, "c": 1.0, "d": 1.0, "e": 1.0}, "q2": {"a": 0.0}}


def values_of(found: Mapping[str, Mapping[str, float | None]], **changes: object) -> pl.DataFrame:
    made = labels("provenance", found)
    return pl.concat(
        per_query_parts(made, LISTS, evaluated.everywhere(made, TWO), TWO, evaluated.settings(**changes))
    )


def test_lists_may_stand_in_any_order_and_labels_too() -> None:
    made = labels("provenance", BINARY)
    shuffled = [table.sample(fraction=1, shuffle=True, seed=seed) for seed, table in ((1, made), (2, LISTS))]
    eligible, settings = evaluated.everywhere(made, TWO), evaluated.settings(depths=[1, 3])
    mixed = pl.concat(per_query_parts(*shuffled, eligible, TWO, settings))
    assert mixed.equals(values_of(BINARY, depths=[1, 3]))


def test_only_the_ideals_asked_for() -> None:
    whole = values_of(BINARY)
    for ideal in ("list", "pool"):
        made = values_of(BINARY, ideals=[ideal])
        wanted = whole.filter(pl.col("ideal").is_in([ideal, "any"]))
        assert made.sort(made.columns).equals(wanted.sort(wanted.columns))


def test_measures_asked_for_are_taken_as_they_are() -> None:
    assert requested_measures("erag", ["R"], "graded", None) == ["R"]
    assert "R" in requested_measures("erag", None, "binary", None)
    assert "R" not in requested_measures("erag", None, "graded", None)


# --- correlations ---


def test_sums_of_the_same_labels_in_another_order_tie() -> None:
    assert 0.1 + 0.2 + 0.3 != 0.3 + 0.2 + 0.1
    x = [(0.1 + 0.2 + 0.3) / 3, (0.3 + 0.2 + 0.1) / 3]
    found = evaluated.correlations(*evaluated.tables_of({("r", "A", 2): x}, {("r", "A", 2): [0, 1]}))
    assert set(found.filter(over="queries")["value"]) == {None}


# --- correlations over runs ---


def over_runs(
    x: Mapping[str, Sequence[float | None]], y: Mapping[str, Sequence[float | None]]
) -> dict[str, object]:
    """The row of tau over runs: run -> values of its queries."""
    columns = ({("r", run, 2): column for run, column in given.items()} for given in (x, y))
    found = evaluated.correlations(*evaluated.tables_of(*columns, statistics=["kendall_tau_b"]))
    return found.filter(over="runs").row(0, named=True)


def test_nothing_in_common_over_runs_is_null_with_its_reason() -> None:
    row = over_runs({"A": [1.0, None], "B": [None, 1.0]}, {"A": [1.0, 0.0], "B": [0.0, 1.0]})
    assert row["value"] is None
    assert (row["num_runs"], row["num_queries"], row["num_dropped"]) == (0, 0, 2)
    assert "number of runs: 0" in str(row["reason"])


def test_ten_runs_have_the_p_value_of_the_permutations_asked_for_and_no_interval() -> None:
    columns = {f"run{number}": [number / 10, 0.0] for number in range(10)}
    row = over_runs(columns, columns)
    assert (row["value"], row["num_runs"], row["low"]) == (pytest.approx(1.0), 10, None)
    # of 500 permutations none comes as near
    assert row["p_value"] == pytest.approx(1 / 501)


def test_means_of_runs_that_differ_only_by_the_order_of_their_sums_tie() -> None:
    row = over_runs({"A": [0.1, 0.2, 0.3], "B": [0.3, 0.2, 0.1]}, {"A": [1, 1, 1], "B": [0, 0, 0]})
    assert (row["value"], row["reason"]) == (None, "constant: every mean label measure is 0.2")


def test_a_mean_of_zeros_is_as_sure_as_the_answered_questions_are_many() -> None:
    column = np.r_[np.zeros(30), np.full(970, np.nan)]
    draws = Draws(weights=resample_weights(1000, 20), orders=np.empty((0, 1000), np.int32))
    name = {"reader": "r", "score": "exact_match", "annotator": "end_to_end", "run_id": "A", "depth": 1}
    names = {**name, "measure": "exact_match", "cutoff": 1, "ideal": "any"}
    ids = pl.Series(map(str, range(1000)))
    answered = DatasetColumns(dataset="d", query_ids=ids, columns=[(names, column)], draws=draws)
    for dataset in (answered, replace(answered, estimates={0: np.zeros(1000)})):
        row = means.means(dataset, evaluated.settings(confidence=0.95)).row(0, named=True)
        assert (row["mean"], row["low"], row["high"]) == pytest.approx(
            (0, 0, 1.96**2 / (30 + 1.96**2)), rel=1e-3
        )


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
    rows = evaluated.comparisons(*evaluated.tables_of(columns, columns, num_resamples=100))
    for row in rows.filter(pl.col("difference").is_not_null()).iter_rows(named=True):
        assert row["difference"] == pytest.approx(float(step), abs=1e-10)
        assert (row["effect_size"], row["detectable"]) == (None, None)
        if row["p_value"] is not None:
            assert row["p_value"] == pytest.approx(2.0 ** (1 - len(values)) if step else 1.0)
            assert row["reason"] == "no variation: the difference is the same for every query"
        else:
            assert (row["reason"][:15], set(values), step) == ("both runs score", {values[0]}, 0)


@given(st.lists(st.sampled_from([-1e-10, 0.0, 1e-10]), min_size=40, max_size=40))
def test_estimates_that_differ_by_rounding_are_equal(noise: list[float]) -> None:
    # of a sample of the questions: an auxiliary label predicts the others, rounded for each run
    values = {("r", run, 2): [float(number % 3 == 0) for number in range(40)] for run in "ab"}
    (dataset,) = evaluated.columns_of(*evaluated.tables_of({}, values))
    estimates = {
        index: column + np.array(noise) * (name["run_id"] == "b")
        for index, (name, column) in enumerate(dataset.columns)
    }
    (row,) = of_runs.comparisons(replace(dataset, estimates=estimates), evaluated.settings()).to_dicts()
    assert (row["difference"], row["num_needed"], row["detectable"]) == (0.0, None, None)
    assert row["p_value"] == 1.0
