"""The same lists by every door: ids, keys, orders and numbering follow one rule, or are refused by the same words."""

import json
import pathlib
import types
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from input_files import diagnosed, without_errors

from erag_ray.api.documents import passage_table, run_table
from erag_ray.api.questions import question_records
from erag_ray.data.datasets.queries import load_queries
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.documents import text_id
from erag_ray.data.files.ids import identifier
from erag_ray.data.passages.load import load_passages
from erag_ray.data.runs.load import load_run
from erag_ray.inputs.tables import check_numbering
from erag_ray.retrieve.outside.adapters import as_search
from erag_ray.retrieve.outside.searching import Searching
from erag_ray.support.errors import InputError, JobError

Document = dict[str, Any]
Lists = dict[str, list[Document]]
Outcome = tuple[dict[str, list[str]], str]
"""The ids of each list, and all errors."""


def loaded(path: pathlib.Path) -> Outcome:
    entries, diagnostics = diagnosed(load_run, "mine", path)
    ids = entries.sort("query_id", "rank").group_by("query_id", maintain_order=True).agg("doc_id")
    return dict(ids.iter_rows()), "\n".join(diagnostics.errors)


def by_json_lines(folder: pathlib.Path, lists: Lists) -> Outcome:
    records = [{"query_id": query, "documents": documents} for query, documents in lists.items()]
    path = folder / "run.jsonl"
    path.write_text("".join(json.dumps(record, default=float) + "\n" for record in records))
    return loaded(path)


def rows_of(lists: Lists, *, has_rank: bool) -> list[Document]:
    return [
        {"query_id": query, **({"rank": rank} if has_rank else {}), **document}
        for query, documents in lists.items()
        for rank, document in enumerate(documents, 1)
    ]


def by_parquet(folder: pathlib.Path, lists: Lists, *, has_rank: bool = True) -> Outcome:
    path = folder / "run.parquet"
    pl.DataFrame(rows_of(lists, has_rank=has_rank), strict=False).write_parquet(path)
    return loaded(path)


def by_python(folder: pathlib.Path, lists: Any) -> Outcome:
    try:
        run_table(lists, "mine").write_parquet(folder / "given.parquet")
    except InputError as error:
        return {}, str(error)
    return loaded(folder / "given.parquet")


def by_retriever(folder: pathlib.Path, lists: Lists) -> Outcome:
    queries = pl.DataFrame({"query_id": [*lists], "question": [*lists]})
    search = as_search(lambda question, count: lists[question])
    try:
        found = Searching(name="mine", search=search, depth=9).lists(queries, show=False)
    except JobError as error:
        return {}, str(error)
    return dict(found.group_by("query_id", maintain_order=True).agg("doc_id").iter_rows()), ""


DOORS: dict[str, Callable[[pathlib.Path, Lists], Outcome]] = {
    "JSON Lines": by_json_lines,
    "Parquet": by_parquet,
    "mapping": by_python,
    "polars": lambda folder, lists: by_python(
        folder, pl.DataFrame(rows_of(lists, has_rank=True), strict=False)
    ),
    "pandas": lambda folder, lists: by_python(folder, pd.DataFrame(rows_of(lists, has_rank=True))),
    "retriever": by_retriever,
}
every_door = pytest.mark.parametrize("door", DOORS)


@pytest.mark.parametrize(
    "value",
    ["7", 7, 7.0, np.int64(7), np.uint8(7), np.float32(7), np.array(7), Decimal(7), np.str_("7")],
    ids=repr,
)
def test_one_number_has_one_name_however_it_is_written(value: Any) -> None:
    assert identifier(value) == "7"
    lists = {7: [7]} if isinstance(value, np.ndarray) else {value: [(value, "Ann built it.")]}
    assert run_table(lists, "mine")["query_id"].to_list() == ["7"]
    assert question_records([{"id": value, "question": "Who?", "answers": ["Ann"]}])[0][0]["id"] == "7"
    assert passage_table([{"id": value, "text": "Ann built it."}])["doc_id"].to_list() == ["7"]


@every_door
@pytest.mark.parametrize("number", [7, 7.0, np.int64(7)], ids=repr)
@pytest.mark.parametrize(
    "key", ["doc_id", "id", "_id", "docid", "docId", "document_id", "passage_id", "pid", "docno"]
)
def test_an_id_is_read_under_all_its_keys_at_every_door(
    tmp_path: pathlib.Path, door: str, key: str, number: Any
) -> None:
    lists = {"1": [{key: number, "text": "Ann built it."}, {key: 8, "text": "Bob sold it."}]}
    assert DOORS[door](tmp_path, lists) == ({"1": ["7", "8"]}, "")
    records = [{key: number, "text": "Ann built it."}]
    path = tmp_path / "passages.jsonl"
    path.write_text(json.dumps(records[0], default=float))
    pd.DataFrame(records).to_parquet(tmp_path / "passages.parquet")
    page = "7" if key == "_id" else None
    for corpus in (
        load_passages(path, Diagnostics()),
        load_passages(tmp_path / "passages.parquet", Diagnostics()),
        passage_table(pd.DataFrame(records)),
    ):
        assert corpus.rows() == [("7", page, "", "Ann built it.")]


