"""Lists that bring their texts and latencies: both formats, ids of texts, and CORPUS beside passage files."""

import pathlib
from typing import Any

import numpy as np
import polars as pl
import pytest
import xxhash
from given_results import results, tables_of_view
from gold import gold_of
from guides import blocks, text_of
from hypothesis import given, settings
from hypothesis import strategies as st
from input_files import diagnosed, only_error, without_errors, write

from erag_ray.analyses.contract import View
from erag_ray.analyses.costs import OF_LATENCY
from erag_ray.analyses.means import MEANS
from erag_ray.analyses.parts.formats import rows_of_text
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.documents import text_id
from erag_ray.data.passages.load import CORPUS_COLUMNS
from erag_ray.data.runs.entries import ENTRY_COLUMNS
from erag_ray.data.runs.load import format_of, load_run
from erag_ray.data.runs.predictions import resolve_pages
from erag_ray.data.runs.texts import load_corpus, seconds_of, with_texts
from erag_ray.store.schemas import RETRIEVAL_SECONDS, RUNS, conform

LISTS = {
    "query_id": ["q1", "q1", "q2"],
    "rank": [2, 1, 1],
    "doc_id": ["d2", "d1", "d1"],
    "title": [None, "Marn", "Marn"],
    "text": ["Bob sold it.", "Ann built it.", "Ann built it."],
    "seconds": [0.25, 0.25, 0.5],
}
ROWS = [
    ("q1", 1, "d1", "Marn", "Ann built it.", 0.25),
    ("q1", 2, "d2", None, "Bob sold it.", 0.25),
    ("q2", 1, "d1", "Marn", "Ann built it.", 0.5),
]
SHOWN = ("query_id", "rank", "doc_id", "title", "text", "seconds")


def parquet(folder: pathlib.Path, **changes: Any) -> pathlib.Path:
    """A Parquet run with texts; a column that is None is left out."""
    columns = {name: values for name, values in {**LISTS, **changes}.items() if values is not None}
    path = folder / "run.parquet"
    pl.DataFrame(columns).write_parquet(path)
    return path


def loaded(path: pathlib.Path) -> pl.DataFrame:
    return without_errors(load_run, "r", path)


def errors_of(path: pathlib.Path) -> tuple[str, ...]:
    _, diagnostics = diagnosed(load_run, "r", path)
    return tuple(text.replace(str(path), "FILE") for text in diagnostics.errors)


def test_a_parquet_run_brings_texts_titles_and_latencies(tmp_path: pathlib.Path) -> None:
    entries = loaded(parquet(tmp_path))
    assert entries.select(SHOWN).rows() == ROWS
    assert entries.schema == ENTRY_COLUMNS
    assert conform(seconds_of(entries), RETRIEVAL_SECONDS).to_pylist() == [
        {"run_id": "r", "query_id": "q1", "seconds": 0.25},
        {"run_id": "r", "query_id": "q2", "seconds": 0.5},
    ]
    conform(resolve_pages(entries, pl.DataFrame(schema=CORPUS_COLUMNS), Diagnostics()), RUNS)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_list_that_found_nothing_keeps_its_latency(tmp_path: pathlib.Path, form: str) -> None:
    one = {"doc_id": "d1", "text": "Ann built it."}
    if form == "jsonl":
        records = [("q1", [one], 0.5), ("q2", [], 0.25), ("q3", [], None)]
        path = write(
            tmp_path / "run.jsonl",
            *({"query_id": name, "documents": found, "seconds": taken} for name, found, taken in records),
        )
    else:
        rows = {"query_id": ["q1", "q2"], "rank": [1, 0], "seconds": [0.5, 0.25]}
        path = parquet(tmp_path, **rows, doc_id=["d1", None], title=None, text=[one["text"], None])
    entries = loaded(path)
    assert seconds_of(entries).select("query_id", "seconds").rows() == [("q1", 0.5), ("q2", 0.25)]
    # to all others it is no document
    runs = resolve_pages(entries, pl.DataFrame(schema=CORPUS_COLUMNS), Diagnostics())
    assert runs.select("query_id", "rank", "doc_id").rows() == [("q1", 1, "d1")]
    nothing = entries.filter(rank=0)
    nothing.write_parquet(tmp_path / "nothing.parquet")
    error = only_error(load_run, "r", tmp_path / "nothing.parquet")
    assert error.endswith("nothing.parquet: run 'r' has no list with a document")
    assert load_corpus([], nothing, Diagnostics(), gold=gold_of()).is_empty()


