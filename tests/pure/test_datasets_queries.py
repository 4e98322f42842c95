"""Query files -> QUERIES, PROVENANCE and gold_answers: every rule on a file of a few lines."""

import functools
import gzip
import json
import pathlib
import re
from typing import Any

import polars as pl
import pytest
from gold import gold_of
from guides import section, table_rows
from hypothesis import given
from hypothesis import strategies as st
from input_files import SEA, article, diagnosed, kilt, only_error, qa, write

from erag_ray.data.datasets.queries import load_queries
from erag_ray.data.datasets.questions import QUERY_FORMATS, Question
from erag_ray.data.datasets.tasks import Dataset, dataset_of_file, find_dataset
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.jsonl import Record
from erag_ray.data.files.squad import page_key, page_keys
from erag_ray.data.passages.load import load_passages
from erag_ray.data.passages.pages import read_pages
from erag_ray.data.runs.load import load_run
from erag_ray.data.runs.outputs import load_outputs
from erag_ray.store import schemas
from erag_ray.support.errors import InputError

load = functools.partial(diagnosed, load_queries)
problem_of = functools.partial(only_error, load_queries)


def test_kilt_record_with_aliases_and_several_golds(tmp_path: pathlib.Path) -> None:
    output = [
        {"answer": " Germany ", "provenance": [{"wikipedia_id": 7}, {"wikipedia_id": "8"}]},
        {"answer": "FRG"},
        {"answer": "Germany"},
        {"answer": "  "},
        {"answer": None},
        {"provenance": [{"wikipedia_id": "8"}, {"wikipedia_id": " 9 "}, {"title": "no page"}]},
    ]
    record = {"id": 12, "input": "Where?", "output": output, "gold_doc_ids": ["d2", "d1", "d2"]}
    loaded, diagnostics = load(write(tmp_path / "nq-dev-kilt.jsonl", record))
    assert loaded.queries.rows() == [("12", "nq", "Where?", ["Germany", "FRG"], "exact_match")]
    gold = gold_of(pages=[("12", "7"), ("12", "8"), ("12", "9")], documents=[("12", "d2"), ("12", "d1")])
    assert loaded.provenance.equals(gold)
    assert diagnostics.errors == ()
    assert diagnostics.warnings == ("empty answers, left out: 1 (12)",)
    schemas.conform(loaded.queries, schemas.QUERIES)
    schemas.conform(loaded.provenance, schemas.PROVENANCE)


@pytest.mark.parametrize(
    ("file", "dataset", "score", "max_new_tokens", "family"),
    [
        ("nq-dev-kilt.jsonl", "nq", "exact_match", 50, "question"),
        ("triviaqa-dev_id-kilt.jsonl", "triviaqa", "exact_match", 50, "question"),
        ("hotpotqa-train-kilt.jsonl.gz", "hotpotqa", "exact_match", 50, "question"),
        ("queries.squad.jsonl.gz", "squad", "exact_match", 50, "question"),
        ("fever-dev-kilt.jsonl", "fever", "accuracy", 50, "claim"),
        ("queries.fever_fm2.jsonl.gz", "fever_fm2", "accuracy", 50, "claim"),
        ("wow-test_without_answers-kilt.jsonl", "wow", "token_f1", 150, "dialogue"),
        ("queries.wow_topical.jsonl.gz", "wow_topical", "token_f1", 150, "dialogue"),
        ("hotpotqa/queries.jsonl", "hotpotqa", "exact_match", 50, "question"),
        ("nq/queries.jsonl", "nq", "exact_match", 50, "question"),
        ("other/nq.jsonl", "nq", "exact_match", 50, "question"),
        ("nqueens.jsonl", "nqueens", None, 0, "question"),  # it only shares letters
    ],
)
def test_data_set_from_the_file_name(
    file: str, dataset: str, score: Any, max_new_tokens: int, family: Any
) -> None:
    name = dataset_of_file(f"/data/{file}")
    assert name == dataset
    expected = score and Dataset(score=score, max_new_tokens=max_new_tokens, family=family)
    assert find_dataset(name) == expected