@every_door
@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"doc_id": 7.5}, "doc_id is 7.5; it must be a string or a whole number"),
        ({"id": float("nan")}, "id is nan; it must be a string or a whole number"),
        ({"doc_id": 1e300}, "doc_id is 1e+300; it must be a string or a whole number"),
        ({"id": 3, "docno": 4}, "several ids: id"),
        *(({key: "c7"}, key) for key in ("chunk_id", "nodeId", "uuid", "uid", "doc", "documentKey")),
    ],
)
def test_what_is_no_id_or_under_an_unknown_key_is_refused_at_every_door(
    tmp_path: pathlib.Path, door: str, document: Document, message: str
) -> None:
    ids, errors = DOORS[door](tmp_path, {"1": [{**document, "text": "Ann built it."}]})
    assert ids == {}
    assert message in errors


@every_door
def test_keys_of_other_things_are_no_ids(tmp_path: pathlib.Path, door: str) -> None:
    text = "Ann built it."
    lists = {"1": [{"page_id": "p", "parent_id": "q", "valid": "r", "doc_id": None, "text": text}]}
    assert DOORS[door](tmp_path, lists) == ({"1": [text_id(None, text)]}, "")


def test_lists_of_faiss_are_read(tmp_path: pathlib.Path) -> None:
    scores, ids = np.array([[0.9, 0.5]], np.float32), np.array([[4, 2]])
    pairs = {np.int64(1): [*zip(ids[0], scores[0], strict=True)]}
    for lists in (pairs, {1: ids[0]}, {1.0: np.array([[4, 0.9], [2, 0.5]])}, {"1": pl.Series([4, 2])}):
        assert by_python(tmp_path, lists) == ({"1": ["4", "2"]}, "")
    assert "the same question as runs['mine'][7]" in by_python(tmp_path, {7: ["a"], "7": ["b"]})[1]


def test_rows_of_frames_are_documents_and_named_indexes_columns(tmp_path: pathlib.Path) -> None:
    rows = [
        {"docno": 7, "text": "Ann built it.", "score": 2.0},
        {"docno": 8, "text": "Bob sold it.", "score": 1.0},
    ]
    for frame in (pd.DataFrame(rows), pl.DataFrame(rows)):
        assert by_retriever(tmp_path, {"1": frame}) == ({"1": ["7", "8"]}, "")  # type: ignore[dict-item]
    named = pd.DataFrame(rows, index=pd.Index([1.0, 1.0], name="qid"))
    assert by_python(tmp_path, named) == ({"1": ["7", "8"]}, "")
    asked = pd.DataFrame({"question": ["Who?"], "answer": ["Ann"]}, index=pd.Index(["q7"], name="qid"))
    assert question_records(asked)[0][0]["id"] == "q7"
    texts = [{"qid": 1, "docno": 7, "score": "high"}]
    assert "[0]: score is 'high'; it must be a finite number" in by_python(tmp_path, texts)[1]
    by_id = {"q1": {"a": 1, "b": np.float32(2), "c": 2.0}, "q2": {}}
    assert by_python(tmp_path, by_id) == ({"q1": ["c", "b", "a"]}, "")
    assert "a dict, not a list of documents or scores by id" in by_python(tmp_path, {"q1": {"d1": "a"}})[1]


def scored(*scores: float | None) -> list[Document]:
    pairs = enumerate(scores)
    return [{"doc_id": f"d{rank}", "text": f"text {rank}", "score": score} for rank, score in pairs]


RISING, FALLING = scored(0.1, 0.5, 0.5, 0.9), scored(9, 8, 8, 1)


def by_trec(folder: pathlib.Path, lists: Lists) -> Outcome:
    lines = [
        f"{row['query_id']} Q0 {row['doc_id']} {row['rank']} {row['score']} tag"
        for row in rows_of(lists, has_rank=True)
    ]
    (folder / "run.trec").write_text("\n".join(lines))
    return loaded(folder / "run.trec")


def by_kilt(folder: pathlib.Path, lists: Lists) -> Outcome:
    records = [{"id": query, "output": [{"provenance": documents}]} for query, documents in lists.items()]
    (folder / "run.jsonl").write_text("\n".join(map(json.dumps, records)))
    return loaded(folder / "run.jsonl")