def test_json_lines_of_lists_are_known_by_their_fields(tmp_path: pathlib.Path) -> None:
    first, second = (
        {"doc_id": "d1", "title": "Marn", "text": "Ann built it."},
        {"doc_id": "d2", "text": "Bob sold it."},
    )
    path = write(
        tmp_path / "run.jsonl",
        {"query_id": "q2", "documents": [first], "seconds": 0.5},
        {"query_id": "q1", "seconds": 0.25, "documents": [{**first, "score": 3}, second]},
        {"query_id": "q3", "documents": []},
    )
    entries = loaded(path)
    assert entries.select(SHOWN).rows() == ROWS
    assert entries["score"].to_list() == [3.0, None, None]
    record = {"id": "q1", "output": [{"provenance": [{"doc_id": "d1"}]}]}
    predictions = write(tmp_path / "kilt.jsonl", record)
    assert (format_of(str(path)), format_of(str(predictions))) == ("lists", "kilt")


@pytest.mark.parametrize("blank", [" ", "\n"])
def test_scores_by_id_in_one_object_are_the_order(tmp_path: pathlib.Path, blank: str) -> None:
    path, text = tmp_path / "run.json", '{"q2": {"d1": 0.5}, "q1": {"d2": 1, "d1": 1.0, "d3": 7.5}, "q3": {}}'
    path.write_text(text.replace(" ", blank))
    rows = [("q1", 1, "d3"), ("q1", 2, "d2"), ("q1", 3, "d1"), ("q2", 1, "d1")]
    assert loaded(path).select("query_id", "rank", "doc_id").rows() == rows
    equal = (
        '{"q": {"d1": 1, "d2": 1, "d3": 1}}',
        "run 'r': the scores are the same in every list, and give no",
    )
    for content, error in (equal, ('[["d1"]]', "item 1 is a list where an object is expected")):
        path.write_text(content)
        assert errors_of(path)[0].startswith(f"FILE: {error}")
    path.write_text('{"q1": {"d2": null, "d1": NaN, "d3": "x", "d4": 1}}')
    text = "FILE: run 'r', query 'q1': the score of {!r} is not a finite number"
    assert errors_of(path) == tuple(map(text.format, ("d2", "d1", "d3")))


def test_a_document_without_an_id_is_called_by_its_title_and_text(tmp_path: pathlib.Path) -> None:
    made = f"text-{xxhash.xxh3_64(b'Marn' + bytes(1) + b'Ann built it.').hexdigest()}"
    untitled = f"text-{xxhash.xxh3_64(bytes(1) + b'Bob sold it.').hexdigest()}"
    assert (text_id("Marn", "Ann built it."), text_id(None, "Bob sold it.")) == (made, untitled)
    for ids in (None, [None, None, " "]):
        entries = loaded(parquet(tmp_path, doc_id=ids))
        assert entries["doc_id"].to_list() == [made, untitled, made]
    # a text that comes twice in a list is two documents there, numbered by rank
    twice = loaded(parquet(tmp_path, doc_id=None, rank=[2, 1, 3], query_id=["q"] * 3, seconds=None))
    assert twice["doc_id"].to_list() == [made, untitled, f"{made}-2"]
    again = {"title": "Marn", "text": "Ann built it."}
    documents = [again, {"text": "Bob sold it."}, again]
    records = loaded(write(tmp_path / "run.jsonl", {"query_id": "q", "documents": documents}))
    assert records["doc_id"].to_list() == twice["doc_id"].to_list()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text": ["a", None, "b"]}, "FILE: row 2: text is missing"),
        ({"text": ["a", "b", " \n"]}, "FILE: row 3: text is missing"),
        ({"text": [1.5, 2.5, 3.5]}, "FILE: column 'text' holds Float64; it must hold strings"),
        ({"title": [True, True, False]}, "FILE: column 'title' holds Boolean; it must hold strings"),
        ({"seconds": [0.1, 0.1, -1.0]}, "FILE: row 3: seconds is not a finite number of at least 0"),
        ({"seconds": [0.1, float("nan"), 1]}, "FILE: row 2: seconds is not a finite number of at least 0"),
        ({"seconds": ["fast", "fast", "slow"]}, "FILE: column 'seconds' holds String; it must hold numbers"),
        ({"seconds": [0.1, 0.2, 0.5]}, "'q1': seconds must be the same in all rows of a list, got 0.2, 0.1"),
        ({"text": None, "doc_id": None}, "FILE: no column 'doc_id'; it has query_id, rank, title, seconds"),
        ({"doc_id": ["d1", "d1", "d1"]}, "run 'r', query 'q1': document 'd1' is in the list more than once"),
    ],
)
def test_a_bad_parquet_run_names_row_or_list(tmp_path: pathlib.Path, changes: Any, message: str) -> None:
    # a row that is left out may leave a gap in the ranks too
    assert errors_of(parquet(tmp_path, **changes))[0].endswith(message)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"documents": [{"title": "T"}]}, "document 1: neither an id nor a text in title"),
        ({"documents": [{"text": " "}]}, "document 1: text is ' '; it must be a string that is not blank"),
        ({"documents": [{"text": 7}]}, "document 1: text is 7; it must be a string"),
        ({"documents": [{"text": "a", "title": []}]}, "document 1: title is []; it must be a string"),
        ({"documents": [{"text": "a", "doc_id": 1.5}]},
         "document 1: doc_id is 1.5; it must be a string or a"),
        ({"documents": [], "seconds": -1}, "seconds is -1; it must be a number of at least 0"),
        ({"documents": [], "seconds": True}, "seconds is True; it must be a number of at least 0"),
        ({"documents": "d1"}, "documents is 'd1'; it must be a list"),
        ({}, "query 'q1' of run 'r' has no documents"),
        ({"query_id": None, "documents": []}, "query_id is None; it must be a string or a whole number"),
        ({"query_id": "q0", "documents": []}, "query 'q0' of run 'r' repeats the one at FILE:1"),
        ({"documents": [{"doc_id": "d", "text": one} for one in "ab"]}, "document 2: document 'd' is in the list"),
    ],
)  # fmt: skip
def test_a_bad_record_is_named_by_its_line(tmp_path: pathlib.Path, record: Any, message: str) -> None:
    good = {"query_id": "q0", "documents": [{"text": "a"}]}
    (error,) = errors_of(write(tmp_path / "run.jsonl", good, {"query_id": "q1", **record}))
    assert error.startswith(f"FILE:2: {message}")