def test_arguments_over_record_over_file(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "nq.jsonl", kilt(kilt_task="fever_fm2"), kilt("q2"))
    for options, rows in (
        ({}, [("fever_fm2", "accuracy"), ("nq", "exact_match")]),
        ({"dataset": "wow"}, [("wow", "token_f1")] * 2),
        ({"score": "rouge_l_kilt"}, [("fever_fm2", "rouge_l_kilt"), ("nq", "rouge_l_kilt")]),
    ):
        assert load(path, **options)[0].queries.select("dataset", "score").rows() == rows


def test_unknown_data_set_goes_by_task_or_is_noted(tmp_path: pathlib.Path) -> None:
    paths = [
        write(tmp_path / "mine.jsonl", kilt("a", task="dialogue")),
        write(tmp_path / "yours.jsonl", kilt("b", task="fact")),
        write(tmp_path / "theirs.jsonl", kilt("c")),
    ]
    loaded, diagnostics = load(paths)
    assert loaded.queries["score"].to_list() == ["token_f1", "accuracy", "exact_match"]
    (note,) = diagnostics.warnings
    assert note == "unknown data set 'theirs': treated as question answering, scored by exact_match"


def test_byte_order_mark_blank_lines_and_gzip_whatever_the_name(tmp_path: pathlib.Path) -> None:
    text = f"\ufeff\n{json.dumps(kilt())}\n  \n\n{json.dumps(kilt('q2'))}"
    assert problem_of(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"
    path = tmp_path / "nq.jsonl"
    path.write_bytes(gzip.compress(text.encode()))
    loaded, diagnostics = load(path)
    assert loaded.queries["query_id"].to_list() == ["q1", "q2"]
    assert diagnostics.errors == ()


def test_answers_that_normalise_to_nothing_are_noted_and_kept(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "nq.jsonl", kilt("q1", "?", "*", "star"), kilt("q2", "?", "The", "."))
    loaded, diagnostics = load(path)
    assert loaded.queries["answers"].to_list() == [["*", "star"], ["The", "."]]
    (note,) = diagnostics.warnings
    assert "normalise to nothing" in note
    assert note.endswith(": 3 (q1, q2, q2)")


ANN = {"id": "q2", "input": "?"}
BAD_RECORDS: list[tuple[Any, str]] = [
    (kilt("q1"), "query id 'q1' repeats the one at {path}:1"),
    ({"question": "?", "id": "q1", "answers": "a"}, "query id 'q1' repeats the one at {path}:1"),
    ({"input": "?", "output": [{"answer": "a"}]}, "id is missing"),
    (kilt(" "), "id is ' '"),
    (kilt(True), "id is True"),
    ({"id": None, "question": "?", "answer": "a"}, "id is None"),
    (kilt("q2", 5), "input is 5; it must be a string"),
    ({"id": "q2", "question": ["?"], "answer": "a"}, "question is ['?']; it must be a string"),
    (kilt("q2", ""), "query 'q2' has no question"),
    ({"id": "q2", "output": [{"answer": "a"}]}, "query 'q2' has no question"),
    ({"id": "q2", "question": " ", "answer": "a"}, "query 'q2' has no question"),
    (ANN, "query 'q2' has no answer"),
    ({**ANN, "output": [{"provenance": []}]}, "query 'q2' has no answer"),
    ({**ANN, "output": [{"answer": " "}]}, "query 'q2' has no answer"),
    ({"id": "q2", "question": "?"}, "query 'q2' has no answer"),
    ({"_id": "q2", "text": "?"}, "query 'q2' has no answer. If there is none, mark it is_impossible: true"),
    ('{"id": "q2", ', "not JSON"),
    ("[1, 2]", "a list where an object is expected"),
    ('{"id": "\\ud800", "input": "?", "output": []}', "holds half of a surrogate pair"),
    (b'{"id": "caf\xe9"}', "not UTF-8: invalid continuation byte at byte 12"),
    ({"id": "q2", "question": "?", "answer": "a", "gold_doc_ids": "d1"}, "gold_doc_ids is 'd1'; it must be"),
    (kilt("q2", gold_doc_ids=[None]), "gold_doc_ids is [None]"),
    (kilt("q2", gold_doc_ids=0), "gold_doc_ids is 0; it must be a list of ids"),
    ({**ANN, "output": [{"answer": "a", "provenance": False}]}, "provenance is False; it must be a list"),
    ({**ANN, "output": [{"answer": "a", "provenance": {}}, {"provenance": "x"}]}, "provenance is 'x'; it"),
    ({**ANN, "output": [{"answer": "a"}, {"answer": 3}]}, "answer 3 must be"),
    ({"id": "q2", "question": "?", "answers": ["a", 1874]}, "answer 1874 must be a string"),
    (kilt("q2", task="fact"), "task 'fact' differs"),
]


@pytest.mark.parametrize(("second", "message"), BAD_RECORDS)
def test_bad_record_is_named_and_counts_once(tmp_path: pathlib.Path, second: Any, message: str) -> None:
    _, diagnostics = load(path := write(tmp_path / "mine.jsonl", kilt(task="qa"), second))
    assert diagnostics.errors[0].startswith(f"{path}:2: {message.format(path=path)}")
    if isinstance(second, dict) and second.get("id") == "q2":
        many = [{**second, "id": f"q{number}"} for number in range(2, 10)]
        assert load(write(path, kilt(task="qa"), *many))[1].num_errors == 8 * diagnostics.num_errors


@pytest.mark.parametrize("key", ["id", "input", "output", "meta", "gold_doc_ids"])
def test_nesting_as_deep_as_it_gets_is_read_or_named(tmp_path: pathlib.Path, key: str) -> None:
    for depth in range(700, 1000):
        line = f'{{"id": "q1", "input": "?", "output": [{{"answer": "a"}}], "{key}": {"[" * depth}{"]" * depth}}}'
        path = write(tmp_path / "nq.jsonl", line)
        _, diagnostics = load(path, filters=["meta=a"] if key == "meta" else [])
        assert all(str(path) in problem or "filters" in problem for problem in diagnostics.errors)


def test_several_problems_are_all_there_and_two_files_are_named(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "nq.jsonl", kilt(), {"id": "q2", "input": "", "output": []})
    other = write(tmp_path / "squad.jsonl", kilt())
    _, diagnostics = load([path, other])
    with pytest.raises(InputError, match=r"(?s)^3 problems with the inputs:.*no answer.*no question"):
        diagnostics.raise_errors()
    assert diagnostics.errors[2] == f"{other}:1: query id 'q1' repeats the one at {path}:1"


def test_unknown_format_names_the_known_ones(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "nq.jsonl", kilt())
    message = "query_format: unknown query format 'csv'; known: beir, kilt, klue, plain"
    with pytest.raises(InputError, match=message):
        load_queries(path, Diagnostics(), format="csv")
    with pytest.raises(InputError, match=r"Did you mean 'plain'\?"):
        load_queries(path, Diagnostics(), format="plane")


def tsv_like(record: Record) -> Question:
    """A form of a user's own."""
    text = record.text("q")
    if text == "bad":
        raise KeyError("no such column")
    return (
        Question(query_id=record.identifier("n"), text=text, answers=("yes",), num_empty_answers=0)
        if text != "none"
        else None  # type: ignore[return-value]
    )


def test_a_form_of_a_users_own(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "nq.jsonl", {"n": 1, "q": "a?"}, {"n": 2, "q": "b?"})
    loaded, diagnostics = load(path, format=f"{__name__}:tsv_like")
    assert loaded.queries.select("query_id", "question").rows() == [("1", "a?"), ("2", "b?")]
    assert diagnostics.errors == diagnostics.warnings == ()
    for text, told in (
        ("bad", "KeyError: 'no such column'"),
        ("none", "it returned a NoneType, not an erag_ray"),
    ):
        write(path, {"n": 1, "q": "a?"}, {"n": 2, "q": text})
        with pytest.raises(InputError, match=rf"nq.jsonl:2: query_format: {__name__}:tsv_like: .*{told}"):
            load_queries(path, Diagnostics(), format=f"{__name__}:tsv_like")


def test_repeats_are_capped_per_kind(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "nq.jsonl", kilt(), *(["oops"] * 42), {"id": "q9", "input": "?"})
    _, diagnostics = load(path)
    starts = [problem.split(": ")[0] for problem in diagnostics.errors[:5]]
    assert starts == [f"{path}:{i}" for i in range(2, 7)]
    assert diagnostics.errors[5] == f"... and 37 more: bad lines in {path}"
    assert diagnostics.errors[6].startswith(f"{path}:44: query 'q9' has no answer")


TRIVIA = {"Data": [SEA, {"QuestionId": "tc_9", "Question": "Other?"}]}


def test_triviaqa_questions_are_joined_by_id(tmp_path: pathlib.Path) -> None:
    source = write(tmp_path / "web-dev.json", TRIVIA)
    bare = {"id": "tc_1", "output": [{"answer": "Red Sea"}, {"provenance": [{"wikipedia_id": "5"}]}]}
    path = write(tmp_path / "triviaqa-dev_id-kilt.jsonl", bare, kilt("tc_2", "Here?"))
    loaded, diagnostics = load(path, triviaqa_questions=source)
    assert loaded.queries["question"].to_list() == ["Which sea?", "Here?"]
    assert loaded.provenance.equals(gold_of(pages=[("tc_1", "5")]))
    assert diagnostics.errors == ()
    path = write(tmp_path / "triviaqa-dev_id-kilt.jsonl", kilt("tc_1", ""), kilt("tc_7", ""))
    assert problem_of(path, triviaqa_questions=[source]) == f"{path}:2: query 'tc_7' is not in {source}"
    problem = problem_of(path)
    assert problem.startswith(f"{path}:1: 2 queries such as 'tc_1' have no question")
    assert "Set triviaqa_questions" in problem


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "not a TriviaQA file"),
        ("null", "not a TriviaQA file"),
        ("[" * 100_000, "cannot be read: maximum recursion depth"),
        ('{"Data": [{"QuestionId": "tc_1", "Question": "\\ud800"}]}', "holds half of a surrogate pair"),
    ],
)
def test_triviaqa_file_that_is_none(tmp_path: pathlib.Path, content: str, message: str) -> None:
    source = write(tmp_path / "web.json", content)
    path = write(tmp_path / "triviaqa.jsonl", kilt("tc_1", ""))
    _, diagnostics = load(path, triviaqa_questions=source)
    assert diagnostics.errors[0].startswith(f"{source}: {message}")


