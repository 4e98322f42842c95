"""Answers that are asked for several times: the means over them, their spread, and what is said of greedy readers."""

from __future__ import annotations

import dataclasses
import pathlib
from collections import Counter
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from misbehaving_server import MisbehavingServer
from served_jobs import config_of, runs_here, server, titles
from test_given import outputs_of, with_outputs
from test_judged_score import WORDS, answer, judged, word
from tiny import QUESTIONS, RunJob, Tiny, compare, make_tables, table, tables_text

from erag_ray.analyses.means import MEANS
from erag_ray.analyses.repeats import repeat_spreads
from erag_ray.config.reader import ReaderConfig
from erag_ray.models.echo import EchoModel
from erag_ray.prompts.request import Failure, Request, Response
from erag_ray.store.schemas import LABELS, LIST_OUTPUTS, REPEATS, UTILITY

__all__ = ["judged", "runs_here", "server"]
LIST = ["run_id", "query_id", "depth"]
Answer = Callable[[EchoModel, Request], Response]
answer_of_echo = EchoModel.answer


def by_repeat(self: EchoModel, request: Request) -> Response:
    """The echo reader, which says nothing to half of the questions the second and third time."""
    found = answer_of_echo(self, request)
    is_odd = request.form.repeat and len(request.question) % 2
    return dataclasses.replace(found, text="nothing") if is_odd else found


@pytest.fixture
def changing(monkeypatch: pytest.MonkeyPatch, reads_here: list[int]) -> None:
    monkeypatch.setattr(EchoModel, "answer", by_repeat)


def test_the_score_of_a_list_is_the_mean_over_its_answers(tiny: Tiny, changing: None) -> None:
    make_tables(tiny)
    once, labels = table(tiny, UTILITY), table(tiny, LABELS)
    assert table(tiny, REPEATS).is_empty()
    thrice = tiny.with_config(repeats=3)
    make_tables(thrice)
    repeats, mean = table(thrice, REPEATS), table(thrice, UTILITY)
    assert repeats.height == 3 * once.height
    # written out: the first answer is that of the job without repeats, and odd questions lose the other two
    odd = {name for name, (question, *_) in QUESTIONS.items() if len(question) % 2}
    assert 0 < len(odd) < 6
    for row, before in zip(mean.sort(LIST).rows(named=True), once.sort(LIST).rows(named=True), strict=True):
        assert row["value"] == (before["value"] / 3 if row["query_id"] in odd else before["value"])
    assert table(thrice, LIST_OUTPUTS).equals(table(tiny, LIST_OUTPUTS))
    assert table(thrice, LABELS).equals(labels)
    means = table(thrice, MEANS, measure="exact_match", run_id="good", depth=1)
    assert means["mean"].to_list() == pytest.approx([(3 - 2 * len(odd) / 6) / 3])


def test_more_repeats_ask_only_for_what_is_missing(tiny: Tiny, reads_here: list[int]) -> None:
    counts = [
        sum(part.new.height for part in compare(tiny.with_config(repeats=repeats)).plans)
        for repeats in (1, 2, 4, 3)
    ]
    assert counts[0] > counts[1] > 0
    assert counts[2:] == [2 * counts[1], 0]


def test_an_error_leaves_the_mean_of_the_others(
    tiny: Tiny, reads_here: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: EchoModel, request: Request) -> Response:
        is_lost = request.form.repeat == 1 or "river" in request.question
        return Response(failure=Failure("resource", "lost")) if is_lost else answer_of_echo(self, request)

    compare(tiny)
    once = table(tiny, UTILITY).sort(LIST)
    monkeypatch.setattr(EchoModel, "answer", failing)
    cache = {"cache_dir": str(tiny.folder / "other")}
    lossy = tiny.with_config(repeats=3, max_error_fraction=1.0, **cache)
    compare(lossy)
    values = table(lossy, UTILITY).sort(LIST).select("query_id", "value").rows()
    assert values == [
        (name, None if name == "q2" else value) for name, value in once.select("query_id", "value").rows()
    ]
    assert table(lossy, REPEATS)["output"].null_count() > once.height


def test_each_repeat_has_a_seed_of_its_own(
    tiny: Tiny, server: MisbehavingServer, runs_here: None, job: RunJob
) -> None:
    server.behave = titles
    reader = config_of(server, temperature=0.7, request_seed=40)
    some = tiny.with_config(reader=reader, repeats=3, recheck_fraction=1.0, num_readers=0)
    code, said = job("compare", some)
    assert code == 0, said
    seeds = Counter(asked.body["seed"] for asked in server.asked)
    # each is asked again with its own seed
    assert set(seeds) == {40, 41, 42}
    assert seeds[41] == seeds[42]
    assert {count % 2 for count in seeds.values()} == {0}
    assert "greedy" not in said