@pytest.mark.parametrize(
    ("file", "text", "first", "scores"),
    [
        ("run.jsonl", '{"query_id": "q1", "doc_ids": ["d1", "d2"]}', None, [None, None]),
        ("run.jsonl", '{"id": "q1", "documents": [{"id": "d1", "text": "a"}, {"id": "d2"}]}', "a", [None, None]),
        ("run.csv", 'qid;docno;Rank;score;Text\nq1;d2;2;2;b\nq1;d1;1;9.5;"a\n\n""b"""\n', 'a\n\n"b"', [9.5, 2]),
        ("run.csv", "query_id,doc_id,score\nq1,d1,1e2\nq1,d2,0\n", None, [100, 0]),
    ],
)  # fmt: skip
def test_lists_have_many_forms(file: str, text: str, first: Any, scores: Any, tmp_path: pathlib.Path) -> None:
    (tmp_path / file).write_bytes(text.encode())
    entries = loaded(tmp_path / file)
    assert entries.select("rank", "doc_id").rows() == [(1, "d1"), (2, "d2")]
    assert (entries["text"][0], entries["score"].to_list()) == (first, scores)


def entries_of(rows: list[tuple[str, str, int, str, str | None, str | None]]) -> pl.DataFrame:
    names = ("run_id", "query_id", "rank", "doc_id", "title", "text")
    frame = pl.DataFrame(rows, schema={name: ENTRY_COLUMNS[name] for name in names}, orient="row")
    return pl.concat([pl.DataFrame(schema=ENTRY_COLUMNS), frame], how="diagonal")


def corpus_of(*rows: tuple[str, str | None, str, str]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=CORPUS_COLUMNS, orient="row")


def test_two_texts_under_one_id_are_one_error_with_both_and_their_sources() -> None:
    long = "the same beginning of two texts that is longer than what is shown of them, "
    entries = entries_of(
        [
            ("a", "q1", 1, "d1", None, f"{long}and this"),
            ("b", "q1", 3, "d1", None, f"{long}but that"),
            ("b", "q2", 1, "d1", None, f"{long}but that"),
            ("b", "q2", 2, "d2", "Two", "from a list"),
            ("b", "q2", 3, "d3", "Three", "equal"),
        ]
    )
    corpus = corpus_of(("d2", "p", "Two", "from a file"), ("d3", "p", "Other", "equal"))
    _, diagnostics = diagnosed(with_texts, corpus, entries)
    assert [error.partition(". Give each ")[0] for error in diagnostics.errors] == [
        "document 'd2' has two texts: 'from a file' (the passages) and 'from a list' (run 'b', query 'q2', rank 2)",
        "document 'd1' has two texts: '...t is shown of them, and this' (run 'a', query 'q1', rank 1) and "
        "'...t is shown of them, but that' (run 'b', query 'q1', rank 3)",
        "document 'd3' has two titles: 'Other' (the passages) and 'Three' (run 'b', query 'q2', rank 3)",
    ]