def beir(query_id: str, **metadata: object) -> dict[str, object]:
    return {"_id": query_id, "text": f"{query_id}?", "metadata": metadata}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q1\td1", "2 columns, not in either known format"),
        ("q1 d1 1", "3 columns, not in either known format"),
        ("q1 0 d 1 1", "5 columns, not in either known format: query 0 document grade (TREC), or query-id"),
        ("q1\td1\thigh", "score 'high' is not a whole number"),
        ("q1 0 d1 high", "score 'high' is not a whole number"),
        ("q1\t\t1", "corpus-id is ''; it must be an id"),
        ("q1\td1\t1_0", "score '1_0' is not a whole number"),
        ("q1\td0\t2", "query 'q1', document 'd0': score 2 here, and 1 in an earlier line"),
        ("q1 Q0 d0 0", "query 'q1', document 'd0': score 0 here, and 1 in an earlier line"),
    ],
)
def test_bad_qrels_line(tmp_path: pathlib.Path, line: str, message: str) -> None:
    path = write(tmp_path / "queries.jsonl", beir("q1", answer="yes"))
    for good in ("q1\td0\t1", "q1 0 d0 1"):
        qrels = write(tmp_path / "test.tsv", good, line)
        assert problem_of(path, dataset="nq", qrels=qrels).startswith(f"{qrels}:2: {message}")


