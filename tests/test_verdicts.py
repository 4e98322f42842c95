"""People's verdicts: kappa and alpha against published values, means corrected by them, and wrong files."""

import gzip
import json
import pathlib
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats
from tiny import RIGHT, Tiny, compare, make_tables, table
from towns import towns

import erag_ray as er
from erag_ray.config.reader import ReaderConfig
from erag_ray.extras.credit.orders import ORDER_EFFECTS
from erag_ray.extras.verdicts import agreement
from erag_ray.extras.verdicts.stage import check, make_verdicts
from erag_ray.measures.agreement import resample_weights
from erag_ray.store.schemas import LIST_OUTPUTS
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError

OPENQA = pathlib.Path(__file__).parent / "data" / "openqa_301"
CLOSE = pytest.approx


def test_alpha_of_a_published_example() -> None:
    # Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), A: .095
    meg, owen = np.array([0, 1, 0, 0, 0, 0, 0, 0, 1, 0]), np.array([1, 1, 1, 0, 0, 1, 0, 0, 0, 0])
    accepted = (meg + owen).astype(float)
    sums = agreement.verdict_sums(accepted, 2 - accepted)
    assert agreement.alpha(sums.sum(axis=0)) == CLOSE(1 - 19 * 4 / (14 * 6))
    # an item with one verdict changes nothing
    alone = agreement.verdict_sums(np.array([1.0]), np.array([0.0]))
    assert agreement.alpha(np.concatenate([sums, alone]).sum(axis=0)) == agreement.alpha(sums.sum(axis=0))


def test_intervals_draw_questions() -> None:
    generator = np.random.default_rng(7)
    items, questions = generator.random((60, 2)) < 0.5, np.sort(generator.integers(20, size=60))
    questions = np.unique(questions, return_inverse=True)[1]
    weights = resample_weights(int(questions.max()) + 1, 300, 3)
    count = weights.shape[1]
    value, low, high = agreement.with_interval(
        agreement.kappa, agreement.pair_counts(items), questions, weights, 0.9, count
    )
    drawn = [naive_kappa(items.repeat(draw[questions], axis=0)) for draw in weights]
    tail = stats.norm.cdf(stats.t.ppf(0.05, count - 1) * np.sqrt(count / (count - 1)))
    assert value == CLOSE(naive_kappa(items))
    assert (low, high) == CLOSE(tuple(np.quantile(drawn, [tail, 1 - tail])))


def test_there_is_no_interval_where_too_many_resamples_have_no_value() -> None:
    # one of six questions differs: a third of the resamples lacks it
    items, questions = np.array([[True, True]] * 5 + [[False, False]]), np.arange(6)
    weights = resample_weights(6, 300, 3)
    assert agreement.with_interval(
        agreement.kappa, agreement.pair_counts(items), questions, weights, 0.9, 6
    ) == (1.0, None, None)
    # nor where all questions are one cluster
    of_one = resample_weights(6, 300, 3, np.zeros(6, np.int64))
    halves = np.array([[True, True]] * 3 + [[False, False]] * 2 + [[True, False]])
    value, *ends = agreement.with_interval(
        agreement.kappa, agreement.pair_counts(halves), questions, of_one, 0.9, 6
    )
    assert (value is not None, ends) == (True, [None, None])


def naive_kappa(items: Any) -> float:
    agree = np.mean(items[:, 0] == items[:, 1])
    one, other = items.mean(axis=0)
    chance = one * other + (1 - one) * (1 - other)
    return float((agree - chance) / (1 - chance))


