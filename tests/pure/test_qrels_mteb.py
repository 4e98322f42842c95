"""Qrels in MTEB's forms give what BEIR's text gives; what is wrong in them is named with its row."""

import gzip
import json
import pathlib

import polars as pl
import pytest

from erag_ray.data.datasets.qrels import ADVICE, NAMES, read_qrels
from erag_ray.data.files.diagnostics import Diagnostics

ROWS = [("q1", "d1", 1), ("q1", "d2", 2), ("q1", "d3", 0), ("2", "7", 1), ("q3", "d1", 0), ("q1", "d1", 1)]
EXPECTED = {"q1": ("d2", "d1"), "2": ("7",), "q3": ()}


def read(file: pathlib.Path) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    diagnostics = Diagnostics()
    return read_qrels([str(file)], diagnostics), diagnostics.errors


def lines(rows: list[tuple[object, ...]]) -> str:
    return "".join(json.dumps(dict(zip(NAMES, row, strict=True))) + "\n" for row in rows)


@pytest.mark.parametrize("score", [int, float])
@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz", "parquet", "tsv"])
def test_all_forms_give_the_same(tmp_path: pathlib.Path, form: str, score: type) -> None:
    file = tmp_path / f"test.{form}"
    rows = [(query, document, score(grade)) for query, document, grade in ROWS]
    if form == "parquet":
        pl.DataFrame(rows, schema=NAMES, orient="row").write_parquet(file)
    elif form == "tsv":
        file.write_text("\t".join(NAMES) + "\n" + "".join(f"{q}\t{d}\t{int(s)}\n" for q, d, s in rows))
    else:
        data = lines(rows).encode()
        file.write_bytes(gzip.compress(data) if form.endswith("gz") else data)
    assert read(file) == (EXPECTED, ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"query-id": "q1", "corpus-id": "d1"}', "no score; it has query-id, corpus-id. Name the columns"),
        ('{"qid": "q1", "score": 1}', "no corpus-id; it has qid, score. Name the columns"),
        ('{"query-id": "q1", "corpus-id": null, "score": 1}', "corpus-id is None; it must be an id"),
        ('{"query-id": " ", "corpus-id": "d", "score": 1}', "query-id is ' '; it must be an id"),
        ('{"query-id": "q1", "corpus-id": "d1", "score": 0.5}', "score '0.5' is not a whole number"),
        ('{"query-id": "q1", "corpus-id": "d1", "score": NaN}', "score 'nan' is not a whole number"),
        ('{"query-id": "q1", "corpus-id": "d1", "score": true}', "score 'True' is not a whole number"),
        ('{"query-id": "q1", "corpus-id": "d1", "score": null}', "score 'None' is not a whole number"),
        ('{"query-id": "q9", "corpus-id": "d9", "score": 2}', "score 2 here, and 1 in an earlier line"),
        ("[1]", "a list where an object is expected"),
        ("{", "not JSON"),
    ],
)
def test_a_bad_row_is_named_and_the_others_are_read(tmp_path: pathlib.Path, text: str, message: str) -> None:
    file = tmp_path / "qrels.jsonl"
    file.write_text(lines([("q9", "d9", 1)]) + text + "\n" + lines([("q2", "d2", 1)]))
    found, (error,) = read(file)
    assert found == {"q9": ("d9",), "q2": ("d2",)}
    assert error.startswith(f"{file}:2: ")
    assert message in error


def test_bad_parquet_is_one_error(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "qrels.parquet"
    pl.DataFrame({"query-id": ["q"], "corpus-id": ["d"]}).write_parquet(file)
    assert read(file) == ({}, (f"{file}:1: no score; it has query-id, corpus-id. {ADVICE}",))
    file.write_bytes(b"no parquet")
    found, (error,) = read(file)
    assert found == {}
    assert "cannot be read" in error
    pl.DataFrame({"query-id": ["q", None], "corpus-id": ["d", "e"], "score": [1, 1]}).write_parquet(file)
    assert read(file) == ({"q": ("d",)}, (f"{file}:2: query-id is None; it must be an id",))
