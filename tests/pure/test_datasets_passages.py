"""Passage files -> CORPUS."""

import functools
import gzip
import pathlib

import polars as pl
import pytest
from input_files import diagnosed, only_error, without_errors, write

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.passages.load import load_passages
from erag_ray.store import schemas

ROWS = [
    {"doc_id": "d3", "page_id": "p1", "title": "One", "text": "first"},
    {"doc_id": "d1", "page_id": "p1", "title": "One", "text": "second"},
    {"doc_id": "d2", "page_id": "p2", "title": "Two", "text": "third"},
]


problem_of = functools.partial(only_error, load_passages)


@pytest.fixture(params=["jsonl", "jsonl.gz", "parquet", "csv"])
def corpus_file(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> pathlib.Path:
    """The three rows in each format."""
    path: pathlib.Path = tmp_path / f"corpus.{request.param}"
    if request.param == "parquet":
        pl.DataFrame(ROWS).write_parquet(path)
    elif request.param == "csv":
        pl.DataFrame(ROWS).write_csv(path)
    else:
        write(path, *ROWS)
    if request.param == "jsonl.gz":
        path.write_bytes(gzip.compress(path.read_bytes()))
    return path


def test_all_passages_in_file_order(corpus_file: pathlib.Path) -> None:
    corpus, diagnostics = diagnosed(load_passages, corpus_file)
    assert corpus.to_dicts() == ROWS
    assert diagnostics.errors == diagnostics.warnings == ()
    schemas.conform(corpus, schemas.CORPUS)


@pytest.mark.parametrize(
    ("doc_ids", "page_ids", "kept"),
    [
        (["d2", "d3", "other"], None, ["d3", "d2"]),
        (None, ["p1", None], ["d3", "d1"]),
        (["d2"], ["p1"], ["d3", "d1", "d2"]),
        ([], [], []),
    ],
)
def test_only_wanted_passages_are_kept(
    corpus_file: pathlib.Path, doc_ids: list[str] | None, page_ids: list[str | None] | None, kept: list[str]
) -> None:
    corpus = without_errors(load_passages, corpus_file, doc_ids=doc_ids, page_ids=page_ids)
    assert corpus["doc_id"].to_list() == kept


def test_beir_and_pyserini_records_and_missing_fields(tmp_path: pathlib.Path) -> None:
    path = write(
        tmp_path / "corpus.jsonl",
        {"_id": "b1", "title": "T", "text": "x", "metadata": {}},
        {"id": 5, "contents": "y"},
        {"doc_id": "d", "page_id": 7, "title": None, "text": "z"},
    )
    assert without_errors(load_passages, path).rows() == [
        ("b1", "b1", "T", "x"),  # a BEIR document is its own page
        ("5", None, "", "y"),
        ("d", "7", "", "z"),
    ]
    inner = {"text": "x", "metadata": {"title": "T", "doc_id": "d1"}}
    pl.DataFrame([inner]).write_parquet(tmp_path / "inner.parquet")
    for file in (tmp_path / "inner.parquet", write(tmp_path / "inner.jsonl", inner)):
        assert without_errors(load_passages, file).rows() == [("d1", None, "T", "x")]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"page_id": "p", "text": "x"}, "doc_id is missing"),
        ({"doc_id": "", "text": "x"}, "doc_id is missing or blank"),
        ({"doc_id": "d", "text": None}, "text is missing; it must be a string, under one of text, cont"),
        ({"doc_id": "d", "text": 3}, "text is 3; it must be a string"),
        ({"doc_id": "d"}, "text is missing"),
        ({"doc_id": "d", "text": "x", "title": ["t"]}, "title is ['t']"),
        ({"doc_id": "d", "text": "x", "page_id": [1]}, "page_id is [1]"),
        ({"_id": "d", "text": "x", "page_id": [1]}, "page_id is [1]"),
        ("{'doc_id': 1}", "not JSON"),
    ],
)
def test_bad_record_is_named_by_line_also_where_it_is_not_wanted(
    tmp_path: pathlib.Path, bad: object, message: str
) -> None:
    path = write(tmp_path / "corpus.jsonl", ROWS[0], bad)
    assert problem_of(path, doc_ids=["d3"]).startswith(f"{path}:2: {message}")


def test_repeated_doc_ids_over_files_are_named_also_where_not_wanted(tmp_path: pathlib.Path) -> None:
    one = write(tmp_path / "one.jsonl", *ROWS, ROWS[0] | {"text": "again"})
    two = tmp_path / "two.parquet"
    pl.DataFrame(ROWS[2:]).write_parquet(two)
    corpus, diagnostics = diagnosed(load_passages, [one, two], doc_ids=["d1", "d3"])
    assert diagnostics.errors == (
        f"{one}:4: doc_id 'd3' repeats the one at {one}:1",
        f"{two}:1: doc_id 'd2' repeats the one at {one}:3",
    )
    # of repeated ones the first
    assert corpus.select("doc_id", "text").rows() == [("d3", "first"), ("d1", "second")]


def test_passages_without_text_are_noted(tmp_path: pathlib.Path) -> None:
    rows = [ROWS[0], ROWS[1] | {"text": " "}]
    parquet = tmp_path / "corpus.parquet"
    pl.DataFrame(rows).write_parquet(parquet)
    for path in (parquet, write(tmp_path / "corpus.jsonl", *rows)):
        corpus, diagnostics = diagnosed(load_passages, path)
        assert corpus.height == 2
        assert diagnostics.warnings == ("passages without text: 1 (d1)",)


def test_columns_of_parquet_that_may_lack_must_be_there_or_are_not_read(tmp_path: pathlib.Path) -> None:
    path, frame = tmp_path / "corpus.parquet", pl.DataFrame(ROWS)
    frame.drop("page_id", "title").with_columns(row=9).write_parquet(path)
    expected = [(row["doc_id"], None, "", row["text"]) for row in ROWS]
    assert load_passages(path, Diagnostics()).rows() == expected
    for column in ("doc_id", "text"):
        frame.drop(column).write_parquet(path)
        others = ", ".join(frame.drop(column).columns)
        assert problem_of(path) == f"{path}: no column {column!r}; it has {others}"


def test_parquet_rows_without_id_or_text(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "corpus.parquet"
    rows = [
        *ROWS,
        ROWS[0] | {"doc_id": None},
        ROWS[0] | {"doc_id": " "},
        ROWS[0] | {"doc_id": "d9", "text": None},
    ]
    pl.DataFrame(rows).write_parquet(path)
    corpus, diagnostics = diagnosed(load_passages, path)
    assert corpus.height == 3
    assert diagnostics.errors == (
        f"{path}: row 4: doc_id is missing",
        f"{path}: row 5: doc_id is missing",
        f"{path}: row 6: text is missing",
    )


def test_parquet_ids_may_be_numbers_but_text_may_not(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "corpus.parquet"
    good = pl.DataFrame({"doc_id": [4, 5], "page_id": [1, None], "title": [None, None], "text": ["a", "b"]})
    good.write_parquet(path)
    assert load_passages(path, Diagnostics()).rows() == [("4", "1", "", "a"), ("5", None, "", "b")]
    good.with_columns(text=pl.lit(0.5)).write_parquet(path)
    assert problem_of(path) == f"{path}: column 'text' holds Float64; it must hold strings"