def test_lists_without_texts_leave_the_passages_as_they_are(tmp_path: pathlib.Path) -> None:
    corpus = corpus_of(("d1", "p", "", " "))
    assert with_texts(corpus, entries_of([("a", "q", 1, "d1", None, None)]), Diagnostics()) is corpus
    # and there must be some
    error = only_error(load_corpus, [], entries_of([("a", "q", 1, "d1", None, None)]), gold=gold_of())
    assert error == (
        "passages: none are given, and the lists have ids without texts (run 'a', query 'q': 'd1'). Set passages "
        "to the texts of the documents, or give lists with texts"
    )


NAMES = st.sampled_from(["d1", "d2", "d3", "d4"])
TITLES = st.sampled_from([None, "", "One", "Two"])
TEXTS = st.sampled_from(["a", "b"])


@settings(max_examples=60)
@given(
    documents=st.lists(st.tuples(NAMES, TITLES | st.just(" "), TEXTS), max_size=8),
    passages=st.lists(st.tuples(NAMES, TITLES, TEXTS), max_size=4, unique_by=lambda row: row[0]),
)
def test_the_union_holds_each_document_once_or_names_it(documents: Any, passages: Any) -> None:
    corpus = corpus_of(*((doc_id, "p", title or "", text) for doc_id, title, text in passages))
    entries = entries_of([("r", "q", rank, *row) for rank, row in enumerate(documents, 1)])
    found, diagnostics = diagnosed(with_texts, corpus, entries)
    titles: dict[str, list[str]] = {}
    texts: dict[str, list[str]] = {}
    for doc_id, title, text in [*passages, *documents]:
        titles.setdefault(doc_id, []).extend([title] if (title or "").strip() else [])
        texts.setdefault(doc_id, []).append(text)
    named = {doc_id for doc_id in texts if len(set(texts[doc_id])) > 1 or len(set(titles[doc_id])) > 1}
    assert {error.split("'")[1] for error in diagnostics.errors} == named
    in_files = {doc_id for doc_id, _, _ in passages}
    assert found.rows() == [
        (doc_id, "p" if doc_id in in_files else None, next(iter(titles[doc_id]), ""), texts[doc_id][0])
        for doc_id in texts
    ]


def test_the_table_of_latencies_has_median_and_95th_percentile() -> None:
    random = np.random.default_rng(3)
    values = random.exponential(0.1, 41)
    names = [f"q{number}" for number in range(41)]
    seconds = pl.DataFrame({"run_id": "slow", "query_id": names, "seconds": values})
    queries = pl.DataFrame({"query_id": [f"q{number}" for number in range(40)], "dataset": "nq"})
    utility = {"run_id": ["slow", "slow", "unknown"], "depth": [1, 5, 5], "mean": [0.9, 0.25, 0.5]}
    fixed = {
        "dataset": "nq",
        "reader": "r",
        "score": "s",
        "annotator": "end_to_end",
        "measure": "",
        "cutoff": 0,
    }
    means = MEANS.empty().clear()
    rows = pl.DataFrame(utility).with_columns(pl.lit(value).alias(name) for name, value in fixed.items())
    means = pl.concat([means, rows.cast({"depth": pl.Int32, "cutoff": pl.Int32})], how="diagonal")
    given = results(means=means, queries=queries, retrieval_seconds=seconds)
    (table,) = tables_of_view(OF_LATENCY, View(results=given, dataset="nq", runs=["unknown", "slow"]))
    # the 41st question is of another dataset
    median, high = np.percentile(values[:40] * 1000, [50, 95])
    assert rows_of_text(table) == [
        ("unknown", "0.500", "-", "-", "-"),
        ("slow", "0.250", f"{median:.1f}", f"{high:.1f}", "40"),
    ]


def test_the_guides_example_is_read(tmp_path: pathlib.Path) -> None:
    (record,) = [body for body in blocks("json", text_of("jobs/INPUTS.md")) if "documents" in body]
    (tmp_path / "run.jsonl").write_text(record)
    entries = loaded(tmp_path / "run.jsonl")
    assert entries["doc_id"].to_list() == ["d1", text_id(None, "Bob sold it.")]
    assert entries["seconds"].to_list() == [0.012] * 2
