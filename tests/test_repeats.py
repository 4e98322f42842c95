"""Answers that are asked for several times: the means over them, their spread, and what is said of greedy readers."""

import dataclasses
import pathlib
from collections import Counter
from typing import Any

import polars as pl
import pytest
from misbehaving_server import MisbehavingServer
from served_jobs import config_of, runs_here, server, titles
from test_given import outputs_of, with_outputs
from test_judged_score import WORDS, answer, judged, word
from tiny import QUESTIONS, RunJob, Tiny, compare, table, tables_text

from erag_ray.analyses.repeats import repeat_spreads
from erag_ray.config.reader import ReaderConfig
from erag_ray.store.schemas import REPEATS, UTILITY

__all__ = ["judged", "runs_here", "server"]


def test_more_repeats_ask_only_for_what_is_missing_and_equal_scores_have_their_mean(
    tiny: Tiny, reads_here: list[int]
) -> None:
    # a score of 4/11: the third of three of them is less in floats
    tiny.queries.write_text(tiny.queries.read_text().replace("Brunner", "Brunner or 6 men of Old Marn town"))
    some = [tiny.with_config(repeats=repeats, score="token_f1") for repeats in (1, 2, 4, 3)]
    runs = [(compare(one), table(one, UTILITY)["value"].to_list()) for one in some]
    counts = [sum(part.new.height for part in plan.plans) for plan, _ in runs]
    assert counts[0] > counts[1] > 0
    assert counts[2:] == [2 * counts[1], 0]
    assert [4 / 11 in scores and scores == runs[0][1] for _, scores in runs] == [True] * 4


@pytest.mark.parametrize("seed", [{"request_seed": 40}, {"extra_body": {"seed": 40}}])
def test_each_repeat_has_a_seed_of_its_own(
    seed: dict[str, Any], tiny: Tiny, server: MisbehavingServer, runs_here: None, job: RunJob
) -> None:
    server.behave = titles
    reader = config_of(server, temperature=0.7, **seed)
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
    assert "each list was answered 2 times, and all answers to a list of good have one score\n" in report
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


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (
            [(0.0, 0.5)],
            {"share": None, "sd_questions": None, "standard_error": None, "sd_repeats": 0.125**0.5},
        ),
        # but for rounding, the means of the questions differ as much as answers do, or not at all
        ([(0.0, 0.3), (0.2, 0.6)], {"sd_questions": 0.0, "standard_error_endless": 0.0}),
        ([(0.0, 0.8), (0.1, 0.7)], {"share": None, "sd_questions": 0.0, "standard_error": 0.0}),
    ],
    ids=["of one question", "none but that between answers", "none at all"],
)
def test_spreads_between_questions_by_hand(
    answers: list[tuple[float, float]], expected: dict[str, float | None]
) -> None:
    values = {f"q{number}": pair for number, pair in enumerate(answers)}
    rows = [
        ("r", "s", "a", name, 5, place, "", pair[place]) for name, pair in values.items() for place in (0, 1)
    ]
    repeats = pl.DataFrame(rows, schema=[*REPEATS.columns.names], orient="row")
    (row,) = repeat_spreads(repeats, pl.DataFrame({"query_id": [*values], "dataset": "d"})).rows(named=True)
    assert {name: row[name] for name in expected} == expected