def test_trec_qrels_name_the_gold_passages_of_any_question(tmp_path: pathlib.Path) -> None:
    output = [{"answer": "Ann", "provenance": [{"wikipedia_id": "7"}]}]
    paths = [
        write(tmp_path / "nq.jsonl", plain("q1"), plain("q2"), plain("q3"), plain("unjudged")),
        write(tmp_path / "squad-dev-v1.1.json", squad(article("One", qa("s1", "Ann")))),
        write(
            tmp_path / "nq-dev-kilt.jsonl",
            kilt("k1"),
            kilt("k2", gold_doc_ids=["d9"]),
            kilt("k3", output=output),
        ),
        write(tmp_path / "queries.jsonl", beir("b1", answer="yes"), beir("train", answer="no")),
    ]
    qrels = tmp_path / "qrels.txt"
    lines = "q1 0 d1 1|q1 0 d0 0|q1\t0\td2  2|q2 0 d1 -1|q3 Q0 d3 1|s1 0 d4 1|k1 0 d5 1|b1 0 d6 1"
    qrels.write_bytes(lines.replace("|", "\r\n").encode())
    loaded, diagnostics = load(paths, dataset="nq", qrels=qrels)
    diagnostics.raise_errors()
    assert ",".join(loaded.queries["query_id"]) == "q1,q2,q3,unjudged,s1,k1,k2,k3,b1"
    documents = "q1 d2", "q1 d1", "q3 d3", "s1 d4", "k1 d5", "k2 d9", "b1 d6"
    pages = [("s1", "One"), ("k3", "7")]
    expected = gold_of(pages, [(query, doc) for query, doc in map(str.split, documents)])
    assert loaded.provenance.sort("query_id", "rank").equals(expected)
    assert diagnostics.warnings == (
        "qrels: all of the grades 1, 2 count as gold; write 0 for others",
        "questions without a line in the qrels and without gold passages: 1 (unjudged)",
        "questions without a line in the qrels, left out: 1 (train)",
    )