ORDERED = {
    **DOORS,
    "TREC": by_trec,
    "KILT": by_kilt,
    "tuples": lambda folder, lists: by_python(
        folder,
        {
            query: [(one["doc_id"], one["text"], one["score"]) for one in of_one]
            for query, of_one in lists.items()
        },
    ),
    "Parquet without rank": lambda folder, lists: by_parquet(folder, lists, has_rank=False),
    "no rank": lambda folder, lists: by_python(folder, pd.DataFrame(rows_of(lists, has_rank=False))),
}


@pytest.mark.parametrize("door", ORDERED)
def test_scores_that_rise_are_refused_at_every_door(tmp_path: pathlib.Path, door: str) -> None:
    read = ORDERED[door]
    ids, errors = read(tmp_path, {"q1": RISING, "q2": RISING})
    assert "scores rise with the rank in 2 of 2 lists, such as query 'q1': rank 1 score 0.1" in errors
    ids, errors = read(tmp_path, {"q1": scored(1, 2, 3)})
    assert "scores are ranks in 1 of 1 lists" in errors
    # as some lists of many, and equal scores beside others, are no order
    same = {"q1": scored(1, 1, 1)}
    for lists in ({"q1": FALLING, "q2": RISING[:2]}, {"q1": FALLING}, {**same, "q2": FALLING}, same):
        ids, errors = read(tmp_path, lists)
        is_fault = lists is same and door in ("TREC", "Parquet without rank", "no rank")
        assert (
            ("scores are the same in every list, and give no order. Write" in errors)
            == is_fault
            == bool(errors)
        )
        assert len(ids) == len(lists)


@pytest.mark.parametrize("door", ["JSON Lines", "KILT", "mapping", "retriever"])
def test_lists_in_another_order_than_ranks_or_scores_as_texts(tmp_path: pathlib.Path, door: str) -> None:
    ranked = [{**one, "rank": rank} for one, rank in zip(FALLING, (1, 3, 2, 4), strict=True)]
    errors = ORDERED[door](tmp_path, {"q1": ranked})[1]
    assert errors.count("rank 2 comes after rank 3. The order of a list is its rank: sort it by") == 1
    assert ORDERED[door](tmp_path, {"q1": ranked[::2]}) == ({"q1": ["d0", "d2"]}, "")
    texts = [{**one, "score": str(one["score"])} for one in RISING]
    assert "scores rise with the rank in 2 of 2" in ORDERED[door](tmp_path, {"q1": texts, "q2": texts})[1]


def test_single_lists_that_rise_or_are_not_sorted_are_named(tmp_path: pathlib.Path) -> None:
    lists = {"odd": RISING, "odder": [*FALLING[1:], FALLING[0]]}
    lists |= {f"q{number}": FALLING for number in range(9)}
    by_parquet(tmp_path, lists)
    _, diagnostics = diagnosed(load_run, "mine", tmp_path / "run.parquet")
    (note,) = diagnostics.warnings
    assert note == "run 'mine': lists whose scores do not fall with the rank, which is used: 2 (odder, odd)"


@pytest.mark.parametrize("ranks", [[0, 0, 0], [5, 5, 5], [0, 1, 2], [1, 1, 2], [1.0, 2.0, 3.0]])
def test_a_rank_that_is_no_order_or_begins_with_0_causes_no_note(tmp_path: pathlib.Path, ranks: Any) -> None:
    lists = {"q1": scored(9, 8, 7), "q2": scored(3, 2, 1)}
    rows = [{**row, "rank": ranks[number % 3]} for number, row in enumerate(rows_of(lists, has_rank=True))]
    path = tmp_path / "run.trec"
    texts = (f"{row['query_id']} Q0 {row['doc_id']} {row['rank']} {row['score']} t" for row in rows)
    path.write_text("\n".join(texts))
    frames: list[Any] = [pd.DataFrame(rows), pl.DataFrame(rows)] if ranks != [1, 1, 2] else []
    for number, frame in enumerate(frames):
        run_table(frame, "mine").write_parquet(tmp_path / f"{number}.parquet")
    for file in (path, *tmp_path.glob("*.parquet")):
        entries, diagnostics = diagnosed(load_run, "mine", file)
        assert (diagnostics.errors, diagnostics.warnings) == ((), ())
        assert entries["doc_id"].to_list() == ["d0", "d1", "d2"] * 2


