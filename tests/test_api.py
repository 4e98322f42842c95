"""The interface of Python: the same numbers as the job, functions as readers, and what is wrong with the data."""

import asyncio
import dataclasses
import logging
import pathlib
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import models
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tiny import PASSAGES, QUESTIONS, RUNS, Tiny, make_tables

import erag_ray as er
from erag_ray.analyses.cells import CELLS
from erag_ray.analyses.columns import PER_QUERY
from erag_ray.analyses.comparisons import COMPARISONS
from erag_ray.analyses.correlations import CORRELATIONS
from erag_ray.analyses.means import MEANS
from erag_ray.api import calls
from erag_ray.measures.lists import MEASURES
from erag_ray.models import make_model
from erag_ray.prompts.request import Request
from erag_ray.store.schemas import LABELS, OUTPUTS, UTILITY
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError, JobError

TABLES = (LABELS, UTILITY, PER_QUERY, MEANS, CORRELATIONS, COMPARISONS, CELLS)
Outputs = Callable[[list[str]], Sequence[str]]
ASKED = [
    {"id": name, "question": question, "answers": [answer]}
    for name, (question, answer, _) in QUESTIONS.items()
]
TEXTS = [
    {"doc_id": name, "page_id": page, "title": title, "text": text}
    for name, (page, title, text) in PASSAGES.items()
]
LISTS = {
    run: {name: documents.split() for name, documents in lists.items()}
    for run, lists in RUNS.items()
    if run in ("good", "bad")
}


def keys(folder: pathlib.Path, **changes: Any) -> dict[str, Any]:
    """A small comparison of the tiny data in memory."""
    return {
        "questions": ASKED,
        "passages": TEXTS,
        "runs": LISTS,
        "reader": {"kind": "echo"},
        "depth": 3,
        "end_to_end_depths": [1, 3],
        "cutoffs": [1, 3],
        "num_resamples": 200,
        "progress": False,
        "out": str(folder / "api"),
        "cache_dir": str(folder / "api-cache"),
        **changes,
    }


@pytest.mark.long
def test_python_and_the_job_give_the_same_tables(tiny: Tiny, reads_here: list[int]) -> None:
    plain = tiny.folder / "plain.jsonl"
    pl.DataFrame(ASKED).write_ndjson(plain)
    make_tables(tiny.with_config(queries=[str(plain)]))
    forms: list[Callable[[Any], Any]] = [list, pl.DataFrame, pd.DataFrame]
    for form in forms:
        given = keys(tiny.folder, questions=form(ASKED), passages=form(TEXTS), dataset="tiny")
        result = er.compare(**given)
        for schema in TABLES:
            assert_frame_equal(getattr(result, schema.name), TableStore(tiny.config.out).read(schema))


@pytest.mark.long
def test_the_config_that_is_written_is_that_of_the_same_job(tmp_path: pathlib.Path) -> None:
    er.compare(**keys(tmp_path))
    command = [sys.executable, "jobs/compare.py", "--config", str(tmp_path / "api" / "given" / "config.yaml")]
    root = pathlib.Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "nothing to do: finished before" in done.stderr


