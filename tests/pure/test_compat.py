"""The drop-in for the package ``erag``: its numbers where they are right (parity/), our rules where they are not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from erag_ray import compat

Given = dict[str, list[float]]


def evaluate(labels: Given, names: Sequence[str], **options: Any) -> Any:
    """Documents whose text is their label, and a generator that repeats its document."""
    documents = {
        query: [f"{rank} {label}" for rank, label in enumerate(row)] for query, row in labels.items()
    }
    gold_answers = {query: ["gold"] for query in labels}
    return compat.eval(documents, gold_answers, repeat, last_word, set(names), **options)


def repeat(asked: Mapping[str, list[str]]) -> dict[str, str]:
    assert all(len(documents) == 1 for documents in asked.values())
    return {query: documents[0] for query, documents in asked.items()}


def last_word(outputs: Mapping[str, str], gold_answers: Mapping[str, Sequence[str]]) -> dict[str, float]:
    assert set(outputs) == set(gold_answers)
    return {query: float(outputs[query].split()[-1]) for query in gold_answers}


def test_numbers_by_hand() -> None:
    found = evaluate(
        {"a": [0, 1, 1], "b": [1]}, ["P_2", "map", "recip_rank", "ndcg_cut_1", "success_1", "recall_2"]
    )
    assert found["per_input"]["a"] == pytest.approx(
        {
            "P_2": 0.5,
            "map": (1 / 2 + 2 / 3) / 2,
            "recip_rank": 0.5,
            "ndcg_cut_1": 0,
            "success_1": 0,
            "recall_2": 0.5,
        }
    )
    assert found["per_input"]["b"] == {
        "P_2": 0.5, "map": 1, "recip_rank": 1, "ndcg_cut_1": 1, "success_1": 1, "recall_2": 1,
    }  # fmt: skip
    assert found["aggregated"]["recip_rank"] == 0.75


def test_short_lists_names_without_cutoff_and_lists_of_cutoffs() -> None:
    found = evaluate({"a": [0.5, 1.0], "b": [0.4, 0, 0, 0]}, ["P_3", "success_3", "P", "P.1,2", "ndcg"])[
        "per_input"
    ]
    assert found["a"] == pytest.approx({"P_3": 0.5, "success_3": 1, "P": 1.5 / 4, "P_1": 0.5, "P_2": 0.75,
                                        "ndcg": (0.5 + 1 / math.log2(3)) / (1 + 0.5 / math.log2(3))})  # fmt: skip
    assert found["b"]["P"] == pytest.approx(0.1)


def test_a_query_without_documents_counts_0() -> None:
    found = evaluate({"a": [1], "none": []}, ["P_1", "map"])
    assert found["per_input"]["none"] == {"P_1": 0, "map": 0}
    assert found["aggregated"] == {"P_1": 0.5, "map": 0.5}
    assert evaluate({"none": []}, ["P"])["aggregated"] == {"P": 0}


def test_graded_labels_need_a_threshold_and_are_not_lost() -> None:
    with pytest.raises(
        compat.GradedLabels, match="the labels are graded, and map need a threshold"
    ) as raised:
        evaluate({"a": [0.4, 0.8]}, ["map", "P_2"])
    assert raised.value.labels == {"a": [0.4, 0.8]}
    assert evaluate({"a": [0.4, 0.8]}, ["map", "P_2"], threshold=0.5)["aggregated"] == pytest.approx(
        {"map": 0.5, "P_2": 0.6}
    )


def test_a_repeated_document_is_generated_once_and_counts_at_every_place() -> None:
    asked: list[dict[str, list[str]]] = []

    def generate(given: dict[str, list[str]]) -> dict[str, str]:
        asked.append(given)
        return repeat(given)

    found = compat.eval({"a": ["x 1", "y 0", "x 1"]}, {"a": []}, generate, last_word, {"P_3"})
    assert asked == [{"a": ["x 1"]}, {"a": ["y 0"]}]
    assert found["aggregated"] == {"P_3": pytest.approx(2 / 3)}


def never(*given: Any) -> Any:
    raise AssertionError("called before the inputs were checked")


@pytest.mark.parametrize(
    ("results", "gold_answers", "names", "message"),
    [
        ({}, {}, {"P_1"}, "there are no queries"),
        (
            {"a": ["x"]},
            {"b": ["y"]},
            {"P_1"},
            "2 queries are in one of the two inputs only: 'a' in retrieval_results",
        ),
        ({"a": "x"}, {"a": ["y"]}, {"P_1"}, "the documents of 'a' are one text; a list is expected"),
        ({"a": ["x"]}, {"a": ["y"]}, "P_1", "must be a set of names, not the text 'P_1'"),
        *(
            ({"a": ["x"]}, {"a": ["y"]}, {name}, f"unknown measure '{name}'; known: P_K, recall_K")
            for name in ("mrr", "P_0", "P_00", "P_1,0", "map_5", "P_", "P@5", "Rprec", "")
        ),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_generated(
    results: Any, gold_answers: Any, names: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        compat.eval(results, gold_answers, never, never, names)


@pytest.mark.parametrize("threshold", [0, -1, math.nan])
def test_a_threshold_that_cannot_be_is_told_before_anything_is_generated(threshold: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        compat.eval({"a": ["x"]}, {"a": []}, never, never, {"P_1"}, threshold=threshold)


@pytest.mark.parametrize("score", [math.nan, 1.5, -0.1, None, "0.5"])
def test_scores_that_are_no_numbers_in_range_are_refused_with_the_first_batch(score: Any) -> None:
    with pytest.raises(ValueError, match=r"must return numbers in 0..1, not .* \(query 'a', document 1\)"):
        compat.eval({"a": ["x", "y"]}, {"a": []}, repeat, lambda outputs, gold_answers: {"a": score}, {"P_1"})


def test_what_is_left_out_is_named() -> None:
    with pytest.raises(ValueError, match="text_generator left out 1 queries, such as 'b'"):
        compat.eval({"a": ["x"], "b": ["y"]}, {"a": [], "b": []}, lambda given: {"a": "x"}, never, {"P_1"})
    with pytest.raises(ValueError, match="downstream_metric left out 1 queries, such as 'a'"):
        compat.eval({"a": ["x"]}, {"a": []}, repeat, lambda outputs, gold_answers: {}, {"P_1"})


def test_a_misspelt_argument_is_an_error() -> None:
    with pytest.raises(TypeError, match="treshold"):
        compat.eval({"a": ["x"]}, {"a": []}, never, never, {"P_1"}, treshold=1)  # type: ignore[call-arg]