def test_qrels_that_do_nothing_are_a_problem(tmp_path: pathlib.Path) -> None:
    qrels = write(tmp_path / "test.tsv", "q7\td0\t1")
    named = write(tmp_path / "nq.jsonl", kilt(gold_doc_ids=["d1"]))
    assert problem_of(named, qrels=qrels).startswith(f"{qrels}: unused qrels: every question lists its")
    beirs = write(tmp_path / "queries.jsonl", beir("q1", answer="yes"))
    others = write(tmp_path / "nq.jsonl", plain("q1"), plain("q2"))
    expected = f"{qrels}: has no query in common with the questions (such as 'q7' against 'q1')"
    assert problem_of(others, qrels=qrels) == expected
    assert problem_of(beirs, qrels=qrels) == expected


def plain(query_id: object = None, *answers: str, **more: object) -> dict[str, object]:
    record = {"question": "Who?", "answers": list(answers or ("Ann",)), **more}
    return record if query_id is None else {"id": query_id, **record}


def test_plain_questions_by_every_name_of_id_and_answers(tmp_path: pathlib.Path) -> None:
    path = write(
        tmp_path / "nq.jsonl",
        {"question": "a?", "answers": ["Ann", " Ann", ""]},
        {"id": 7, "question": "b?", "answer": "Bo"},
        {"query_id": "q3", "query": "c?", "answer": ["C", "c"], "answers": ["c", "see"]},
        {"_id": "q4", "question": "d?", "answers": [{"text": "D"}]},
        {"id": "q5", "question": "e?", "answers": {"text": ["E"], "answer_start": [3]}, "title": "no page"},
        {"question": "f?", "answers": [], "is_impossible": True},
        "",
        {"question": "g?", "answers": "G"},
    )
    loaded, diagnostics = load(path)
    assert diagnostics.errors == ()
    assert loaded.queries.select("query_id", "question", "answers").rows() == [
        ("nq:1", "a?", ["Ann"]),
        ("7", "b?", ["Bo"]),
        ("q3", "c?", ["C", "c", "see"]),
        ("q4", "d?", ["D"]),
        ("q5", "e?", ["E"]),
        ("nq:8", "g?", ["G"]),
    ]
    assert loaded.provenance.is_empty()
    assert diagnostics.warnings == (
        "questions without an id, which get NAME:LINE as their id: 3 (nq:1, nq:6, nq:8)",
        "empty answers, left out: 1 (nq:1)",
        "impossible questions, left out: 1 (nq:6)",
    )


def test_records_of_no_known_form_are_told_once_with_all_forms(tmp_path: pathlib.Path) -> None:
    other = {"id": "q2", "user_input": "Who?", "gold": ["Ann"]}
    path = write(tmp_path / "nq.jsonl", plain("q1"), *[other] * 9, {"_id": "q3"})
    _, diagnostics = load(path)
    told, more = diagnostics.errors
    assert told.startswith(
        f"{path}:2: unknown format of a record with the fields ['id', 'user_input', 'gold']. "
    )
    assert told.endswith("such as question_fields: {question: user_input, answers: gold}")
    for form in ("kilt", "beir", "plain", "squad", "klue"):
        assert f"{form} " in told
    assert '("question", "answers", optional "id")' in told
    assert more == f"... and 9 more: records of unknown format in {path}"