def test_what_is_left_out_is_a_warning_also_without_progress(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    lists = {**LISTS, "half": dict(list(LISTS["good"].items())[1:])}
    with caplog.at_level(logging.WARNING):
        logging.getLogger("erag_ray").addHandler(caplog.handler)
        try:
            result = er.compare(**keys(tmp_path, runs=lists, progress=False))
        finally:
            logging.getLogger("erag_ray").removeHandler(caplog.handler)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any(line.startswith("run 'half': queries without a list: 1 (q") for line in warnings)
    text = "the score is of an answer without documents: bad on 1 of 6 questions and half on 1 of 6 questions"
    assert text in " ".join(result.verdict.split())


def test_a_finished_job_is_opened_by_its_folder(compared: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as Jupyter does
    result = er.Result(compared.config.out)
    assert result.verdict.startswith("Which retriever serves the reader")
    assert pathlib.Path(result.report()).is_file()
    assert {"means", "labels", "cells", "verdict", "costs"} <= set(dir(result))
    assert result.costs["num_reader_calls"].sum() > 0
    assert "<pre>Which retriever" in result._repr_html_()
    assert "\x1b" not in result._repr_html_() + repr(result) + result.verdict
    with pytest.raises(AttributeError, match="no sealed table 'dual_labels'; it has "):
        _ = result.dual_labels


def test_any_job_of_the_command_line_runs_from_python(
    compared: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = {
        "baseline": compared.config.out,
        "baseline_run": "good",
        "candidate_run": "bad",
        "out": f"{compared.folder}/gate",
    }
    assert er.job("gate", **runs) == 4  # six questions show little
    assert "not settled" in capsys.readouterr().out
    assert er.job("report", out=compared.config.out, report={"texts": "none"}) == 0
    for name, keys_of_job, words in [
        ("exprt", {}, "unknown job 'exprt'.*Did you mean 'export'"),
        ("gate", {"baselne": "results"}, "baselne.*baseline"),
        ("gate", {"baseline": f"{compared.folder}/nowhere", "out": f"{compared.folder}/other"}, "nowhere"),
    ]:
        with pytest.raises(InputError, match=words):
            er.job(name, **keys_of_job)


def test_runs_may_be_frames_with_ranks_or_scores(tmp_path: pathlib.Path) -> None:
    rows = [
        {"query_id": name, "doc_id": document, "rank": rank, "score": 1.0 / rank}
        for name, documents in LISTS["good"].items()
        for rank, document in enumerate(documents, 1)
    ]
    runs = {"good": pl.DataFrame(rows).cast({"rank": str}), "scored": pd.DataFrame(rows).drop(columns="rank")}
    result = er.compare(**keys(tmp_path, runs=runs))
    means = result.means.filter(pl.col("run_id").is_in(["good", "scored"])).drop("run_id")
    assert means.height == 2 * means.unique().height


# --- functions ---


def title_of(prompt: str) -> str:
    """The gold answer that stands in a prompt."""
    return next((answer for _, answer, _ in QUESTIONS.values() if answer in prompt), "nothing")


def titles(prompts: list[str]) -> list[str]:
    return [title_of(prompt) for prompt in prompts]


class Counting:
    """A function that remembers its prompts."""

    def __init__(self, function: Outputs = titles) -> None:
        self.function, self.prompts = function, list[str]()

    def __call__(self, prompts: list[str]) -> Sequence[str]:
        self.prompts += prompts
        return self.function(prompts)


@pytest.mark.long
def test_a_function_gets_each_distinct_prompt_once_and_its_answers_are_kept(tmp_path: pathlib.Path) -> None:
    function = Counting()
    result = er.compare(**keys(tmp_path, reader=er.Function(function, "titles", "1")))
    assert len(function.prompts) == len(set(function.prompts)) == result.costs["num_reader_calls"].sum()
    er.compare(**keys(tmp_path, reader=er.Function(function, "titles", "1"), num_resamples=300))
    assert len(function.prompts) == len(set(function.prompts))
    er.compare(**keys(tmp_path, reader=er.Function(function, "titles", "2")))
    assert len(function.prompts) == 2 * len(set(function.prompts))


def test_labels_are_the_scores_of_the_functions_outputs(tmp_path: pathlib.Path) -> None:
    reader = er.Function(titles, "titles", "1")
    labels = er.label(**keys(tmp_path, reader=reader, annotators=["erag"], score="exact_match"))
    assert labels.height == labels.unique(["query_id", "doc_id"]).height > 0
    for row in labels.iter_rows(named=True):
        text = " ".join(PASSAGES[row["doc_id"]][1:])
        assert row["output"] == title_of(text) or row["output"] == title_of(QUESTIONS[row["query_id"]][0])
        assert row["label"] == float(row["output"].lower() == QUESTIONS[row["query_id"]][1].lower())


@pytest.mark.long
def test_an_async_function_works_inside_a_running_event_loop(tmp_path: pathlib.Path) -> None:
    async def read(prompts: list[str]) -> list[str]:
        await asyncio.sleep(0)
        return titles(prompts)

    async def main() -> pl.DataFrame:
        return er.label(**keys(tmp_path, reader=er.Function(read, "async", "1")))

    expected = er.label(**keys(tmp_path / "sync", reader=er.Function(titles, "async", "1")))
    assert_frame_equal(asyncio.run(main()), expected)


def test_what_was_answered_stays_where_a_function_raises(tmp_path: pathlib.Path) -> None:
    bad = QUESTIONS["q4"][0]

    def fails(prompts: list[str]) -> list[str]:
        if any(bad in prompt for prompt in prompts):
            raise ConnectionError("no route")
        return titles(prompts)

    with pytest.raises(JobError, match=r"(?s)errors, more than.*ConnectionError: no route"):
        er.compare(**keys(tmp_path, reader=er.Function(fails, "f", "1", batch_size=4)))
    again = Counting()
    er.compare(**keys(tmp_path, reader=er.Function(again, "f", "1")))
    assert again.prompts
    assert all(bad in prompt for prompt in again.prompts)


def test_a_job_goes_on_where_all_that_is_left_may_be_errors(tmp_path: pathlib.Path) -> None:
    allowed = keys(tmp_path, max_error_fraction=0.9)
    er.compare(**allowed | {"depth": 1, "end_to_end_depths": [1], "reader": er.Function(titles, "f", "1")})
    fails = er.Function(lambda prompts: [prompts[len(prompts)]], "f", "1")
    assert er.compare(**allowed | {"reader": fails}).utility.filter(depth=3)["value"].null_count() > 3


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (lambda prompts: titles(prompts)[:-1], r"\d+ outputs for \d+ prompts"),
        (lambda prompts: "Ada Brunner", "a str, not a list of"),
        (lambda prompts: b"x" * len(prompts), "a bytes, not a list of"),
        (lambda prompts: None, "a NoneType, not a list of"),
        (lambda prompts: [["x" * 999]] * len(prompts), r"\['x{195}\.\.\. as output 0, not a text"),
    ],
)
def test_outputs_that_cannot_belong_to_the_prompts_end_the_job(function: Outputs, fault: str) -> None:
    model = make_model(er.Function(function, "f", "1").config())
    asked = [Request(models.form_for("echo"), question) for question, *_ in QUESTIONS.values()]
    with pytest.raises(JobError, match=f"reader f: the function returned {fault}"):
        list(model.run(asked))


def test_a_function_as_judge_is_called_in_this_process(tmp_path: pathlib.Path) -> None:
    judge = {"judge": er.Function(titles, "j", "1")}
    config, _ = calls._job(ASKED, er.Causal(model="m"), LISTS, None, None, tmp_path, judge)
    assert config.num_readers == 0


def test_outputs_of_a_function_lose_their_thinking_and_are_not_cut_at_a_limit(tmp_path: pathlib.Path) -> None:
    """Most thinking is longer than ``max_new_tokens``, of which a function knows nothing."""

    def thinking(prompts: list[str]) -> list[str]:
        return [
            f"<think>{'hm ' * 200}</think>{title_of(prompt)} {'as I said ' * 40}</s>" for prompt in prompts
        ]

    result = er.compare(**keys(tmp_path, reader=er.Function(thinking, "thinking", "1")))
    found = result.labels.filter(annotator="erag", query_id="q1")["label"].to_list()
    assert max(found) == 1.0
    outputs = TableStore(f"{tmp_path}/api/compare").read(OUTPUTS)
    assert outputs["num_at_limit"].null_count() == outputs.height > 0
    texts = result.document_outputs["output"].to_list()
    assert not [text for text in texts if "think" in text or "</s>" in text]
    assert "max_new_tokens" not in result.verdict


# --- bad input ---


def renamed(**names: str) -> list[dict[str, Any]]:
    return [{names.get(key, key): value for key, value in row.items()} for row in ASKED]


def with_first(**values: Any) -> list[dict[str, Any]]:
    return [{**ASKED[0], **values}, *ASKED[1:]]


BAD_QUESTIONS = [
    ([], "questions: there are none"),
    (5, "questions: a int, not a list of mappings"),
    (["who?", "where?", 7], r"questions\[0\]: a str, not a mapping"),
    (renamed(question="text"), "no field question; they have id, text, answers"),
    (pl.DataFrame(renamed(answers="gold")), "no field answers; they have id, question, gold"),
    (with_first(answers=[]), r"questions\[0\] \(id 'q1'\): no answers"),
    (with_first(answers=float("nan")), r"questions\[0\] \(id 'q1'\): no answers"),
    (with_first(answers=[7]), r"questions\[0\] \(id 'q1'\): answers are \[7\]"),
    (with_first(question=float("nan")), r"questions\[0\] \(id 'q1'\): question is None"),
    (with_first(id=None), r"questions\[0\]: no id, though others have one"),
    (with_first(id=7), "some ids are texts and some are numbers"),
    (with_first(id=True), r"questions\[0\]: id is True"),
    (with_first(id="q2"), r"questions\[1\]: id 'q2' repeats that of questions\[0\]"),
    (with_first(meta={"when": object()}), r"questions\[0\].*cannot be written as JSON"),
]


def first_list(documents: Any) -> dict[str, Any]:
    return {"good": {**LISTS["good"], "q1": documents}}


BAD_RUNS: list[tuple[Any, str]] = [
    (first_list("d1"), r"runs\['good'\]\['q1'\]: a str, not a list of documents"),
    (
        first_list([None] * 9),
        r"(?s)\['good'\]\['q1'\]\[0\]: a document is None, a NoneType; .* and 4 more of such",
    ),
    (
        first_list(["d1", ("d2", [1])]),
        r"\['q1'\]\[1\]: .* its second entry is neither a text nor a finite number",
    ),
    (first_list([("d1", float("inf"))]), "its second entry is neither a text nor a finite number"),
    (first_list([{"id": "d1", "text": 7}]), "text is 7; it must be a string"),
    (first_list([{"title": "Marn"}]), "neither an id nor a text in title"),
    ({"good": pl.DataFrame({"query_id": ["q1"], "document": ["d1"]})}, "no column doc_id, rank or score"),
    ({"good": lambda question, k: ["d1"]}, "the text of document 1 is 'd1', the id of a passage. Give "),
    (pl.DataFrame({"run": ["good"]}), "runs: a DataFrame; it must be a mapping of names"),
    ({"good": 7}, r"runs\['good'\]: a int, not a list of mappings"),
    ([["d1"]], r"runs: a list; it must be a mapping of names"),
    ({3: {"q1": ["d1"]}}, r"runs: a mapping whose keys are not all strings; it must be a mapping of names"),
    ({"good": [["d1"]]}, r"runs\['good'\]: a list of list; lists need the ids of their questions"),
    ({"a/b": {"q1": ["d1"]}}, "runs: 'a/b' cannot be a file name"),
    ({"..": {"q1": ["d1"]}}, "runs: '..' cannot be a file name"),
]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        *(({"questions": questions}, fault) for questions, fault in BAD_QUESTIONS),
        *(({"runs": runs}, fault) for runs, fault in BAD_RUNS),
        ({"reader": titles}, r"Function\(titles, name=\"titles\", revision=\"1\"\)"),
        ({"reader": 7}, "reader: a int, not a reader"),
        ({"reader": {"kind": "echo", "modell": "x"}}, "unknown key reader.modell. Did you mean reader.model"),
        ({"depht": 3}, "unknown key depht. Did you mean depth"),
        ({"qrels": [{"query": "q1"}] * 50}, r"qrels\[19\]: .*\n  - and 30 more of such problems$"),
        ({"dry_run": True}, r"dry_run: erag_ray\.job\('compare', dry_run=True, \.\.\.\) has one"),
        ({"judge": {"kinds": "echo"}}, "unknown key judge.kinds. Did you mean judge.kind"),
        ({"retrievers": {"good": {"kind": "bm25"}}}, "runs and retrievers: both name good"),
        ({"passages": None, "runs": {"good": {"other": [("d1", "x")]}}},
         r"1 problem with the inputs:\n.*no query in common"),
        ({"passages": [{"doc_id": "d1"}]}, r"passages\[0\]: text is missing"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named_before_anything_is_read(
    tmp_path: pathlib.Path, changes: dict[str, Any], fault: str, no_reader: None
) -> None:
    with pytest.raises(InputError, match=fault):
        er.compare(**keys(tmp_path, **changes))
    assert "questions" not in changes or not (tmp_path / "api").exists()


def test_equal_questions_stay_apart_by_their_ids(tmp_path: pathlib.Path) -> None:
    twice = [*ASKED, {**ASKED[0], "id": "again"}]
    runs = {"good": {**LISTS["good"], "again": ["d2"]}}
    result = er.compare(**keys(tmp_path, questions=twice, runs=runs))
    assert set(result.labels.filter(query_id="again")["doc_id"]) == {"d2"}


def test_questions_without_ids_are_numbered(tmp_path: pathlib.Path) -> None:
    when = pd.Timestamp("2026-11-30")
    unnamed = [{"question": row["question"], "answer": row["answers"][0], "when": when} for row in ASKED]
    runs = {"good": {str(number): LISTS["good"][f"q{number}"] for number in range(1, 7)}}
    result = er.compare(**keys(tmp_path, questions=unnamed, runs=runs))
    assert set(result.queries["query_id"]) == set("123456")
    assert '"when": "2026-11-30 00:00:00"' in (tmp_path / "api/given/questions.jsonl").read_text()
    # whatever their number: only a part of the questions may be asked
    for count in (2, 6, 9):
        from_0 = {"good": dict.fromkeys(range(count), LISTS["good"]["q1"])}
        with pytest.raises(InputError, match="a list of the question '0', but the questions have no ids"):
            er.compare(**keys(tmp_path, questions=unnamed, runs=from_0))


def test_the_import_takes_neither_ray_nor_torch_nor_polars() -> None:
    code = "import sys, erag_ray; print(sorted({'ray', 'torch', 'polars', 'numpy', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert {"compare", "label", "Served"} <= set(dir(er))
    with pytest.raises(AttributeError, match="no attribute 'comparee'"):
        _ = er.comparee


# --- objects that retrieve ---


def documents_of(name: str) -> list[tuple[str, str]]:
    return [(document, " ".join(PASSAGES[document][1:])) for document in LISTS["good"].get(name, [])]


class Retrieving:
    """A function that retrieves, and remembers what it was asked."""

    def __init__(self) -> None:
        self.questions = list[str]()

    def __call__(self, question: str, count: int) -> list[tuple[str, str]]:
        self.questions.append(question)
        name = next(name for name, (text, *_) in QUESTIONS.items() if text == question)
        return documents_of(name)[:count]


@pytest.mark.long
def test_an_object_that_retrieves_is_a_run_like_its_lists_and_another_is_asked_anew(
    tmp_path: pathlib.Path,
) -> None:
    def compared(run: Any) -> er.Result:
        return er.compare(**keys(tmp_path / "a", passages=None, runs={"good": run}))

    first, second, third = Retrieving(), Retrieving(), Retrieving()
    texts = {name: documents_of(name) for name in QUESTIONS}
    by_object = compared(first)
    by_lists = er.compare(**keys(tmp_path / "b", passages=None, runs={"good": texts}))
    assert_frame_equal(by_object.labels, by_lists.labels)
    assert_frame_equal(by_object.means, by_lists.means)
    assert by_object.retrieval_seconds.height == len(QUESTIONS)
    for run in (first, second, er.Retriever(third, revision="1"), er.Retriever(first, revision="1")):
        compared(run)
    assert {len(one.questions) for one in (first, second, third)} == {len(QUESTIONS)}


def test_ten_functions_lie_between_the_call_and_the_reader_and_a_measure(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    depths = dict[str, int]()

    def frames(name: str) -> None:
        files = [frame.filename for frame in traceback.extract_stack()]
        own = [file for file in files if "/erag_ray/" in file and not file.endswith("support/numba_jit.py")]
        depths.setdefault(name, len(own))

    def read(prompts: list[str]) -> list[str]:
        frames("reader")
        return ["Ann"] * len(prompts)

    def ndcg(lists: Any) -> Any:
        frames("nDCG")
        return MEASURES["nDCG"].function(lists)

    monkeypatch.setitem(MEASURES, "Other", dataclasses.replace(MEASURES["nDCG"], name="Other", function=ndcg))
    er.compare(
        questions=[{"question": "Who?", "answers": ["Ann"], "id": "1"}],
        reader=er.Function(read, name="mine", revision="1"),
        runs={"a": {"1": [("d1", "Ann built it.")]}},
        measures=["Other"],
        out=tmp_path / "out",
        cache_dir=tmp_path / "store",
    )
    assert depths == {"reader": 10, "nDCG": 10}
