"""What is sealed of what a reader wrote: alone and with lists, for the page's look at one question."""

from __future__ import annotations

import pytest
from tiny import Tiny, compare, table

from erag_ray.store.schemas import DOCUMENT_OUTPUTS, LIST_OUTPUTS, RUNS, UTILITY


@pytest.fixture
def compared(tiny: Tiny, reads_here: list[int]) -> Tiny:
    """A finished job: the echo reader writes the title of the passage that shares most words with the question."""
    compare(tiny)
    return tiny


@pytest.mark.long
def test_the_outputs_with_single_documents_are_sealed(compared: Tiny) -> None:
    outputs = table(compared, DOCUMENT_OUTPUTS)
    found = {(row["query_id"], row["doc_id"]): row["output"] for row in outputs.iter_rows(named=True)}
    assert found["q1", "d1"] == "Ada Brunner"
    assert found["q1", "d2"] == "Marn"
    pairs = table(compared, RUNS).select("query_id", "doc_id").unique()
    assert set(found) == set(pairs.iter_rows())


def test_the_outputs_with_lists_have_the_rows_of_utility(compared: Tiny) -> None:
    key = ["reader", "run_id", "query_id", "depth"]
    outputs, used = table(compared, LIST_OUTPUTS), table(compared, UTILITY)
    assert outputs.select(key).equals(used.select(key))
    assert {"no_passages", "gold_passages", "good", "bad"} == set(outputs["run_id"])
    deep = outputs.filter(run_id="good", query_id="q1", depth=3)
    # d2 shares five words with the question, d1 four
    assert deep["output"].to_list() == ["Marn"]


def test_a_depth_of_one_and_a_document_alone_are_one_row(tiny: Tiny, reads_here: list[int]) -> None:
    compare(tiny.with_config(end_to_end_depths=[1]))
    outputs = table(tiny, DOCUMENT_OUTPUTS)
    assert outputs.select("query_id", "doc_id").is_unique().all()


def test_without_erag_only_lists_of_one_document_give_an_output_alone(
    tiny: Tiny, reads_here: list[int]
) -> None:
    compare(tiny.with_config(annotators=["provenance"], end_to_end_depths=[3]))
    pairs = table(tiny, DOCUMENT_OUTPUTS).select("query_id", "doc_id")
    # the only document of a list, in both runs, and gold passages that come alone
    assert {("q5", "d9"), ("q5", "d11")} <= set(pairs.iter_rows())
    assert ("q1", "d11") not in set(pairs.iter_rows())