def squad(*articles: dict[str, object]) -> dict[str, object]:
    return {"version": "v2.0", "data": list(articles)}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("form", ["auto", "squad"])
def test_squad_in_one_line_and_over_several(tmp_path: pathlib.Path, indent: int | None, form: str) -> None:
    impossible = qa("s3", is_impossible=True, plausible_answers=[{"text": "x"}])
    first = article("One", qa("s1", "Ann", "Ann", "Ann B."), impossible)
    content = squad(first, article("Two", qa("s2", "7")))
    path = tmp_path / "squad.json"
    path.write_text(json.dumps(content, indent=indent))
    loaded, diagnostics = load(path, format=form)
    assert diagnostics.errors == ()
    assert loaded.queries.select("query_id", "question", "answers").rows() == [
        ("s1", "s1?", ["Ann", "Ann B."]),
        ("s2", "s2?", ["7"]),
    ]
    assert loaded.provenance.equals(gold_of(pages=[("s1", "One"), ("s2", "Two")]))
    assert diagnostics.warnings == ("impossible questions, left out: 1 (s3)",)
    assert [page.paragraphs for page, _ in read_pages(str(path), diagnostics)] == [
        ("One", "All of One."),
        ("Two", "All of Two."),
    ]


def test_squad_question_without_an_id_or_a_title(tmp_path: pathlib.Path) -> None:
    nameless = {"paragraphs": [{"context": "c", "qas": [qa("s1", "Ann"), {"question": "?", "answers": []}]}]}
    path = write(tmp_path / "squad.json", squad(nameless))
    loaded, diagnostics = load(path)
    assert [error.split(": ")[1].split(".")[0] for error in diagnostics.errors] == [
        "id is missing; it must be a string or a whole number",
        "query '' has no answer",
    ]
    assert loaded.queries["query_id"].to_list() == ["s1"]
    assert loaded.provenance.height == 0


# --- the guide of jobs ---


def shown_records() -> dict[tuple[str, str], str]:
    """The table of input files: key and form -> one record, or the names of columns."""
    found, key = {}, ""
    for first, form, record, _ in table_rows(section("jobs/INPUTS.md", "Formats")):
        key = first.strip("`") or key
        found[key, form.strip("`")] = record
    return found


RECORDS = shown_records()
FILES = {"squad": "a.json", "klue": "b.json", "KILT": "c.jsonl", "TREC": "run.trec", "Parquet": "d.parquet"}


def shown_file(folder: pathlib.Path, key: str, form: str) -> pathlib.Path:
    """A file of the one record that the guide shows; of columns with a value each."""
    path, record = folder / FILES.get(form, "nq.jsonl"), RECORDS[key, form]
    if form == "Parquet":
        names = {"query_id": "q1", "doc_id": "d1", "page_id": "7", "rank": 1}
        values = {**names, "title": "Marn", "text": "Ann built it."}
        columns = re.findall("`(\\w+)`", record)
        pl.DataFrame({name: [values[name]] for name in columns}).write_parquet(path)
        return path
    return write(path, record.removeprefix("`").removesuffix("`"))


def test_the_guide_shows_every_form() -> None:
    forms = {key: [form for other, form in RECORDS if other == key] for key, _ in RECORDS}
    assert forms == {
        "queries": [*QUERY_FORMATS],
        "passages": ["JSON Lines", "BEIR", "Pyserini", "Parquet"],
        "knowledge_source": ["KILT", "WikiExtractor"],
        "runs": ["TREC", "Parquet", "KILT", "JSON Lines with texts", "JSON"],
        "qrels": ["TREC", "MTEB"],
        "outputs": ["JSON Lines"],
    }