@pytest.mark.parametrize("tag", ["run_id", "tag", "run", "run_name", "retriever", "System", "method"])
def test_of_two_runs_in_one_file_the_one_of_the_name_is_read(tmp_path: pathlib.Path, tag: str) -> None:
    rows = [("q1", "d1", 9, "bm25"), ("q1", "d2", 8, "dense"), ("q2", "d2", 8, "dense")]
    trec, frame = (
        tmp_path / "two.trec",
        pl.DataFrame(rows, schema=["query_id", "doc_id", "score", tag], orient="row"),
    )
    trec.write_text("\n".join(f"{query} Q0 {doc} 1 {score} {tag}" for query, doc, score, tag in rows))
    frame.write_parquet(tmp_path / "two.parquet")
    run_table(frame, "mine").write_parquet(tmp_path / "given.parquet")
    for file in (trec, tmp_path / "two.parquet", tmp_path / "given.parquet"):
        assert without_errors(load_run, "dense", file)["doc_id"].to_list() == ["d2", "d2"]
        assert "no run 'mine'; the file has bm25, dense" in loaded(file)[1]
    records = [
        {"query_id": query, tag: run, "documents": [{"id": doc, "text": "t"}]}
        for query, doc, _, run in rows[::2]
    ]
    (tmp_path / "two.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert ":2: a list of run 'dense', and that at " in loaded(tmp_path / "two.jsonl")[1]


@pytest.mark.parametrize(
    ("questions", "listed", "is_refused"),
    [
        (range(1, 4), range(3), True),
        (range(1, 4), [0, 2], True),
        (range(3), range(1, 4), True),
        (range(1, 4), range(4), False),
        (range(1, 4), [1, 2], False),
        ([1, 2, 4], range(3), False),
        (range(5, 8), range(4, 7), False),
    ],
)
def test_lists_numbered_from_0_for_questions_from_1(questions: Any, listed: Any, is_refused: bool) -> None:
    queries = pl.DataFrame({"query_id": [str(one) for one in questions]})
    entries = pl.DataFrame({"run_id": "mine", "query_id": [str(one) for one in listed]})
    for lists, given, words in (
        (entries, entries.clear(), "run"),
        (entries.clear(), entries, "outputs: run"),
    ):
        _, diagnostics = diagnosed(check_numbering, queries, lists, given)
        beginnings = [f"{words} 'mine' is of questions numbered from"] * is_refused
        assert [error[: len(words) + 37] for error in diagnostics.errors] == beginnings


def test_qrels_numbered_from_0_for_questions_from_1_are_refused(tmp_path: pathlib.Path) -> None:
    questions = [{"id": float(number), "question": "Who?", "answers": ["Ann"]} for number in (1, 2, 3)]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, questions)))
    for first, is_refused in ((0, True), (1, False)):
        text = "".join(f"{number} 0 d1 1\n" for number in range(first, first + 3))
        (tmp_path / "qrels.txt").write_text(text)
        qrels = [tmp_path / "qrels.txt"]
        found, diagnostics = diagnosed(load_queries, tmp_path / "q.jsonl", qrels=qrels, dataset="nq")
        assert found.queries["query_id"].to_list() == ["1", "2", "3"]
        assert ["numbered from 0" in error for error in diagnostics.errors] == [True] * is_refused


def chunk(text: str, **metadata: object) -> types.SimpleNamespace:
    """Looks like a LangChain document whose metadata has the id of its page."""
    return types.SimpleNamespace(page_content=text, metadata=metadata or {"doc_id": "page7"}, id=None)


def test_chunks_that_share_the_id_of_their_page_are_refused_with_the_way_out() -> None:
    queries = pl.DataFrame({"query_id": ["q"], "question": ["q"]})
    texts = "Ann built it.", "Bob sold it."
    chunks = [*map(chunk, texts)]
    for documents in (chunks, [{"text": text, "metadata": {"id": 7}} for text in texts]):
        search = as_search(lambda question, count, found=documents: found)
        message = r"after one attempt.*metadata\.(doc_)?id is not its own id.* or leave it out"
        with pytest.raises(JobError, match=message):
            Searching(name="m", search=search, depth=2).lists(queries, show=False)
    message = r"\['q'\]\[1\]: document 'page7' .*metadata\.doc_id is not its own id"
    with pytest.raises(InputError, match=message):
        run_table({"q": chunks}, "mine")
    # a random id is none, in the metadata too, also beside another
    random_id = "6d0f3f0e-8f0b-4c58-9a55-0a1b2c3d4e5f"
    both = chunk("Ann built it.", id=7.0, _id=random_id)
    assert run_table({"q": [both]}, "mine")["doc_id"].to_list() == ["7"]
    random = [chunk(text, doc_id=random_id) for text in texts]
    found = Searching(name="m", search=as_search(lambda question, count: random), depth=2).lists(
        queries, show=False
    )
    assert found["doc_id"].to_list() == [text_id(None, text) for text in texts]
