"""KILT's page measures and hits, by hand."""

from __future__ import annotations

import polars as pl
import pytest

from erag_ray.evaluate import hit_values, page_values, sanity

# passages by page, in the order of the list: C X A A B
CORPUS = pl.DataFrame(
    {
        "doc_id": ["c1", "x1", "a1", "a2", "b1", "n1"],
        "page_id": ["C", "X", "A", "A", "B", None],
    }
)


def runs_of(**lists: str) -> pl.DataFrame:
    rows = [(run, "q", rank, doc) for run, docs in lists.items() for rank, doc in enumerate(docs.split(), 1)]
    return pl.DataFrame(
        rows,
        schema={"run_id": pl.String, "query_id": pl.String, "rank": pl.Int32, "doc_id": pl.String},
        orient="row",
    )


def sets_of(*outputs: str) -> pl.DataFrame:
    rows = [("q", number, page) for number, pages in enumerate(outputs) for page in pages]
    return pl.DataFrame(
        rows, schema={"query_id": pl.String, "output": pl.Int32, "page_id": pl.String}, orient="row"
    )


def values(runs: pl.DataFrame, sets: pl.DataFrame, *cutoffs: int) -> dict[tuple[str, str, int], float]:
    found = page_values(runs, CORPUS, sets, cutoffs)
    return {(run, measure, cutoff): value for run, _, measure, cutoff, value in found.rows()}


def test_r_precision_is_that_of_the_best_output() -> None:
    runs = runs_of(one="c1 x1 a1 a2 b1", two="x1 a2 n1 b1 a1")
    found = values(runs, sets_of("AB", "C"), 1)
    # one: {A, B} has none of its two among C, X; {C} has its one. two: A is second, without the page-less one
    assert found["one", "kilt_r_precision", 0] == 1.0
    assert found["two", "kilt_r_precision", 0] == 0.5
    assert values(runs, sets_of("AB"), 1)["one", "kilt_r_precision", 0] == 0.0


@pytest.mark.parametrize(("cutoff", "share"), [(1, 0.5), (2, 0.5), (3, 0.5), (4, 1.0), (9, 1.0)])
def test_recall_counts_a_set_at_its_last_page_and_equal_sets_once(cutoff: int, share: float) -> None:
    # the pages are C X A B: {A, B} is whole at 4, in whichever order and how often it is named
    found = values(runs_of(one="c1 x1 a1 a2 b1"), sets_of("AB", "C", "BA"), cutoff)
    assert found["one", "kilt_recall", cutoff] == share


def test_hits_are_those_of_the_first_good_document() -> None:
    labels = pl.DataFrame(
        {"query_id": ["q", "q", "q"], "doc_id": ["c1", "a2", "b1"], "label": [0.0, 1.0, 1.0]}
    )
    found = hit_values(labels, runs_of(one="c1 x1 a1 a2 b1", two="x1"), [3, 4])
    assert sorted(found.rows()) == [("one", "q", 3, 0.0), ("one", "q", 4, 1.0)]


def test_every_question_counts_for_every_run() -> None:
    values_of = pl.DataFrame(
        {"run_id": ["one"], "query_id": ["q"], "measure": ["hit"], "cutoff": [1], "value": [1.0]},
        schema_overrides={"cutoff": pl.Int32},
    )
    counted = pl.DataFrame({"dataset": ["d"] * 4, "query_id": list("qrst"), "measure": ["hit"] * 4})
    found = sanity(values_of, counted, ["one", "two"])
    assert found.select("run_id", "value", "num_queries").rows() == [("one", 0.25, 4), ("two", 0.0, 4)]
