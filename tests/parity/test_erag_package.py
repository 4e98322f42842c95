"""Measures against the PyPI package ``erag`` 0.0.1: equal where it is right, pinned apart where it is not.

The reader is a toy: its output is the document it was given, so a document's label is written in its text.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from one_measure import compute

from erag_ray.measures.lists import list_ideal, pad

erag = pytest.importorskip("erag", reason="needs the reference: pip install --no-deps erag==0.0.1")
pytestmark = pytest.mark.parity

Labels = dict[str, list[float]]


def _answer_with_the_document(asked: dict[str, list[str]]) -> dict[str, str]:
    return {query: documents[0] for query, documents in asked.items()}


def _label_in_the_output(outputs: dict[str, str], gold_answers: dict[str, list[str]]) -> dict[str, float]:
    return {query: float(outputs[query].split()[1]) for query in gold_answers}


def _reference(labels: Labels, names: Iterable[str], score: Callable[..., Any] = _label_in_the_output) -> Any:
    results = {query: [f"label {label}" for label in row] for query, row in labels.items()}
    gold_answers = {query: ["gold"] for query in labels}
    return erag.eval(results, gold_answers, _answer_with_the_document, score, set(names))


def _ours(labels: Labels, name: str, cutoff: int, threshold: float | None = None) -> dict[str, float]:
    lengths = [len(row) for row in labels.values()]
    depth = max([cutoff, *lengths])
    matrix = pad([label for row in labels.values() for label in row], lengths, depth)
    values = compute(name, list_ideal(matrix, lengths), cutoff, threshold)
    return dict(zip(labels, values.tolist(), strict=True))


def _random_labels(values: list[float]) -> Labels:
    random = np.random.default_rng(0)
    return {
        f"question {number}": random.choice(values, size=random.integers(6, 12)).tolist()
        for number in range(80)
    } | {"nothing useful": [0.0] * 6}


BINARY = _random_labels([0, 1])
GRADED = _random_labels([0, 0.25, 0.6, 1])


@pytest.mark.parametrize(
    ("name", "cutoff", "reference_name"),
    [
        ("P", 1, "P_1"),
        ("P", 5, "P_5"),
        ("P", 15, "P_15"),
        ("R", 5, "recall_5"),
        ("R", 12, "recall_12"),
        ("AP", 12, "map"),
        ("AP", 5, "map_cut_5"),
        ("nDCG", 5, "ndcg_cut_5"),
        ("nDCG", 12, "ndcg"),
        ("RR", 12, "recip_rank"),
        ("Success", 1, "success_1"),
        ("Success", 5, "success_5"),
    ],
)
def test_equal_on_binary_labels(name: str, cutoff: int, reference_name: str) -> None:
    assert_equal(BINARY, name, cutoff, reference_name, 1e-9)


def assert_equal(labels: Labels, name: str, cutoff: int, measure: str, tolerance: float) -> None:
    reference, ours = _reference(labels, [measure]), _ours(labels, name, cutoff)
    expected = {query: values[measure] for query, values in reference["per_input"].items()}
    assert ours == pytest.approx(expected, abs=tolerance)
    assert np.mean(list(ours.values())) == pytest.approx(reference["aggregated"][measure])


@pytest.mark.parametrize("cutoff", [1, 3, 6])
@pytest.mark.parametrize(("name", "reference_name"), [("P", "P"), ("Success", "success")])
def test_equal_on_graded_labels_up_to_the_list_length(name: str, reference_name: str, cutoff: int) -> None:
    assert_equal(GRADED, name, cutoff, f"{reference_name}_{cutoff}", 1e-12)


# ---- where the reference is wrong


@pytest.mark.parametrize("name", ["map", "ndcg", "recall_2", "recip_rank"])
def test_the_reference_refuses_what_a_threshold_allows(name: str) -> None:
    """Bug 2: ours takes graded labels as gains in nDCG, and with a threshold everywhere."""
    labels = {"q": [0.4, 0.8]}
    with pytest.raises(RuntimeError, match="cannot be used with continuous"):
        _reference(labels, [name])
    assert _ours(labels, "nDCG", 2)["q"] == pytest.approx((0.4 + 0.8 / np.log2(3)) / (0.8 + 0.4 / np.log2(3)))
    assert _ours(labels, "AP", 2, threshold=0.5)["q"] == 1 / 2
    assert _ours(labels, "R", 1, threshold=0.5)["q"] == 0
    assert _ours(labels, "RR", 2, threshold=0.5)["q"] == 1 / 2


@pytest.mark.parametrize("name", ["P_3", "success_3"])
def test_the_reference_fails_on_graded_lists_shorter_than_the_cutoff(name: str) -> None:
    """Bug 3: on binary labels it divides by k, on graded ones it looks for a third document."""
    with pytest.raises(KeyError, match="2"):
        _reference({"q": [0.5, 1.0]}, [name])
    assert _reference({"q": [0, 1]}, ["P_3"])["aggregated"]["P_3"] == pytest.approx(1 / 3)
    assert _ours({"q": [0.5, 1.0]}, "P", 3)["q"] == pytest.approx((0.5 + 1.0) / 3)
    assert _ours({"q": [0.5, 1.0]}, "Success", 3)["q"] == 1


def test_the_reference_divides_bare_graded_precision_by_the_list_length() -> None:
    """Bug 3: P of [0.5, 1.0] in a run of depth 4 is 0.75 there; ours divides by the cut-off."""
    labels = {"short": [0.5, 1.0], "full": [0.5, 1.0, 0.0, 0.0]}
    reference = _reference(labels, ["P"])["per_input"]
    assert (reference["short"]["P"], reference["full"]["P"]) == (0.75, 0.375)
    assert _ours(labels, "P", 4) == {"short": 0.375, "full": 0.375}


def test_one_graded_label_changes_the_mode_of_all_queries() -> None:
    """Bug 4: guessed from the data; ours is told."""
    assert _reference({"a": [0, 1], "b": [1, 0]}, ["map"])["aggregated"]["map"] == pytest.approx(0.75)
    with pytest.raises(RuntimeError, match="cannot be used with continuous"):
        _reference({"a": [0, 1], "b": [0.9, 0]}, ["map"])
    assert _ours({"a": [0, 1], "b": [0.9, 0]}, "AP", 2, threshold=0.5) == {"a": 0.5, "b": 1.0}


def test_the_reference_rewards_an_empty_list() -> None:
    """Bug 6: the query without a list leaves the mean; ours counts it with 0 (DESIGN 6.3)."""
    labels = {"found": [1.0], "empty": []}
    reference = _reference(labels, ["P_1"])
    assert (reference["aggregated"]["P_1"], list(reference["per_input"])) == (1.0, ["found"])
    assert _ours(labels, "P", 1) == {"found": 1.0, "empty": 0.0}
    with pytest.raises(ZeroDivisionError):
        _reference({"found": [0.5], "empty": []}, ["P"])
    assert _ours({"found": [0.5], "empty": []}, "P", 1) == {"found": 0.5, "empty": 0.0}


def test_no_queries_are_an_error_there_and_no_values_here() -> None:
    """Bug 6."""
    with pytest.raises(ValueError, match="empty"):
        _reference({}, ["P_1"])
    assert _ours({}, "P", 1) == {}


def test_recall_against_the_own_list_cannot_compare_retrievers() -> None:
    """Bug 7, shared by ideal="list" on purpose: one useful document of ten is as good as ten of ten."""
    one, ten = [1.0] + [0.0] * 9, [1.0] * 10
    for name, reference_name in (("R", "recall_10"), ("AP", "map"), ("nDCG", "ndcg")):
        reference = _reference({"one": one, "ten": ten}, [reference_name])["per_input"]
        assert reference["one"][reference_name] == reference["ten"][reference_name] == pytest.approx(1.0)
        assert _ours({"one": one, "ten": ten}, name, 10) == pytest.approx({"one": 1.0, "ten": 1.0})


def test_not_a_number_passes_the_reference() -> None:
    """Bug 8: a label that is not a number is refused here."""
    reference = _reference({"q": [float("nan"), 0.5]}, ["P_2", "success_2"])["aggregated"]
    assert np.isnan(reference["P_2"])
    assert reference["success_2"] == 0.5
    with pytest.raises(ValueError, match="labels must be finite"):
        _ours({"q": [float("nan"), 0.5]}, "P", 2)
