"""Measures, on lists short enough to work out by hand."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_measure import compute

from erag_ray.measures import lists as measured

# one useful document at rank 2 and one at rank 4; nothing useful; a list of one; an empty list
BINARY = measured.list_ideal(
    np.array([[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]], dtype=float), [4, 4, 1, 0]
)
GRADED = measured.list_ideal(np.array([[0.2, 0.0, 0.8, 0.0], [0.5, 0.0, 0.0, 0.0]]), [4, 1])


def test_threshold_makes_graded_labels_binary() -> None:
    # at 0.5 the first list reads 0 0 1 0, the second 1, whose label equals the threshold
    assert compute("RR", GRADED, 4, threshold=0.5) == pytest.approx([1 / 3, 1])
    # also where graded labels happen to be 0 or 1
    assert compute("R", BINARY, 4, threshold=2).tolist() == [0, 0, 0, 0]
    # but not for measures that take graded labels
    for name in ("P", "Success", "nDCG"):
        assert compute(name, GRADED, 4, threshold=0.5) == pytest.approx(compute(name, GRADED, 4))


def test_check_measures_lets_declared_labels_pass() -> None:
    measured.check_measures(["P", "R", "AP", "RR", "nDCG", "Success"], "binary")
    measured.check_measures(["P", "R", "AP", "RR", "nDCG", "Success"], "graded", threshold=0.5)
    measured.check_measures(["P", "Success", "nDCG"], "graded")
    measured.check_measures(["P", "Success", "Harmful"], "signed", threshold=0.5)


@pytest.mark.parametrize(
    ("names", "kind", "threshold", "message"),
    [
        (["P", "Prec"], "binary", None, "unknown measure 'Prec'; known: AP, Harmful, .* UDCG, nDCG"),
        (["numpy:pi"], "binary", None, "measure 'numpy:pi' is a float"),
        (["P", "AP"], "graded", None, "graded, and AP need a threshold.*only P, nDCG, Success"),
        (["P"], "graded", 0.0, "must be above 0"),
        (["P"], "graded", float("nan"), "must be above 0"),
        (["R"], "binary", 2, "no binary label would be relevant"),
        (["P", "AP", "nDCG"], "signed", 0.5, "AP, nDCG are not defined.*only P, Success, Harmful"),
        (["Harmful"], "binary", None, "binary, and Harmful are not defined"),
        (["Harmful", "R"], "graded", None, "graded, and Harmful, R are not defined.*only P, nDCG, Success"),
    ],
)
def test_check_measures_names_what_is_wrong(
    names: list[str], kind: measured.Kind, threshold: float | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        measured.check_measures(names, kind, threshold)


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        *[(name, "AP") for name in ("MAP", "map", "Map")],
        *[(name, "RR") for name in ("MRR", "mrr")],
        *[
            (name, "Success")
            for name in ("hit", "Hit Ratio", "hit_ratio", "HitRatio", "HIT-RATIO", "hit rate")
        ],
        *[(name, name) for name in ("AP", "P", "nDCG", "map_cut", "my.module:MAP")],
    ],
)
def test_other_names_of_measures(name: str, canonical: str) -> None:
    assert measured.canonical_name(name) == canonical
    if canonical in measured.MEASURES:
        assert compute(name, BINARY, 4).tolist() == compute(canonical, BINARY, 4).tolist()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("ndcg", "nDCG"), ("nDCG@10", "nDCG"), ("succes", "Success"), ("p", "P"), ("harmfull", "Harmful")],
)
def test_an_unknown_measure_is_told_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(
        ValueError, match=rf"unknown measure '{name}'; known: .*\. Did you mean '{nearest}'\?$"
    ):
        measured.check_measures([name], "binary")


# a measure from outside the package, used by name below
LAST = measured.Measure(
    name="Last", function=lambda lists: lists.labels, uses_ideal=False, takes=measured.ALL
)


def test_a_measure_from_outside_is_found_by_its_place() -> None:
    assert compute(f"{__name__}:LAST", BINARY, 4).tolist() == [1, 0, 0, 0]


def test_no_lists_give_empty_columns() -> None:
    for kind in get_args(measured.Kind):
        names = measured.measures_for(kind, None)
        values = measured.compute_all(names, measured.list_ideal(np.empty((0, 3))), [3])
        assert [column.shape for column in values.values()] == [(0,)] * len(names)


def test_pad_lays_out_rows_of_any_length() -> None:
    padded = measured.pad([1, 2, 3, 4, 5], lengths=[3, 0, 2], width=2)
    assert padded.tolist() == [[1, 2], [0, 0], [4, 5]]
    assert measured.pad([1, 2], lengths=[2], width=3).tolist() == [[1, 2, 0]]


labels_in_rank_order = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), max_size=6)


@given(labels_in_rank_order, st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=4))
def test_every_measure_is_a_share(labels: list[float], others: list[float]) -> None:
    base = sorted(labels + others, reverse=True)
    lists = measured.Lists(
        labels=measured.pad(labels, [len(labels)], 6),
        lengths=np.array([len(labels)]),
        ideal=measured.pad(base, [len(base)], max(1, len(base))),
    )
    for column in measured.compute_all(
        measured.measures_for("graded", 0.5), lists, range(1, 7), threshold=0.5
    ).values():
        assert 0 <= column[0] <= 1 + 1e-12


@given(labels_in_rank_order)
def test_a_list_in_ideal_order_is_perfect(labels: list[float]) -> None:
    lists = measured.list_ideal(measured.pad(sorted(labels, reverse=True), [len(labels)], 6), [len(labels)])
    values = measured.compute_all(["nDCG", "AP", "R", "RR"], lists, [6], threshold=0.5)
    has_relevant = float(any(label >= 0.5 for label in labels))
    assert values["nDCG", 6][0] == pytest.approx(float(any(labels)))
    assert [values[name, 6][0] for name in ("AP", "R", "RR")] == pytest.approx([has_relevant] * 3)


# --- measures that a job must name ---


@pytest.mark.parametrize("kind", get_args(measured.Kind))
def test_a_job_without_measures_gets_none_that_must_be_named(kind: measured.Kind) -> None:
    assert set(measured.measures_for(kind, 0.5)) - set(measured.default_measures(kind, 0.5)) <= {"UDCG"}
    assert "UDCG" not in measured.default_measures(kind, 0.5)


def test_udcg_is_the_logistic_function_of_the_mean_signed_term() -> None:
    # relevant and usable by .9, not relevant and usable by .6, no third document; an empty list
    lists = measured.list_ideal(np.array([[0.9, -0.2, 0.0], [0.0, 0.0, 0.0]]), [2, 0])
    sigmoid = [1 / (1 + np.exp(-term)) for term in (0.9, 0.35, 0.35)]
    for cutoff, expected in enumerate(sigmoid, 1):
        assert measured.compute_all(["UDCG"], lists, [cutoff])["UDCG", cutoff] == pytest.approx(
            [expected, 0.5]
        )
