"""KILT's page measures and hits, by hand."""

import polars as pl
import pytest
import ranked_lists
from gold import gold_of
from hypothesis import given, settings
from hypothesis import strategies as st

from erag_ray.analyses.retrieval_measures import hit_values, mean_retrieval_measures, page_values
from erag_ray.annotators import PAIR, Evidence

# passages by page, in the order of the list: C X A A B
CORPUS = pl.DataFrame(
    {"doc_id": ["c1", "x1", "a1", "a2", "b1", "n1"], "page_id": ["C", "X", "A", "A", "B", None]}
)


def runs_of(**lists: str) -> pl.DataFrame:
    return ranked_lists.runs_of({run: {"q": docs} for run, docs in lists.items()})


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


def kilt_recall(pages: str, sets: list[str], k: int) -> float:
    """KILT's definition as its code has it: a list of points, in which a set's point moves to its latest page."""
    left = [
        set(one) for place, one in enumerate(sets) if set(one) not in [set(other) for other in sets[:place]]
    ]
    count, points = len(left), []
    for page in pages:
        holders = [number for number, one in enumerate(left) if page in one]
        for number in holders:
            left[number].remove(page)
            points = [point for point in points if point != number]
            points.append(number if left[number] else "whole")
        if not holders:
            points.append("other")
    return points[:k].count("whole") / count


@settings(max_examples=150)
@given(
    st.permutations("ABCDXYZ").flatmap(
        lambda order: st.integers(0, 7).map(lambda size: "".join(order[:size]))
    ),
    st.lists(st.lists(st.sampled_from("ABCD"), min_size=1, max_size=3, unique=True), min_size=1, max_size=4),
    st.integers(1, 8),
)
def test_recall_is_that_of_kilts_own_rule(pages: str, sets: list[list[str]], k: int) -> None:
    corpus = pl.DataFrame({"doc_id": list("ABCDXYZ"), "page_id": list("ABCDXYZ")})
    runs = runs_of(one=" ".join(pages)) if pages else runs_of(one="X")
    found = page_values(runs, corpus, sets_of(*["".join(one) for one in sets]), [k])
    (value,) = found.filter(measure="kilt_recall")["value"]
    assert value == pytest.approx(kilt_recall(pages or "X", ["".join(one) for one in sets], k))


def test_lists_of_which_no_document_has_a_page_are_not_judged() -> None:
    runs = runs_of(none="n1", some="n1 c1", outside="x1")
    # a null page_id of the runs themselves, as their files have, says nothing
    found = page_values(runs.with_columns(page_id=pl.lit(None, pl.String)), CORPUS, sets_of("C"), [1])
    by_run = {run: set(part["value"]) for (run,), part in found.group_by("run_id")}
    assert by_run == {"none": {None}, "some": {1.0}, "outside": {0.0}}


def test_hits_are_success_by_the_annotators_labels() -> None:
    texts = CORPUS.with_columns(title=pl.lit(""), text=pl.col("doc_id"))
    queries = pl.DataFrame({"query_id": list("qrs"), "dataset": "d", "score": "exact_match"})
    lists = {"q": "x1 n1 a2", "r": "n1 a1"}
    runs = pl.concat([runs_of(one=docs).with_columns(query_id=pl.lit(name)) for name, docs in lists.items()])
    provenance = gold_of(pages=[("q", "A"), ("s", "A")], documents=[("r", "a1")])
    evidence = Evidence(pairs=runs.select(PAIR), queries=queries, corpus=texts, provenance=provenance)
    applicable, found = hit_values("provenance", evidence, runs, [1, 2, 3])
    assert applicable["query_id"].to_list() == ["q", "r", "s"]
    by_query = {
        query: part.sort("cutoff")["value"].to_list() for (query,), part in found.group_by("query_id")
    }
    # n1 has no page, so nothing is known of q from there on; r names a document, which needs none; s has no list
    assert by_query == {"q": [0.0, None, None], "r": [0.0, 1.0, 1.0], "s": [0.0, 0.0, 0.0]}


def test_every_question_counts_for_every_run() -> None:
    values_of = pl.DataFrame(
        {"run_id": "one", "query_id": ["q", "t"], "measure": "hit", "cutoff": 1, "value": [1.0, None]},
        schema_overrides={"cutoff": pl.Int32},
    )
    asked = pl.DataFrame({"dataset": ["d"] * 4, "query_id": list("qrst"), "measure": ["hit"] * 4})
    counted = asked.join(pl.DataFrame({"cutoff": pl.Series([1, 5], dtype=pl.Int32)}), how="cross")
    found = mean_retrieval_measures(values_of, counted, ["one", "two"])
    # a question without a list counts 0, one that is not judged does not count
    assert found.select("run_id", "cutoff", "value", "num_queries", "num_dropped").rows() == [
        ("one", 1, 1 / 3, 3, 1),
        ("one", 5, 0.0, 4, 0),
        ("two", 1, 0.0, 4, 0),
        ("two", 5, 0.0, 4, 0),
    ]