def compare_items(folder: pathlib.Path, raters: list[int] | None) -> pl.DataFrame:
    """PEOPLE of the published outputs; raters: those of the annotators (None: the source's final verdicts)."""
    with gzip.open(OPENQA / "human.jsonl.gz", "rt", encoding="utf-8") as lines:
        items = list(map(json.loads, lines))
    number, outputs, verdicts = Counter[str](), [], []
    for item in items:
        # each distinct output of a question as that of another system
        number[item["query_id"]] += 1
        key = {"query_id": item["query_id"], "run": str(number[item["query_id"]])}
        outputs.append(key | {"output": item["output"]})
        if raters is None:
            verdicts.append(key | {"accepted": item["accepted"]})
        given = [(at, item["verdicts"][at]) for at in raters or []]
        verdicts += [key | {"annotator": at, "verdict": one} for at, one in given if one is not None]
    path = folder / "verdicts.jsonl"
    path.write_text("\n".join(map(json.dumps, verdicts)))
    keys = {
        "num_resamples": 100,
        "progress": False,
        "cache_dir": str(folder / "cache"),
        "annotators": ["erag"],
    }
    result = er.compare(
        questions=[str(OPENQA / "questions.jsonl.gz")],
        outputs=outputs,
        verdicts=[str(path)],
        out=str(folder / "out"),
        **keys,
    )
    return result.people.filter(run_id="")


def test_published_agreement_with_people(tmp_path: pathlib.Path, no_reader: None) -> None:
    rows = {row["rater"]: row for row in compare_items(tmp_path, None).to_dicts()}
    expected = {
        "exact_match": 0.3426947331632714,
        "match": 0.5069180434938259,
        "token_f1": 0.4527062684860991,
    }
    assert {rater: row["value"] for rater, row in rows.items()} == CLOSE(expected, abs=1e-10)
    assert {row["num_items"] for row in rows.values()} == {1490}
    match = rows["match"]
    counts = [match[f"num_{name}"] for name in ("both", "only_rater", "only_people", "neither")]
    assert sum(counts) == 1490
    assert (counts[0] + counts[1], counts[0] + counts[2]) == (497, 816)
    assert match["low"] < match["value"] < match["high"]
    verdict = er.Result(str(tmp_path / "out")).verdict
    assert "match agrees with people at .507 [" in verdict
    assert "(Cohen's kappa, 1,490 outputs)" in " ".join(verdict.split())


def test_published_agreement_among_people(tmp_path: pathlib.Path, no_reader: None) -> None:
    two = compare_items(tmp_path, [0, 1]).filter(rater="people").to_dicts()[0]
    assert (two["statistic"], two["num_items"]) == ("kappa", 1483)
    assert two["value"] == CLOSE(0.7347191886315956, abs=1e-10)
    three = compare_items(tmp_path, [0, 1, 2]).filter(rater="people").to_dicts()[0]
    assert three["statistic"] == "alpha"
    assert three["low"] < three["value"] < three["high"]


def judged(tiny: Tiny, records: list[dict[str, Any]], **changes: Any) -> Tiny:
    path = tiny.folder / "verdicts.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    return tiny.with_config(verdicts=[str(path)], **changes)


