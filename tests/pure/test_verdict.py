"""The verdict: what it says for settled, unsettled and odd comparisons, against tables computed from columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from evaluated import best_depths, comparisons, correlations, means, measured, numbered, settings, used
from hypothesis import given
from hypothesis import strategies as st

from erag_ray.agreement import detectable_difference, holm, round_up
from erag_ray.report import Results
from erag_ray.report.model import DatasetVerdict, Verdict
from erag_ray.report.verdict import standing, verdict
from erag_ray.schemas import COSTS, OUTPUTS

Utilities = Mapping[tuple[str, int], Sequence[float | None]]
NO_OUTPUTS = pl.DataFrame(OUTPUTS.empty())
NO_COSTS = pl.DataFrame(COSTS.empty())


def tables_of(utility: Utilities, labels: Mapping[str, Utilities] | None = None, **more: Any) -> Results:
    """Tables of runs by (run, depth) -> utility of each question, and by annotator the same of P."""
    columns = {("r", run, depth): values for (run, depth), values in utility.items()}
    count = len(next(iter(utility.values())))
    x = [
        measured({("r", *key): values for key, values in own.items()}, name)
        for name, own in (labels or {}).items()
    ]
    settled = settings(depths=sorted({depth for _, depth in utility}), confidence=0.95)
    tables = (pl.concat([measured({}), *x]), used(columns), numbered(count), settled)
    made = {
        "means": means(*tables),
        "comparisons": comparisons(*tables),
        "correlations": correlations(*tables),
        "best_depths": best_depths(used(columns), numbered(count), settled),
        "outputs": NO_OUTPUTS,
        "costs": NO_COSTS,
        "confidence": 0.95,
    }
    return Results(**{**made, **more})


def of_one(tables: Results) -> DatasetVerdict:
    (one,) = verdict(tables).datasets
    return one


def said(one: DatasetVerdict, topic: str) -> list[str]:
    return [finding.text for finding in one.findings if finding.topic == topic]


def test_a_run_that_is_better_than_every_other_one_is_named_as_the_best() -> None:
    one = of_one(tables_of({("A", 2): [1, 1, 1, 1, 0] * 8, ("B", 2): [1, 0, 0, 0, 0] * 8}))
    assert one.answer.startswith("A serves the reader best: exact_match .800 [")
    assert "with 2 documents, .600 above B [" in one.answer
    assert one.answer.endswith("p < .001")
    assert said(one, "certainty") == []


def test_the_difference_is_that_of_the_best_run_whatever_the_names() -> None:
    for first, second in (("A", "B"), ("B", "A")):
        tables = tables_of({(first, 2): [1, 1, 1, 0] * 10, (second, 2): [0, 0, 1, 0] * 10})
        (rival,) = standing(tables, "d").rivals  # type: ignore[union-attr]
        assert rival.run == second
        assert rival.difference == pytest.approx(0.5)
        assert rival.low is not None
        assert rival.high is not None
        assert 0 < rival.low < 0.5 < rival.high < 1


def test_two_runs_that_are_not_told_apart_are_named_with_the_questions_needed() -> None:
    a, b = [1, 0, 1, 0, 1, 1, 0, 0], [1, 0, 1, 0, 1, 0, 1, 0]
    c = [*a, 1.0], [*b, 0.0]
    one = of_one(tables_of({("A", 2): c[0], ("B", 2): c[1]}))
    assert one.answer.startswith("the two runs do not differ significantly: A leads with exact_match .556")
    differences = np.array(c[0]) - np.array(c[1])
    detectable = detectable_difference(differences)
    assert detectable is not None
    needed = 9 * (detectable / differences.mean()) ** 2
    assert said(one, "certainty") == [
        f"not settled with 9 questions; about {round_up(needed):,} would be needed for this difference"
    ]


def test_equal_runs_need_no_number_of_questions() -> None:
    one = of_one(tables_of({("A", 2): [1, 0, 1, 0], ("B", 2): [0, 1, 1, 0]}))
    assert said(one, "certainty") == ["not settled with 4 questions; A and B are equal here"]


def test_runs_that_share_the_lead_are_named_and_worse_ones_counted() -> None:
    utility = {
        ("A", 2): [1, 1, 1, 1, 0] * 8,
        ("B", 2): [1, 1, 1, 0, 0] * 7 + [1, 1, 1, 1, 1] + [0] * 0,
        ("C", 2): [0, 0, 0, 0, 0] * 7 + [1, 0, 0, 0, 0],
        ("D", 2): [0, 0, 0, 0, 0] * 7 + [0, 1, 0, 0, 0],
    }
    tables = tables_of(utility)
    one = of_one(tables)
    assert one.answer.startswith("A or B: A leads with")
    assert one.answer.endswith("; 2 runs are worse")


def test_no_pair_differs_is_an_answer() -> None:
    one = of_one(
        tables_of({(run, 2): np.roll([1, 0, 0, 1, 0, 1], k).tolist() for k, run in enumerate("ABC")})
    )
    assert one.answer.startswith("no two runs differ significantly: A leads with")


def test_choosing_among_depths_is_paid_for() -> None:
    a, b = [1, 1, 1, 1, 1, 1, 0, 0] * 2, [0, 0, 0, 1, 1, 1, 0, 0] * 2
    alone = standing(tables_of({("A", 2): a, ("B", 2): b}), "d")
    both = standing(tables_of({("A", 2): a, ("B", 2): b, ("A", 1): [0] * 16, ("B", 1): [0] * 15 + [1]}), "d")
    assert alone is not None
    assert both is not None
    assert (both.depth, both.num_depths) == (2, 2)
    assert alone.rivals[0].p is not None
    assert both.rivals[0].p == pytest.approx(2 * alone.rivals[0].p)


def test_p_values_are_those_of_holm_over_the_pairs_of_runs() -> None:
    generator = np.random.default_rng(3)
    utility = {
        (run, 2): (generator.random(30) < share).astype(float).tolist()
        for run, share in zip("ABC", (0.7, 0.5, 0.3), strict=True)
    }
    tables = tables_of(utility)
    rows = tables.comparisons.filter(annotator="end_to_end")
    expected = dict(
        zip(zip(rows["run_a"], rows["run_b"], strict=True), holm(rows["p_value"].to_numpy()), strict=True)
    )
    found = standing(tables, "d")
    assert found is not None
    for rival in found.rivals:
        first, second = sorted((found.runs[0], rival.run))
        assert rival.p == pytest.approx(expected[first, second])


def test_runs_that_never_score_are_no_answer() -> None:
    one = of_one(tables_of({("A", 2): [0, 0, 0], ("B", 2): [0, 0, 0]}))
    assert one.answer == "no run helps this reader: it never scores above 0 with 2 documents"
    assert said(one, "certainty") == []


def test_one_run_is_compared_with_nothing() -> None:
    one = of_one(tables_of({("A", 1): [1, 0, 1, 1]}))
    assert one.answer.startswith("A: exact_match .750 [")
    assert one.answer.endswith("with 1 document; there is no other run to compare it with")


def test_a_run_that_never_scores_has_no_test() -> None:
    one = of_one(tables_of({("A", 2): [1, 0, 1, 0], ("B", 2): [0, 0, 0, 0]}))
    assert "and B never scores above 0" in one.answer
    assert said(one, "certainty") == [
        "not settled with 4 questions; there is no test against B, which never scores above 0"
    ]


def test_one_question_settles_nothing() -> None:
    one = of_one(tables_of({("A", 2): [1], ("B", 2): [0]}))
    assert said(one, "certainty")[0].startswith("not settled with 1 question; ")


def test_the_reader_without_passages_may_be_better_than_any_run() -> None:
    utility = {
        ("A", 2): [1, 0, 0, 0],
        ("B", 2): [0, 1, 0, 0],
        ("no_passages", 0): [1, 1, 0, 0],
        ("gold_passages", 2): [1, 1, 1, 0],
    }
    one = of_one(tables_of(utility))
    (finding,) = [finding for finding in one.findings if finding.topic == "reader"]
    assert finding.is_warning
    assert finding.text == (
        "the reader scores .500 without passages and .750 with the gold passages; "
        "no run serves it better than no passages at all"
    )


def test_fewer_documents_are_named_where_they_serve_better_for_certain() -> None:
    utility = {("A", 2): [1, 1, 1, 0] * 5, ("A", 4): [0, 0, 1, 0] * 5}
    (text,) = said(of_one(tables_of(utility)), "depth")
    assert text.startswith("fewer documents serve it better: A with 2 is .500 [")
    assert text.endswith("above 4")
    assert said(of_one(tables_of({("A", 2): [1, 0], ("A", 4): [0, 0]})), "depth") == []


def test_labels_are_sorted_by_the_run_that_they_put_first() -> None:
    utility = {("A", 2): [1, 1, 0, 1], ("B", 2): [0, 1, 0, 0]}
    labels = {
        "erag": {("A", 2): [1, 0.5, 0, 1], ("B", 2): [0, 1, 0, 0]},
        "provenance": {("A", 2): [0, 0, 0, 0.5], ("B", 2): [0.5, 1, 0, 0]},
    }
    one = of_one(tables_of(utility, labels))
    assert said(one, "label") == ["labels (P@2) that put the same run first: erag; another: provenance (B)"]
    none = of_one(tables_of(utility, {"provenance": labels["provenance"]}))
    assert said(none, "label") == ["labels (P@2) that put another run first: provenance (B)"]
    (trust,) = said(one, "trust")
    assert trust == "agreement of P@2 with end-to-end (tau, A): erag .77 of at most .77, provenance .33"


def test_what_every_question_answers_alike_has_no_agreement() -> None:
    labels = {"erag": {("A", 2): [1, 0.5, 0, 1], ("B", 2): [0, 1, 0, 0]}}
    (text,) = said(of_one(tables_of({("A", 2): [1, 1, 1, 1], ("B", 2): [1, 1, 1, 1]}, labels)), "trust")
    assert text == "no label's agreement with end-to-end is defined: constant: every utility is 1.0"


def outputs(**changes: object) -> pl.DataFrame:
    row = {
        "dataset": "d", "reader": "r", "kind": "single_document", "depth": 1, "num_outputs": 100,
        "num_distinct": 40, "num_empty": 0, "num_at_limit": 0, "num_copied": 0, "num_misspelt": 0,
        "majority_answer": "yes", "majority_share": 0.3, "majority_score": 0.3,
    }  # fmt: skip
    return pl.DataFrame([{**row, **changes}], schema=NO_OUTPUTS.schema)


def test_odd_outputs_and_the_majority_are_warnings() -> None:
    utility = {("A", 2): [1, 0, 0, 0], ("B", 2): [0, 0, 0, 0]}
    one = of_one(tables_of(utility, outputs=outputs(num_empty=12, num_at_limit=25, majority_score=0.5)))
    assert said(one, "outputs") == [
        "of the reader's outputs 12% empty, 25% cut at max_new_tokens",
        "the commonest gold answer, 'yes', alone would score .500",
    ]
    assert said(of_one(tables_of(utility, outputs=outputs(majority_score=0.1))), "outputs") == []


def costs(**changes: object) -> pl.DataFrame:
    row = {
        "stage": "compare", "job": "j", "model": "m", "num_requests": 7329, "num_reader_calls": 12,
        "num_prompt_tokens": 1_700_000, "num_output_tokens": 90, "num_cached_prompt_tokens": 0,
        "price": None, "seconds": 9.0, "device_seconds": 174.0, "peak_memory_bytes": 0,
    }  # fmt: skip
    return pl.DataFrame([{**row, **changes}], schema=NO_COSTS.schema)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "cost: 7,329 requests, 12 of them new in the last run, 1.7 million prompt tokens, 2.9 min of reader time"),
        ({"num_reader_calls": 0}, "cost: 7,329 requests, 0 of them new in the last run"),
        (
            {"num_reader_calls": 0, "price": 1.25},
            "cost: 7,329 requests, 0 of them new in the last run, price 1.2500",
        ),
    ],
)  # fmt: skip
def test_the_cost_is_that_of_the_last_run(changes: dict[str, object], text: str) -> None:
    found: Verdict = verdict(tables_of({("A", 2): [1, 0]}, costs=costs(**changes)))
    assert [finding.text for finding in found.findings] == [text]


@given(st.floats(0.01, 1e9))
def test_rounding_up_never_promises_too_little(value: float) -> None:
    rounded = round_up(value)
    assert value <= rounded <= max(value * 1.1, value + 1)
