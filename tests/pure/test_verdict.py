"""The verdict: what it says for settled, unsettled and odd comparisons, against tables computed from columns."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import evaluated
import given_results
import hypothesis
import numpy as np
import polars as pl
import pytest
from given_results import standing_of
from hypothesis import given
from hypothesis import strategies as st
from scripts import import_script

from erag_ray.analyses.comparisons import COMPARISONS, SIGNIFICANT, run_differences
from erag_ray.analyses.contract import Results
from erag_ray.analyses.correlations import CORRELATIONS, informative
from erag_ray.analyses.costs import cost_text
from erag_ray.analyses.parts.formats import counted, rows_of_text
from erag_ray.analyses.parts.model import DatasetVerdict, Verdict
from erag_ray.analyses.parts.shapes import tables_of as tables_of_report
from erag_ray.extras.gate.config import GateConfig
from erag_ray.extras.gate.decide import decide
from erag_ray.extras.sequential_test.looks import critical_values, look
from erag_ray.measures.agreement import paired_test, round_up
from erag_ray.measures.scores import SCORES, Score
from erag_ray.report.build import build_report, views_of
from erag_ray.store.schemas import COSTS, OUTPUTS

Utilities = Mapping[tuple[str, int], Sequence[float | None]]
NO_OUTPUTS = OUTPUTS.empty()
NO_COSTS = COSTS.empty()


def tables_of(utility: Utilities, labels: Mapping[str, Utilities] | None = None, **more: Any) -> Results:
    """Tables of runs by (run, depth) -> utility of each question, and by annotator the same of P."""
    columns = {("r", run, depth): values for (run, depth), values in utility.items()}
    count = len(next(iter(utility.values())))
    x = [
        evaluated.measured({("r", *key): values for key, values in own.items()}, name)
        for name, own in (labels or {}).items()
    ]
    settled = evaluated.settings(depths=sorted({depth for _, depth in utility}), confidence=0.95)
    tables = (
        pl.concat([evaluated.measured({}), *x]),
        evaluated.used(columns),
        evaluated.numbered(count),
        settled,
    )
    made = {
        "means": evaluated.means(*tables),
        "comparisons": evaluated.comparisons(*tables),
        "correlations": evaluated.correlations(*tables),
        "contrasts": evaluated.contrasts(*tables),
        "best_depths": evaluated.best_depths(evaluated.used(columns), evaluated.numbered(count), settled),
        "outputs": NO_OUTPUTS,
        "costs": NO_COSTS,
    }
    return given_results.results(**{**made, **more})


def of_one(tables: Results) -> DatasetVerdict:
    (one,) = build_report(tables).verdict.datasets
    return one


def scores(rate: float, count: int, seed: int) -> list[float]:
    return (np.random.default_rng(seed).random(count) < rate).astype(float).tolist()


def said(one: DatasetVerdict, topic: str) -> list[str]:
    return [finding.text for finding in one.findings if finding.topic == topic]


def test_choosing_among_depths_is_paid_for() -> None:
    a, b = [1, 1, 1, 1, 1, 1, 0, 0] * 2, [0, 0, 0, 1, 1, 1, 0, 0] * 2
    alone = standing_of(tables_of({("A", 2): a, ("B", 2): b}), "d")
    both = standing_of(
        tables_of({("A", 2): a, ("B", 2): b, ("A", 1): [0] * 16, ("B", 1): [0] * 15 + [1]}), "d"
    )
    assert (both.depth, both.depths) == (2, [1, 2])
    assert both.rivals[0].p == pytest.approx(2 * alone.rivals[0].p)


NINE = [1, 0, 1, 0, 1, 1, 0, 0, 1], [1, 0, 1, 0, 1, 0, 1, 0, 0]
NUM_NEEDED = paired_test(np.subtract(*map(np.array, NINE)).astype(float)).num_needed(0.05)
ROLLED = {run: np.roll([1, 0, 0, 1, 0, 1], k).tolist() for k, run in enumerate("ABC")}
LEADING = {"A": [1, 1, 1, 1, 0] * 8, "B": [1, 1, 1, 0, 0] * 7 + [1] * 5}
ENGLISH = scores(0.5, 50, 3)
KOREAN = [
    1.0 if place in np.flatnonzero(np.array(ENGLISH) == 0)[:4] else one for place, one in enumerate(ENGLISH)
]
ANSWERS: list[tuple[Mapping[str, Sequence[float | None]], str, str | None]] = [
    # values of each run, the answer, and how certain it is; None: not looked at
    ({"A": [1, 1, 1, 1, 0] * 8, "B": [1, 0, 0, 0, 0] * 8},
     r"^A serves the reader best: exact_match \.800 \[.* with 2 documents, \.600 above B \[.*p < \.001$", ""),
    ({"good": [1] * 40, "bad": [0] * 40},
     r"^good serves .* 1\.000 \[.*with 2 documents, 1\.000 above bad \[\.824, 1\.000\], p < \.001$", ""),
    (dict(zip("AB", NINE, strict=True)),
     r"^the two runs do not differ significantly: A leads with exact_match \.556",
     f"not settled with 9 questions; about {NUM_NEEDED:,} would be needed for this difference"),
    ({"english": ENGLISH, "korean": KOREAN}, r", \.080 above english \[-\.039, \.192\], p \.125$",
     "not settled with 50 questions; about .*"),
    ({"A": [1, 0, 1, 0], "B": [0, 1, 1, 0]}, "", "not settled with 4 questions; A and B are equal here"),
    ({"A": [1, 0, 1, 0], "B": [0, 1, 1, 0], "C": [0, 0, 1, 0]}, "", r".* B are equal here; .*: about \d+ against C"),
    (
        {**LEADING, "C": [0] * 35 + [1, 0, 0, 0, 0], "D": [0] * 40},
        r"^A or B: A leads with exact_match \.800 \[.*, p \.141 \(Holm, 4 runs\); worse: C by \.775, D by \.800$",
        None,
    ),
    ({**ROLLED, "D": [1, 0, 0, 1, 0, 0]}, "^no two runs differ significantly: A, B and C lead equally with",
     None),
    (ROLLED, r"^A, B and C have the same mean: exact_match \.500 \[", None),
    ({"A": [0, 0, 0], "B": [0, 0, 0]}, r"^no run scores above 0: exact_match \.000 \[\.000, \.561\] with 2 documents$",
     ""),
    ({"A": [1, 0, 1, 1]}, r"^A: exact_match \.750 \[.* with 2 documents; there is no other run$", None),
    ({"A": [1], "B": [0]}, r"the two runs do not differ .*: A leads .* p 1\.000",
     "not settled with 1 question; .*"),
    ({"A": [1.0] * 20, "B": [1.0] * 20}, r"A and B have the same mean: exact_match 1\.000", None),
    ({"A": [1, None] * 20, "B": [1, 0, 0, 0] * 10}, "A serves the reader best: .* over 20 questions", None),
    ({"A": [None] * 20, "B": [1.0, 0.0] * 10}, "B: exact_match .500 .* no other run has a score there$",
     None),
    ({"A": [1.0] * 10 + [None] * 10, "B": [None] * 10 + [0.0] * 10},
     "no run leads: of A and B not all have scores on", None),
    ({"A": [1.0] + [None] * 39, "B": [0] * 40}, "",
     "not settled with 1 question; about 6 would be needed for this difference"),
    ({"A": [5, 3, 4, 100] * 10, "B": [1, 2, 5, 90] * 10}, r"A serves .* 3\.500 above B \[2\.\d+, 4\.", None),
    ({"A": [-5, -3] * 10, "B": [-6, -2] * 10}, r"A and B have the same mean: exact_match -4\.000", None),
    ({"A": [-0.0, 1] * 10, "B": [0, 1] * 10}, r"A and B have the same mean: exact_match \.500", None),
    # a mean of 0 is not a score of 0
    ({"A": [1, -1] * 20, "B": [-1, 1] * 20}, r"^A and B have the same mean: exact_match \.000 \[-", None),
    ({"A": [1] + [0] * 49, "B": [0] * 50}, r"do not differ significantly: A leads .* \.020 above B \[-",
     None),
    # the digits of a small difference and of its interval agree with the p-value
    ({"A": [1] * 5000, "B": [0] * 6 + [1] * 4994}, r", \.0012 above B \[\.0001, \.0026\], p \.031$", None),
]  # fmt: skip


@pytest.mark.parametrize(("values", "answer", "certainty"), ANSWERS)
def test_the_answer_and_how_certain_it_is(
    values: Mapping[str, Sequence[float | None]], answer: str, certainty: str | None
) -> None:
    one = of_one(tables_of({(run, 2): of_run for run, of_run in values.items()}))
    assert re.search(answer, one.answer)
    assert certainty is None or re.fullmatch(certainty, "\n".join(said(one, "certainty")))


def test_the_reader_without_passages_may_be_better_than_any_run() -> None:
    utility = {
        # as good, with another last digit of the mean
        ("A", 2): [0.1, 0.2, 0.3],
        ("B", 2): [0, 0, 0.1],
        ("no_passages", 0): [0.3, 0.2, 0.1],
        ("gold_passages", 2): [0.5, 0.5, 0.5],
    }
    one = of_one(tables_of(utility))
    (finding,) = [finding for finding in one.findings if finding.topic == "reader"]
    assert finding.is_warning
    assert finding.text == (
        "the reader scores .200 without passages and .500 with the gold passages; "
        "no run has a better mean than no passages at all"
    )


def test_fewer_documents_are_named_where_they_serve_better_for_certain() -> None:
    utility = {("A", 2): [1, 1, 1, 0] * 5, ("A", 4): [0, 0, 1, 0] * 5}
    (text,) = said(of_one(tables_of(utility)), "depth")
    assert text.startswith("fewer documents serve it better: A with 2 is .500 [")
    assert text.endswith("above 4")
    assert said(of_one(tables_of({("A", 2): [1, 0], ("A", 4): [0, 0]})), "depth") == []


def test_labels_are_sorted_by_the_run_that_they_put_first() -> None:
    utility = {("A", 2): [1, 1, 0, 1] * 5, ("B", 2): [0, 1, 0, 0] * 5}
    labels = {
        "erag": {("A", 2): [1, 0.5, 0, 1] * 5, ("B", 2): [0, 1, 0, 0] * 5},
        "provenance": {("A", 2): [0, 0, 0, 0.5] * 5, ("B", 2): [0.5, 1, 0, 0] * 5},
    }
    one = of_one(tables_of(utility, labels))
    assert said(one, "label") == ["labels (P@2) that put the same run first: erag; another: provenance (B)"]
    none = of_one(tables_of(utility, {"provenance": labels["provenance"]}))
    assert said(none, "label") == ["labels (P@2) that put another run first: provenance (B)"]
    (trust,) = said(one, "trust")
    assert re.sub(r" \[.*?\]", "", trust) == (
        "eRAG's label predicts the answers best (P@2, lists of A): tau .77 of at most .77; then provenance .33 of at "
        "most .33 (significantly worse)"
    )


def test_what_every_question_answers_alike_has_no_agreement() -> None:
    labels = {"erag": {("A", 2): [None] * 4}, "provenance": {("A", 2): [1, 0, 0, 1], ("B", 2): [0, 1, 0, 0]}}
    (text,) = said(of_one(tables_of({("A", 2): [1, 1, 1, 1], ("B", 2): [1, 1, 1, 1]}, labels)), "trust")
    assert text == "no label's agreement with end-to-end is shown: constant: every utility is 1.0"


def outputs(**changes: object) -> pl.DataFrame:
    row = {
        "dataset": "d", "reader": "r", "kind": "single_document", "depth": 1, "num_outputs": 100,
        "num_distinct": 40, "num_empty": 0, "num_at_limit": 0, "num_copied": 0, "num_misspelt": 0, "num_marked_up": 0,
        "majority_answer": "yes", "majority_share": 0.3, "majority_score": 0.3,
    }  # fmt: skip
    return pl.DataFrame([{**row, **changes}], schema=NO_OUTPUTS.schema)


def test_odd_outputs_and_the_majority_are_warnings() -> None:
    utility = {("A", 2): [1, 0, 0, 0], ("B", 2): [0, 0, 0, 0]}
    odd = outputs(num_empty=12, num_at_limit=25, num_misspelt=3, majority_score=0.5)
    one = of_one(tables_of(utility, outputs=odd))
    assert said(one, "outputs") == [
        "of the reader's outputs 12% empty, 25% cut at max_new_tokens, 3% an answer in another case or punctuation, "
        "which scores 0",
        "the most common gold answer, 'yes', alone would score .500",
    ]
    for few in (outputs(majority_score=0.1), outputs(majority_score=0.5, num_outputs=5)):
        assert said(of_one(tables_of(utility, outputs=few)), "outputs") == []


def costs(**changes: object) -> pl.DataFrame:
    row = {
        "stage": "compare", "job": "j", "model": "m", "num_requests": 7329, "num_reader_calls": 12,
        "num_prompt_tokens": 1_700_000, "num_output_tokens": 90, "num_cached_prompt_tokens": 0,
        "price": None, "seconds": 9.0, "device_seconds": 174.0, "peak_memory_bytes": 0,
    }  # fmt: skip
    return pl.DataFrame([{**row, **changes}], schema=NO_COSTS.schema)


@pytest.mark.parametrize(
    ("changes", "new"),
    [
        ({}, "12 of them new in the last run, 1.7 million prompt tokens, 2.9 min of reader time"),
        ({"num_reader_calls": 0}, "0 of them new in the last run"),
        ({"num_reader_calls": 0, "price": 1.25}, "0 of them new in the last run, price 1.2500"),
    ],
)
def test_the_cost_is_that_of_the_last_run(changes: dict[str, object], new: str) -> None:
    verdict: Verdict = build_report(tables_of({("A", 2): [1, 0]}, costs=costs(**changes))).verdict
    assert [finding.text for finding in verdict.findings] == [f"cost: 7,329 requests, {new}"]


def test_the_cost_of_all_runs_is_beside_that_of_the_last() -> None:
    before = [costs(num_requests=0, num_reader_calls=4650, price=1.25, job=job) for job in "ab"]
    assert cost_text(pl.concat([costs(), *before])) == (
        "7,329 requests, 12 of them new in the last run, 9,300 in 2 runs before; last run: 1.7 million prompt tokens, "
        "2.9 min of reader time; all runs: 5.1 million prompt tokens, 8.7 min of reader time, "
        "price 2.5000 of 9,300 of 9,312 requests (the others have none)"
    )


@given(st.floats(0.01, 1e9))
def test_rounding_up_never_promises_too_little(value: float) -> None:
    rounded = round_up(value)
    assert value <= rounded <= max(value * 1.1, value + 1)


# --- sentences that were false once ---


def test_a_run_that_scores_nowhere_is_worse_and_by_how_much_is_named() -> None:
    right = scores(0.75, 40, 0)
    utility = {
        ("noise50", 2): right,
        ("right", 2): [*right[3:], *right[:3]],
        ("poison50", 2): [0] * 40,
        ("half", 2): [value * other for value, other in zip(right, scores(0.5, 40, 1), strict=True)],
        ("most", 2): [value * other for value, other in zip(right, scores(0.8, 40, 2), strict=True)],
    }
    five = of_one(tables_of(utility))
    assert five.answer.startswith("noise50, right or most: noise50 and right lead equally with exact_match ")
    assert "; worse: half by ." in five.answer
    assert f"poison50 by {str(sum(right) / 40)[1:]:0<4}" in five.answer
    assert "1 others" not in five.answer


def test_runs_that_are_equal_at_the_best_depth_are_told_apart_at_another_one() -> None:
    shared, kept = scores(0.6, 50, 0), scores(0.8, 50, 1)
    utility = {
        ("noise50", 1): shared,
        ("right", 1): shared,
        ("noise50", 4): [value * other for value, other in zip(shared, scores(0.2, 50, 2), strict=True)],
        ("right", 4): [value * other for value, other in zip(shared, kept, strict=True)],
    }
    one = of_one(tables_of(utility))
    assert re.match(
        r"right serves the reader best: exact_match \.\d+ \[.*\] with 1 document, equal to noise50 there and \.\d+ "
        r"above noise50 \[\.\d+, \.\d+\], p < \.001 \(Holm, 2 depths\) with 4 documents$",
        one.answer,
    )
    # and where the order is another one at another depth, that is said
    crossed = {**utility, ("right", 1): [*[0.0] * 25, *shared[25:]]}
    texts = said(of_one(tables_of(crossed)), "depth")
    assert any(
        text.startswith("at other depths: with 4 documents noise50 is .") and " below right [" in text
        for text in texts
    )


def test_34_runs_are_told_apart_and_copies_of_them_change_nothing() -> None:
    runs = {(f"run{number:02}", 2): scores(0.15 + 0.7 * number / 33, 200, number) for number in range(34)}
    one = of_one(tables_of(runs))
    assert ": run33 leads with exact_match " in one.answer
    assert re.search(r"; worse: run\d+ by \.\d+(, run\d+ by \.\d+){4}, \d+ others$", one.answer)
    six = {key: column for key, column in runs.items() if int(key[0][3:]) % 6 == 0}
    echoes = {(f"{run}_echo{number}", 2): column for (run, _), column in six.items() for number in range(4)}
    alone, together = (
        tables_of(utility)[COMPARISONS].filter(annotator="end_to_end") for utility in (six, {**six, **echoes})
    )
    both = alone.join(together, on=["run_a", "run_b"], suffix="_echo")
    is_significant = both["p_adjusted"] <= 0.05
    assert 0 < is_significant.sum() < both.height
    assert (both["p_adjusted_echo"] <= 0.05).to_list() == is_significant.to_list()


@pytest.mark.parametrize("score", ["abstained", "error_rate", "match"])
def test_directions_of_scores_are_declared(score: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error_rate = Score(
        name="error_rate", function=lambda output, answers: 0.0, binary=True, normalises=False, sign=-1
    )
    monkeypatch.setitem(SCORES, "error_rate", error_rate)
    tables = tables_of({("A", 2): [1] * 30 + [0] * 10, ("B", 2): [0] * 35 + [1] * 5})
    renamed = {
        name: frame.with_columns(score=pl.lit(score)) if "score" in frame.columns else frame
        for name, frame in tables.tables.items()
    }
    one = of_one(replace(tables, tables=renamed))
    if score == "abstained":
        assert one.answer.startswith(
            "abstained is neither better nor worse with more, so no run is best by it; most: A, "
        )
        assert said(one, "certainty") == []
        assert {run.state for run in one.ranking} == {"not ranked"}
    elif score == "error_rate":
        assert one.answer.startswith("B serves the reader best: error_rate .125 [")
        assert ", .625 below A [" in one.answer


def test_labels_of_which_less_is_better_and_those_over_other_questions_are_apart() -> None:
    utility = {("A", 2): scores(0.8, 40, 0), ("B", 2): scores(0.3, 40, 1)}
    labels = {
        "erag": utility,
        "distracting": {("A", 2): scores(0.3, 40, 2), ("B", 2): scores(0.6, 40, 3)},
        "provenance": {("A", 2): [0] * 8 + [None] * 32, ("B", 2): [0.5] * 8 + [None] * 32},
        "usable": {("A", 2): [0.5] * 40, ("B", 2): [0.5] * 40},
    }
    one = of_one(tables_of(utility, labels))
    assert said(one, "label") == [
        "labels (P@2) that put the same run first: erag, distracting; several: usable (A and B); "
        "on other questions: provenance (B, 8 questions)"
    ]
    (trust,) = said(one, "trust")
    assert re.search(r"distracting -?\.\d+ \[.*\] \(less is better\)", trust)
    assert trust.index("tau 1.00") < trust.index("distracting")


def test_equal_agreements_and_missing_scores_are_no_order() -> None:
    utility = {("A", 2): scores(0.7, 40, 0), ("B", 2): scores(0.2, 40, 1)}
    (trust,) = said(of_one(tables_of(utility, {"erag": utility, "usable": utility})), "trust")
    assert re.search(r"then usable 1.00 .*\(equal here\)", trust)
    unlike = {name: {("A", 2): scores(0.5, 40, seed)} for name, seed in (("usable", 5), ("provenance", 6))}
    (trust,) = said(of_one(tables_of(utility, {"erag": utility, **unlike})), "trust")
    assert trust.count("(significantly worse)") == 2, "each against the first"
    few = {
        ("A", 2): [1.0] * 40,
        ("B", 2): [None] * 39 + [1.0],
        ("C", 2): [None] * 40,
        ("D", 2): [0.0] * 20 + [None] * 20,
    }
    one = of_one(tables_of(few))
    assert one.answer.startswith("A or B: A leads with exact_match 1.000 [.912, 1.000] with 2 documents")
    assert one.answer.endswith("; worse: D by 1.000")
    assert said(one, "missing") == [
        "not compared with A: C (no question has a score with 2 documents)",
        "scores on less than half as many questions as another run, too few to lead: B (1.000 over 1 question)",
    ]


def test_a_label_that_is_better_where_both_label_is_not_called_worse() -> None:
    of_run, count = scores(0.5, 200, 0), 60
    # erag is right about the first questions, and knows nothing of the others; usable labels only the first
    wrong = [abs(one - (number % 6 == 0)) for number, one in enumerate(of_run[:count])]
    erag, usable = [*of_run[:count], *scores(0.5, 140, 7)], [*wrong, *[None] * 140]
    labels = {"erag": {("A", 2): erag}, "usable": {("A", 2): usable}}
    (trust,) = said(of_one(tables_of({("A", 2): of_run}, labels)), "trust")
    assert trust.startswith("usable's label predicts the answers best")
    assert re.search(r"then erag .* \(significantly better on the questions that both label\)", trust)


def test_runs_are_compared_at_a_depth_that_most_of_them_have() -> None:
    of_one_depth = {("A", 2): scores(0.4, 40, 0), ("A", 1): [1.0] * 40, ("B", 2): scores(0.1, 40, 1)}
    one = of_one(tables_of(of_one_depth))
    assert (one.depth, [run.name for run in one.ranking][:2]) == (2, ["A", "B"])


def test_runs_that_lead_equally_are_told_apart_at_another_depth() -> None:
    half = scores(0.5, 40, 1)
    utility = {(run, 1): half for run in "ABC"} | {("A", 2): half, ("B", 2): [0] * 40, ("C", 2): half[::-1]}
    one = of_one(tables_of(utility))
    assert one.answer.startswith("A, B and C have the same mean: exact_match .500")
    text = re.sub(r" \[.*?\]", "", said(one, "depth")[0])
    tail = "above B, p < .001 (Holm, 3 runs, 2 depths)"
    assert text == (f"at other depths: with 2 documents A is .500 {tail}; with 2 documents C is .500 {tail}")


# --- agreement where it says something ---


def test_agreement_is_shown_only_if_five_questions_vary_and_the_label_is_not_the_score_itself() -> None:
    half = scores(0.5, 50, 0)
    few, five = ([1.0] * count + [0.0] * (50 - count) for count in (4, 5))
    utility = {("rare", 2): few, ("some", 2): five, ("half", 2): half, ("half", 1): half}
    labels = {
        "erag": {("rare", 2): few, ("some", 2): five, ("half", 2): few, ("half", 1): half},
        "provenance": {("half", 1): half[::-1], ("half", 2): half[::-1]},
    }
    tables = tables_of(utility, labels)
    shown = informative(tables[CORRELATIONS]).filter(over="queries", statistic="kendall_tau_b")
    values = {
        row[:3]: row[3:]
        for row in shown.select("annotator", "run_id", "depth", "value", "reason").iter_rows()
    }
    few_vary = (None, "4 of 50 questions differ from the rest, fewer than 5")
    assert values["erag", "rare", 2] == few_vary
    assert values["erag", "half", 2] == few_vary
    assert values["erag", "some", 2][0] == pytest.approx(1.0)
    assert values["erag", "half", 1] == (None, "with 1 document this label is the end-to-end score")
    assert values["provenance", "half", 1][0] is not None
    assert shown.drop_nulls("value")["ceiling"].null_count() == 0
    # the report shows no other ones
    parts = [one for one in tables_of_report(build_report(tables)) if one.name.startswith("correlations")]
    texts = [row for one in parts for row in rows_of_text(one)]
    assert texts
    assert not [row for row in texts if row[0] == "erag" and "1.000" in row[2] and "rare" in row[:2]]


def test_a_contrast_turns_the_sign_of_what_is_better_with_less() -> None:
    utility = {("r", "A", 2): scores(0.5, 60, 0)}
    worse = [1 - value for value in scores(0.5, 60, 0)]
    others = [evaluated.measured({("r", "A", 2): worse}, name) for name in ("distracting", "usable")]
    tables = pl.concat([evaluated.measured(utility), *others])
    plain = evaluated.tables_of(utility, utility, statistics=["kendall_tau_b"])
    made = evaluated.contrasts(tables, *plain[1:])
    rows = {row["annotator_b"]: row for row in made.filter(annotator_a="erag").iter_rows(named=True)}
    # equally good, and opposite
    assert rows["distracting"]["difference"] == pytest.approx(0.0)
    assert rows["usable"]["difference"] == pytest.approx(2.0)


def test_a_number_and_its_noun_agree() -> None:
    texts = [counted(*one) for one in ((1, "document"), (5, "document"), (1, "query"), (2000, "query"))]
    assert texts == ["1 document", "5 documents", "1 query", "2,000 queries"]


# --- no two places contradict each other ---

RATES = st.sampled_from([0.0, 0.1, 0.4, 0.5, 0.9, 1.0])


@hypothesis.settings(max_examples=25)
@given(st.lists(RATES, min_size=2, max_size=4), st.integers(1, 60), st.integers(0, 1000), st.booleans())
def test_verdict_gate_sequential_test_and_page_do_not_contradict_each_other(
    rates: list[float], count: int, seed: int, is_missing: bool
) -> None:
    generator = np.random.default_rng(seed)
    names = "ABCD"[: len(rates)]
    columns = {
        (run, depth): [
            None if is_missing and generator.random() < 0.2 else float(generator.random() < rate)
            for _ in range(count)
        ]
        for run, rate in zip(names, rates, strict=True)
        for depth in (1, 3)
    }
    tables = tables_of(columns)
    view = next(iter(views_of(tables)), None)
    if view is None or view.standing is None:
        return
    ranked, answer = view.standing, of_one(tables).answer
    figure = next(iter(run_differences(view)), None)
    for run, other in itertools.permutations(ranked.runs, 2):
        pairs = [
            pair
            for pair in zip(columns[run, ranked.depth], columns[other, ranked.depth], strict=True)
            if None not in pair
        ]
        values = np.array([a - b for a, b in pairs])
        one = ranked.pairs.between(run, other, ranked.depth)
        if one is None or not len(values):
            continue
        assert one.difference == pytest.approx(values.mean())
        if one.low is not None and one.high is not None:
            assert (one.low > 0 or one.high < 0) == one.is_significant
        is_better = one.is_significant and one.points > 0
        # the gate, with the other run as its baseline: the first is no worse, and the other one no better
        forward, backward = (
            decide({"d": sign * values}, GateConfig(margin=0.0))["d"].verdict for sign in (1, -1)
        )
        assert not (is_better and forward == "failed")
        assert not (is_better and backward == "passed")
        if len(values) >= 2:
            seen = look(values, [len(values)], critical_values("even", [len(values)], 0.05))
            assert not (is_better and seen.highs[-1] < 0)
        if figure is not None and is_better:
            row = figure.data.filter(documents=f"k = {ranked.depth}").filter(
                pl.col("pair").is_in([f"{run} - {other}", f"{other} - {run}"])
            )
            assert row["test"].to_list() == [SIGNIFICANT]
    if "serves the reader best" in answer:
        assert all(rival.state == "worse" or rival.state == "equal" for rival in ranked.rivals)
    if "no two runs differ" in answer or "do not differ" in answer:
        assert not ranked.pairs.any_significant(ranked.depth)
    for rival in ranked.of_state("worse"):
        assert rival.run in answer or "others" in answer


def test_false_statements_are_rare_in_small_worlds() -> None:
    simulation = import_script("notebooks/verdicts.py")
    for kind in simulation.KINDS:
        for num_runs, count in ((2, 30), (6, 60)):
            worlds = (simulation.world(kind, num_runs, count, seed) for seed in range(20))
            every = [simulation.counts_of(world) for world in worlds]
            # 5 % of 20, by a bound that chance passes once in 10,000 tests
            assert sum(one.is_wrong for one in every) <= 6, (kind, num_runs)
            num_missed, num_pairs = (
                sum(getattr(one, key) for one in every) for key in ("num_missed", "num_pairs")
            )
            assert num_missed <= 0.15 * num_pairs, (kind, num_runs)