def test_outputs_and_documents_of_a_comparison(compared: Tiny, no_reader: None) -> None:
    # people find right what is right, but for one output; and every document of two
    runs = ("good", "bad")
    records = [
        {
            "query_id": name,
            "run": run,
            "depth": 3,
            "verdict": (name in RIGHT[run, 3]) != (run == "bad" and name == "q1"),
        }
        for run in runs
        for name in ("q1", "q2", "q3", "q4", "q5")
    ]
    records += [{"query_id": "q1", "doc_id": name, "verdict": 1} for name in ("d1", "d2")]
    records += [
        {"query_id": "q1", "doc_id": "d77", "verdict": 1},
        {"query_id": "q1", "run": "third", "verdict": 1},
        {"query_id": "Q2", "run": "good", "verdict": 1},
        # of the list of 3 documents too, which has a verdict that says so
        {"query_id": "q1", "run": "bad", "verdict": "q1" in RIGHT["bad", 3]},
    ]
    tiny = judged(compared, records)
    compare(tiny)
    store = TableStore(tiny.config.out)
    rows = store.read(agreement.PEOPLE)
    of_outputs = rows.filter(about="outputs", rater="exact_match", run_id="").to_dicts()[0]
    counts = [of_outputs[f"num_{name}"] for name in ("both", "only_rater", "only_people", "neither")]
    assert counts == [5, 0, 1, 4]
    assert of_outputs["value"] == CLOSE(naive_kappa(np.array([[1, 1]] * 5 + [[0, 1]] + [[0, 0]] * 4)))
    assert not rows.filter(rater="people").height
    erag = rows.filter(about="documents", rater="erag").to_dicts()
    assert [row["run_id"] for row in erag] == [""]
    assert (erag[0]["num_items"], erag[0]["num_both"], erag[0]["num_only_people"]) == (2, 1, 1)
    assert (erag[0]["value"], erag[0]["reason"]) == (None, "all verdicts are the same")
    notes = store.manifest(agreement.PEOPLE)["config"]["notes"]
    unused = "verdicts: 3 of 15 are on outputs or documents that the job does not have, and not used"
    assert notes == [f"{unused} (such as query 'q1', document 'd77')"]
    means = {(row["run_id"], row["depth"]): row for row in store.read(agreement.PEOPLE_MEANS).to_dicts()}
    assert {*means} == {("good", 3), ("bad", 3)}
    # too few verdicts for a prediction: the sum of those that there are, by their share
    assert means["bad", 3]["judged"] == CLOSE(2 / 5)
    assert means["bad", 3]["corrected"] == CLOSE(2 / 5)
    text = pathlib.Path(tiny.config.out, "report.md").read_text()
    assert "exact\\_match agrees with people at .800" in text


def test_verdicts_that_are_all_the_same_have_a_reason(compared: Tiny, no_reader: None) -> None:
    records = [{"query_id": "q2", "run": run, "verdict": True} for run in ("good", "bad")]
    tiny = judged(compared, records, language="th")
    compare(tiny)
    rows = TableStore(tiny.config.out).read(agreement.PEOPLE)
    row = rows.filter(about="outputs", rater="exact_match:th", run_id="").to_dicts()[0]
    assert (row["value"], row["reason"]) == (None, "all verdicts are the same")
    assert {*rows.filter(about="outputs")["rater"]} == {"exact_match:th", "match:th", "token_f1:th"}
    # who abstains is not right, and not wrong
    compare(judged(compared, records, score="abstained"))
    raters = TableStore(tiny.config.out).read(agreement.PEOPLE).filter(about="outputs")["rater"]
    assert {*raters} == {"exact_match", "match", "token_f1"}
    with pytest.raises(
        InputError, match="verdicts: 1 of 1 are on outputs or documents that the job does not"
    ):
        compare(judged(tiny, [{"query_id": "q2", "run": "third", "verdict": True}]))


def test_people_see_the_first_of_several_answers(tmp_path: pathlib.Path, reads_here: list[int]) -> None:
    reader = ReaderConfig(kind="failing:Changes")
    changes: dict[str, Any] = {"repeats": 3, "max_error_fraction": 1.0, "orders": ["reversed"]}
    make_tables(tiny := towns(tmp_path, {"good": 65}, 100).with_config(reader=reader, **changes))
    assert table(tiny, ORDER_EFFECTS)["share_changed"].max() == 0  # reversed, one document is the same
    answers = table(tiny, LIST_OUTPUTS, run_id="good").drop_nulls("output")
    first = {row["query_id"]: row["output"] == f"Person {row['query_id'][1:]}" for row in answers.to_dicts()}
    verdicts = [{"query_id": name, "run": "good", "verdict": is_right} for name, is_right in first.items()]
    make_tables(tiny := judged(tiny, verdicts))
    row = table(tiny, agreement.PEOPLE, rater="exact_match", run_id="").to_dicts()[0]
    assert (row["num_both"], row["num_neither"]) == (sum(first.values()), len(first) - sum(first.values()))


