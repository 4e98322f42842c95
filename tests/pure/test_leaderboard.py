"""The leaderboard: what stands first on the console and on the page, and what it says of each run."""

import dataclasses

import pytest
from report_texts import made_report, made_up, printed, results_with

from erag_ray.analyses.parts.formats import rows_of_text
from erag_ray.analyses.parts.model import DatasetVerdict, Finding, RankedRun, State, Verdict
from erag_ray.report.leaderboard import boards, leaderboard


def ranked(name: str, mean: float | None, state: State = "worse") -> RankedRun:
    low, high = (None, None) if mean is None else (max(0.0, mean - 0.1), min(1.0, mean + 0.1))
    return RankedRun(name=name, mean=mean, low=low, high=high, state=state)


def dataset_of(name: str, *runs: RankedRun, findings: tuple[Finding, ...] = ()) -> DatasetVerdict:
    return DatasetVerdict(
        dataset=name,
        answer=f"answer {name}",
        findings=findings,
        ranking=runs,
        score="match",
        depth=5,
        num_queries=160,
    )


STATES: tuple[State, ...] = ("leads", "equal", "inconclusive", "worse", "not compared", "not ranked")
REFERENCES = ranked("no_passages", 0.1, "reference"), ranked("gold_passages", 0.9, "reference")


def test_every_state_has_a_sign_and_references_have_none() -> None:
    runs = [ranked(f"run{number}", 0.8 - number / 10, state) for number, state in enumerate(STATES)]
    table = leaderboard([dataset_of("nq", *runs, *REFERENCES)])
    (row,) = rows_of_text(table)
    assert row[:4] == ("nq", "160", "match", "5")
    assert [cell.rpartition(" ")[2] for cell in row[4:10]] == ["*", "=", "?", "<", "/", "~"]
    assert row[10:] == ("0.100", "0.900")
    signs = "* leads, = equal to it, ? not settled, < significantly worse, / not compared, ~ not ranked"
    assert table.caption == signs
    assert [column.name for column in table.columns[-2:]] == ["no passages", "gold passages"]


def test_runs_stand_in_the_order_of_their_ranks_and_the_ninth_is_counted() -> None:
    names = [f"run{number}" for number in range(9)]
    first = dataset_of("a", *(ranked(name, 0.5) for name in names))
    second = dataset_of("b", *(ranked(name, 0.5) for name in [names[1], names[0], *names[2:8]]))
    table = leaderboard([first, second, dataset_of("c")])
    assert [column.name for column in table.columns[4:]] == names[:8]
    assert "the first 8 of 9 runs" in table.caption
    assert [row[0].value for row in table.rows] == ["a", "b"]
    assert leaderboard([dataset_of("c")]) is None


def test_a_report_ranks_its_runs_by_the_rule_of_the_verdict() -> None:
    (one,) = made_report(made_up()).verdict.datasets
    assert [(run.name, run.state) for run in one.ranking] == [("A", "leads"), ("B", "inconclusive")]
    assert (one.score, one.depth, one.num_queries) == ("exact_match", 2, 4)
    useless = made_up(utility={("r", "A", 2): [0] * 4, ("r", "B", 2): [0] * 4})
    (one,) = made_report(useless).verdict.datasets
    # no run leads where none helps
    assert {run.state for run in one.ranking} == {"not ranked"}
    disjoint = made_up(utility={("r", "A", 2): [1, 1, None, None], ("r", "B", 2): [None, None, 0, 1]})
    (one,) = made_report(disjoint).verdict.datasets
    assert {run.state for run in one.ranking} == {"inconclusive"}, one.answer


@pytest.mark.parametrize("width", [80, 120])
def test_the_console_has_the_table_below_the_question_and_counts_what_it_leaves_out(width: int) -> None:
    findings = (
        Finding(topic="trust", text="labels agree"),
        Finding(topic="certainty", text="not settled with 160 questions"),
        Finding(topic="outputs", text="cut", is_warning=True),
    )
    runs = ranked("bm25", 0.7, "leads"), ranked("dense", 0.6, "inconclusive"), *REFERENCES
    datasets = tuple(dataset_of(f"dataset{number}", *runs, findings=findings) for number in range(5))
    made = dataclasses.replace(
        made_report(made_up()), verdict=Verdict(question="Which retriever?", datasets=datasets)
    )
    lines = printed(made, width, locations=["Report: /r.md"]).splitlines()
    assert len(lines) <= 40
    assert lines[0] == "Which retriever?"
    assert lines[1].split()[:2] == ["dataset", "questions"]
    interval = "[.60, .80] *" if width == 80 else "[0.600, 0.800] *"
    assert sum(interval in line for line in lines) == 5
    assert "labels agree" not in "\n".join(lines)
    assert lines.count("  not settled with 160 questions") == lines.count("  Warning: cut") == 5
    assert "on labels, and why: 5 more statements in the report" in lines
    few = dataclasses.replace(made, verdict=Verdict(question="Which retriever?", datasets=datasets[:2]))
    assert printed(few, width).count("labels agree") == 2
    many = tuple(dataset_of(f"dataset{number}", *runs) for number in range(30))
    made = dataclasses.replace(made, verdict=Verdict(question="Which retriever?", datasets=many))
    lines = printed(made, width).splitlines()
    assert len(lines) <= 40
    assert lines[1] == "dataset0: answer dataset0"


@pytest.mark.parametrize("name", ["[bold]rich[/bold]", "a\x1b[31m\nReport: /elsewhere", "n" * 200, "이름"])
def test_a_name_controls_nothing(name: str) -> None:
    lines = printed(made_report(results_with(name)), 120).splitlines()
    assert len(lines) <= 40
    assert not any(line.startswith("Report:") for line in lines)
    assert "\x1b[31m" not in "".join(lines)
    assert max(map(len, lines)) <= 120


def test_a_board_draws_every_run_within_its_scale() -> None:
    runs = [
        ranked(f"run{number}", 0.83 - number / 20, "worse" if number else "leads") for number in range(14)
    ]
    settled = dataset_of("nq", *runs, *REFERENCES, ranked("late", None, "not compared"))
    made = Verdict(question="?", datasets=(settled, dataset_of("none")))
    (board,) = boards(made)
    # the next tenth above .83 + .1 and the .9 + .1 of a reference
    assert board["top"] == "1.0"
    assert len(board["runs"]) == 12
    assert board["about"] == "match, 5 documents, 160 questions, the first 12 of 15 runs"
    for run in board["runs"]:
        assert 0 <= run["left"] <= run["at"] <= run["left"] + run["width"] <= 100
    assert [(mark["name"], mark["left"]) for mark in board["marks"]] == [
        ("no passages", 10),
        ("gold passages", 90),
    ]


@pytest.mark.parametrize(
    ("states", "badge"),
    [
        (["leads", "worse", "worse"], "settled"),
        (["leads", "worse", "inconclusive"], "not settled"),
        (["leads", "leads", "worse"], "not settled"),
        (["leads"], ""),
        (["not compared", "not compared"], ""),
    ],
)
def test_the_badge_says_whether_one_run_is_better_than_all_others(states: list[State], badge: str) -> None:
    runs = [ranked(f"run{number}", 0.5, state) for number, state in enumerate(states)]
    (board,) = boards(Verdict(question="?", datasets=(dataset_of("nq", *runs, *REFERENCES),)))
    assert board["badge"] == badge