@pytest.mark.parametrize(("key", "form"), RECORDS)
def test_the_guide_shows_records_that_are_read(tmp_path: pathlib.Path, key: str, form: str) -> None:
    path, diagnostics = shown_file(tmp_path, key, form), Diagnostics()
    if key == "queries":
        loaded = load_queries(path, diagnostics, format=form, dataset="nq")
        assert loaded.queries.select("query_id", "question").rows() == [("q1", "who built it")]
        assert loaded.queries["answers"].item()[0] == "Ann"
        assert loaded.queries.equals(load_queries(path, Diagnostics(), dataset="nq").queries)
        assert loaded.provenance.height == (form not in ("beir", "plain"))
    elif key == "passages":
        assert load_passages(path, diagnostics).select("doc_id", "text").rows() == [("d1", "Ann built it.")]
    elif key == "knowledge_source":
        (page,) = [page for page, _ in read_pages(str(path), diagnostics)]
        assert (page.title, page.paragraphs[-1]) == ("Marn", "Ann built it.")
    elif key == "runs":
        entries = load_run("bm25", path, diagnostics)
        assert entries.select("query_id", "rank", "doc_id").row(0) == ("q1", 1, "d1")
    elif key == "outputs":
        outputs, _ = load_outputs([str(path)], (), (5,), 5, diagnostics)
        assert outputs.select("query_id", "run_id", "output").row(0) == ("q1", "bm25+gpt", "Ann built it.")
    else:
        questions = write(tmp_path / "plain.jsonl", RECORDS["queries", "plain"].strip("`"))
        loaded = load_queries(questions, diagnostics, dataset="nq", qrels=path)
        assert loaded.provenance.equals(gold_of(documents=[("q1", "d1")]))
    assert diagnostics.errors == diagnostics.warnings == ()


def test_every_format_reads_gold_documents(tmp_path: pathlib.Path) -> None:
    gold = {"gold_doc_ids": ["d2", 7, "d2"]}
    records = [
        {**kilt("k"), **gold},
        {**beir("b", answer="Ann"), **gold},
        {"_id": "m", "text": "Who?", "metadata": {"answer": "Ann", **gold}},
        plain("p", **gold),
    ]
    path = write(tmp_path / "nq.jsonl", *records)
    squads = tmp_path / "squad.json"
    squads.write_text(json.dumps(squad(article("One", {**qa("s", "Ann"), **gold}))))
    loaded, diagnostics = load([path, squads], dataset="nq")
    assert diagnostics.errors == ()
    documents = loaded.provenance.drop_nulls("doc_id").group_by("query_id").agg("rank", "doc_id")
    lists = {row["query_id"]: (row["rank"], row["doc_id"]) for row in documents.to_dicts()}
    assert lists == {name: ([1, 2], ["d2", "7"]) for name in "kbmps"}


# one page, as SQuAD, KILT, HotpotQA and dumps of Wikipedia may write its name
SPELLINGS = ["Café Müller", "Cafe\u0301 Mu\u0308ller", "Café_Müller", " Café\u00a0Müller  ", "Café  Müller"]


@pytest.mark.parametrize("passage", SPELLINGS)
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_names_of_pages_meet_in_whatever_spelling(tmp_path: pathlib.Path, passage: str, form: str) -> None:
    kilts = [
        kilt(f"k{number}", output=[{"answer": "Ann", "provenance": [{"wikipedia_id": name}]}])
        for number, name in enumerate(SPELLINGS)
    ]
    path = write(tmp_path / "nq.jsonl", *kilts)
    squads = tmp_path / "squad.json"
    articles = [article(name, qa(f"s{number}", "Ann")) for number, name in enumerate(SPELLINGS)]
    squads.write_text(json.dumps(squad(*articles)))
    loaded, diagnostics = load([path, squads], dataset="nq")
    pages = {"page_id": [passage, "Café"], "title": ["", ""], "text": ["x", "y"]}
    passages = pl.DataFrame({"doc_id": ["d1", "d2"], **pages})
    file = tmp_path / f"p.{form}"
    _ = passages.write_parquet(file) if form == "parquet" else passages.write_ndjson(file)
    corpus = load_passages(str(file), diagnostics, page_ids=loaded.provenance["page_id"])
    runs = load_run("r", write(tmp_path / "kilt.jsonl", *kilts), diagnostics)
    assert diagnostics.errors == ()
    assert corpus["doc_id"].to_list() == ["d1"]
    assert set(loaded.provenance["page_id"]) == set(runs["page_id"]) == set(corpus["page_id"])


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0")))
def test_a_column_of_pages_has_the_keys_of_its_names(name: str) -> None:
    (key,) = pl.DataFrame({"name": [name]}, schema={"name": pl.String}).select(page_keys("name"))["name"]
    assert key == (page_key(name) or None)