def test_a_greedy_reader_is_said_to_be_one(tiny: Tiny, reads_here: list[int], job: RunJob) -> None:
    code, said = job("compare", tiny.with_config(repeats=2))
    assert code == 0
    assert "repeated answers of a greedy reader (temperature 0) differ by rounding alone" in said
    report = (pathlib.Path(tiny.config.out) / "report.md").read_text()
    assert "each list was answered 2 times, and all answers to a list of good have one score" in report
    assert "spread between answers and between questions" in tables_text(tiny)
    code, said = job("compare", tiny)
    assert (code, "greedy" in said) == (0, False)
    assert not (pathlib.Path(tiny.config.out) / "repeat_spreads").exists()
    assert "each list was answered" not in (pathlib.Path(tiny.config.out) / "report.md").read_text()


def test_a_judge_grades_the_answers_of_all_repeats(
    judged: Tiny, server: MisbehavingServer, runs_here: None, job: RunJob
) -> None:
    server.behave = lambda asked: dataclasses.replace(
        answer(asked), **({"text": f"other {asked.body['seed']}"} if asked.body.get("seed", 0) else {})
    )
    some = judged.with_config(reader=config_of(server), repeats=2, num_readers=0)
    code, said = job("compare", some)
    assert code == 0, said
    graded = table(some, REPEATS)
    assert set(graded["output"].filter(graded["repeat"] == 2)) == {"other 1"}
    for query, found in graded.filter(repeat=2).select("query_id", "value").rows():
        question, gold, _ = QUESTIONS[query]
        assert found == WORDS[word((question, (gold,), "other 1"))]
    assert set(graded["value"]) > {0.0, 1.0}


def test_given_outputs_are_not_asked_for_again(tiny: Tiny, reads_here: list[int]) -> None:
    compare(tiny)
    lists = [record for record in outputs_of(tiny) if "run_id" in record]
    given = with_outputs(tiny, lists, reader=ReaderConfig(kind="echo"), repeats=3)
    plan = compare(given)
    assert {row["kind"] for row in plan.counts} == {"answer"}
    assert table(given, REPEATS)["repeat"].max() == 1
    assert table(given, UTILITY).drop("reader").equals(table(tiny, UTILITY).drop("reader"))


def test_spreads_are_those_of_an_analysis_of_variance() -> None:
    generator = np.random.default_rng(3)
    scores = {run: generator.random((30, 4)) + generator.random((30, 1)) for run in ("a", "b")}
    rows = [
        ("r", "s", run, f"q{q:02}", 5, n + 1, "", float(value))
        for run, table_ in scores.items()
        for q, values in enumerate(table_)
        for n, value in enumerate(values)
    ]
    names = [*REPEATS.columns.names]
    repeats = pl.DataFrame(rows, schema=names, orient="row").with_columns(
        pl.col("depth", "repeat").cast(pl.Int32)
    )
    asked = pl.DataFrame({"query_id": [f"q{q:02}" for q in range(30)], "dataset": ["d"] * 30})
    found = {(row["run_a"], row["run_b"]): row for row in repeat_spreads(repeats, asked).rows(named=True)}
    assert set(found) == {("a", ""), ("b", ""), ("a", "b")}
    for (a, b), row in found.items():
        means = scores[a].mean(axis=1) - (scores[b].mean(axis=1) if b else 0)
        within = scores[a].var(axis=1, ddof=1).mean() + (scores[b].var(axis=1, ddof=1).mean() if b else 0)
        between = max(means.var(ddof=1) - within / 4, 0)
        assert row["mean"] == pytest.approx(means.mean())
        assert row["sd_repeats"] == pytest.approx(within**0.5)
        assert row["sd_questions"] == pytest.approx(between**0.5)
        assert row["share"] == pytest.approx(within / 4 / means.var(ddof=1))
        assert row["standard_error"] == pytest.approx((means.var(ddof=1) / 30) ** 0.5)
        assert row["standard_error_once"] == pytest.approx(((between + within) / 30) ** 0.5)
        assert row["standard_error_endless"] == pytest.approx((between / 30) ** 0.5)
        assert (row["num_queries"], row["num_repeats"]) == (30, 4)


def test_questions_with_one_answer_have_no_spread() -> None:
    rows = [
        ("r", "s", "a", "q1", 5, 1, "", 1.0),
        ("r", "s", "a", "q2", 5, 1, "", 0.0),
        ("r", "s", "a", "q2", 5, 2, None, None),
    ]
    repeats = pl.DataFrame(rows, schema=[*REPEATS.columns.names], orient="row")
    asked = pl.DataFrame({"query_id": ["q1", "q2"], "dataset": ["d", "d"]})
    assert repeat_spreads(repeats, asked).is_empty()
    two = repeats.with_columns(pl.col("value").fill_null(0.5))
    (row,) = repeat_spreads(two, asked).rows(named=True)
    # of one question there is no spread between questions
    assert [row[name] for name in ("share", "sd_questions", "standard_error")] == [None] * 3
    assert row["sd_repeats"] == pytest.approx(0.125**0.5)