@pytest.mark.parametrize(
    ("verdicts", "corrected", "least", "most"),
    # a line is fitted from 20 others on; resamples may have two verdicts twice; equal ones are as sure as by Wilson
    [([1.0, 0.0] * 10, 0.5, 0.1, 0.9), ([1.0] * 2, 1.0, 0.0, 1.0), ([0.0] * 25, 0.0, 0.0, 0.133)],
)
def test_few_verdicts_or_equal_ones(
    verdicts: list[float], corrected: float, least: float, most: float
) -> None:
    settings: Any = SimpleNamespace(num_resamples=200, seed=0, confidence=0.95, clusters=None)
    columns = {"query_id": list(map(str, range(100))), "value": [0.0, 1.0] * 50}
    rows = pl.DataFrame(columns).with_columns(
        verdict=pl.Series(verdicts).extend_constant(None, 100 - len(verdicts))
    )
    row: Any = agreement._corrected(settings, rows)
    assert row["corrected"] == CLOSE(corrected)
    assert least - 0.001 < row["low"] < row["high"] < most + 0.001


def test_corrected_means_are_those_of_people() -> None:
    generator = np.random.default_rng(1)
    people = (generator.random(2000) < 0.7).astype(float)
    score = np.where(generator.random(2000) < 0.7, people, 0.0)
    settings = SimpleNamespace(num_resamples=200, seed=0, confidence=0.95, clusters=None)
    corrected, inside = [], 0
    for _ in range(40):
        is_judged = generator.random(2000) < 0.2
        columns = {"query_id": list(map(str, range(2000))), "value": score, "verdict": people}
        verdict = pl.when(pl.Series(is_judged)).then("verdict")
        rows = pl.DataFrame(columns).with_columns(verdict.alias("verdict"))
        row: Any = agreement._corrected(settings, rows)  # type: ignore[arg-type]
        corrected.append(row["corrected"])
        inside += row["low"] <= people.mean() <= row["high"]
    assert score.mean() < 0.55
    assert np.mean(corrected) == CLOSE(people.mean(), abs=0.01)
    assert inside >= 34


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([], ["verdicts: there is none in", "verdicts.jsonl"]),
        ([{"query_id": "q1", "run": "a", "verdict": "yes"}], [":1", "verdict is 'yes'", "true, false"]),
        ([{"query_id": "q1", "run": "a"}], [":1", "verdict is missing"]),
        ([{"query_id": "q1", "run": "a", "verdict": None}], [":1", "verdict is None"]),
        ([{"query_id": "q1", "verdict": 1}], [":1", "run_id is missing"]),
        ([{"run": "a", "verdict": 1}], [":1", "query_id is missing"]),
        ([{"query_id": "q1", "run": "a", "verdict": 1, "depth": -1}], [":1", "depth is -1"]),
        (
            [{"query_id": "q1", "run": "a", "verdict": 1}] * 2,
            [":2", "repeats the verdict at", "name each in annotator"],
        ),
        ([{"query_id": "q1", "run": "a", "verdict": 1, "annotator": one} for one in ("7", 7.0)], ["by '7'"]),
    ],
)
def test_what_is_wrong_with_verdicts_is_named(tiny: Tiny, records: Any, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        check(judged(tiny, records).config)
    for word in words:
        assert word in str(caught.value)


def test_verdicts_numbered_from_0_for_questions_from_1_are_refused(tiny: Tiny) -> None:
    records = [{"query_id": str(number), "run": "a", "verdict": 1} for number in (0, 1)]
    queries = pl.DataFrame({"query_id": ["1", "2"]})
    job = SimpleNamespace(config=judged(tiny, records).config, inputs=SimpleNamespace(queries=queries))
    with pytest.raises(InputError, match="verdicts: the file is of questions numbered from 0, but the quest"):
        list(make_verdicts(job, None))  # type: ignore[arg-type]
