"""Datasets by name (hf:...) and fields under other names, with a stand-in for the library datasets."""

from __future__ import annotations

import json
import pathlib
import re
import sys
import types
from collections.abc import Iterator

import polars as pl
import pyarrow as pa
import pytest
from input_files import diagnosed, without_errors

from erag_ray.config.job import JobConfig
from erag_ray.config.retrieval import RetrieveConfig, RetrieverConfig
from erag_ray.data.datasets.queries import load_queries
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.store.fingerprints import NOT_LOCAL, file_stamp
from erag_ray.store.huggingface import dataset_name

ROWS = [
    {"q": "who built it", "a": {"text": ["Ann", "Ann B."]}, "key": 7, "meta": {"hops": 1}},
    {"q": "who sold it", "a": {"text": ["Bob"]}, "key": 8, "meta": {"hops": 2}},
    {"q": "who paid", "a": {"text": ["Cid"]}, "key": 9, "meta": {"hops": 2}},
]
FIELDS = {"question": "q", "answers": "a.text", "id": "key"}


class Rows:
    """A data set of the library, as far as this package uses one."""

    def __init__(self, rows: list[dict[str, object]]) -> None:
        self.rows = rows

    def with_format(self, name: str) -> Rows:
        assert name == "arrow"
        return self

    def iter(self, size: int) -> Iterator[pa.Table]:
        for start in range(0, len(self.rows), 2):
            yield pa.Table.from_pylist(
                self.rows[start : start + 2], schema=pa.Table.from_pylist(self.rows).schema
            )


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str | None], object]:
    """Name and configuration -> data set, for a library that is not installed here."""
    content: dict[tuple[str, str | None], object] = {
        ("owner/facts", None): {"train": Rows(ROWS[:1]), "dev": Rows(ROWS)},
        ("owner/facts", "hard"): {"dev": Rows(ROWS[1:])},
    }

    def load_dataset(name: str, configuration: str | None) -> object:
        if (name, configuration) not in content:
            raise FileNotFoundError(f"Couldn't find {name}\nand a long story")
        return content[name, configuration]

    library = types.SimpleNamespace(
        load_dataset=load_dataset, load_from_disk=lambda path: content[path, None]
    )
    monkeypatch.setitem(sys.modules, "datasets", library)
    return content


def loaded(path: str, **options: object) -> tuple[pl.DataFrame, Diagnostics]:
    found, diagnostics = diagnosed(load_queries, path, **options)
    return found.queries, diagnostics


def test_fields_are_found_under_their_names_and_the_rest_stays_for_filters_and_slices(hub: object) -> None:
    options = {"fields": FIELDS, "filters": ["meta.hops=2"], "slices": ["meta.hops"]}
    found = without_errors(load_queries, "hf:owner/facts:dev", **options)
    assert found.queries.select("query_id", "dataset", "question", "answers").rows() == [
        ("8", "facts", "who sold it", ["Bob"]),
        ("9", "facts", "who paid", ["Cid"]),
    ]
    assert found.slices["value"].to_list() == ["2", "2"]


def test_a_configuration_and_rows_in_the_plain_format_need_no_mapping(hub: dict[object, object]) -> None:
    assert loaded("hf:owner/facts:hard:dev", fields=FIELDS)[0]["query_id"].to_list() == ["8", "9"]
    rows = [{"question": "who?", "answer": "Ann"}, {"question": "and?", "answer": "Bob"}]
    hub["squad", None] = {"train": Rows(rows)}  # type: ignore[index]
    table, diagnostics = loaded("hf:squad:train")
    assert not diagnostics.errors
    assert table.select("query_id", "answers").rows() == [("squad:1", ["Ann"]), ("squad:2", ["Bob"])]


QA = {"question": "q", "answers": "a"}


@pytest.mark.parametrize(
    ("row", "fields", "message"),
    [
        ({"q": "x", "a": None}, {"question": "query"}, r"question_fields\.question: no field query; .* q, a$"),
        ({"q": "x", "a": "Ann"}, {"question": "q", "answers": "a.text"}, "answers: no field a.text"),
        ({"q": 5, "a": "Ann"}, QA, "question is 5; it must be a string"),
        ({"q": "x", "a": 5}, QA, "answer 5 must be a string"),
        ({"q": "x", "a": [1]}, QA, "answer 1 must be a string"),
        ({"q": "x", "a": "Ann", "i": 1.5}, {**QA, "id": "i"}, "id is 1.5"),
        ({"q": "x", "a": None}, QA, "has no answer"),
    ],
)  # fmt: skip
def test_a_field_that_is_missing_or_of_another_type_is_an_error_with_its_row(
    hub: dict[object, object],
    monkeypatch: pytest.MonkeyPatch,
    row: dict[str, object],
    fields: dict[str, str],
    message: str,
) -> None:
    good = {"question": "who?", "answers": ["Ann"], "id": "g"}

    def rows(self: Rows, size: int) -> Iterator[pa.Table]:
        yield pa.Table.from_pylist(
            [{**good, **{fields.get(name, name): value for name, value in good.items()}}]
        )
        yield pa.Table.from_pylist([row])

    hub["x", None] = {"t": Rows([])}  # type: ignore[index]
    monkeypatch.setattr(Rows, "iter", rows)
    _, diagnostics = loaded("hf:x:t", fields=fields)
    assert any(re.search(f"^hf:x:t:2: .*{message}", one) for one in diagnostics.errors), diagnostics.errors


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("hf:owner/facts", "hf:owner/facts: not of the form hf:NAME:SPLIT, hf:NAME:CONFIG:SPLIT, hf:/folder"),
        ("hf:a:b:c:d", "not of the form"),
        ("hf:owner/facts:", "not of the form"),
        ("hf:owner/facts:test", "has no split test. Add one of: :train, :dev"),
        ("hf:owner/none:dev", "cannot be loaded: Couldn't find owner/none"),
        ("hf:/no/such/folder", "cannot be loaded: Couldn't find /no/such/folder"),
    ],
)
def test_a_dataset_that_cannot_be_loaded_is_one_error(hub: object, path: str, message: str) -> None:
    _, diagnostics = loaded(path)
    (error,) = diagnostics.errors
    assert message in error
    assert error.startswith(f"{path}: ")
    assert file_stamp(path) == NOT_LOCAL


def test_without_the_library_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    _, diagnostics = loaded("hf:owner/facts:dev")
    (error,) = diagnostics.errors
    assert "hf:owner/facts:dev: needs the library datasets: pip install 'erag-ray[huggingface]'" in error
    assert file_stamp("hf:owner/facts:dev") == NOT_LOCAL


def test_the_stamp_is_of_the_rows(hub: dict[object, object]) -> None:
    first = file_stamp("hf:owner/facts:dev")
    assert first.startswith("3 rows, ")
    assert first == file_stamp("hf:owner/facts:dev")
    assert first != file_stamp("hf:owner/facts:hard:dev")
    hub["owner/facts", None] = {"dev": Rows([ROWS[0], {**ROWS[1], "q": "who sold it?"}, ROWS[2]])}  # type: ignore[index]
    assert file_stamp("hf:owner/facts:dev") != first


def test_folders_may_stand_in_the_home_folder_and_names_of_variables_are_replaced(
    hub: dict[object, object], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    (folder / "state.json").touch()
    hub[str(folder), None] = Rows(ROWS)  # type: ignore[index]
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DATA", str(tmp_path))
    for path in ("hf:~/saved", f"hf:{folder}", JobConfig(queries=["hf:$DATA/saved"]).queries[0]):
        table, diagnostics = loaded(path, fields=FIELDS)
        assert not diagnostics.errors
        assert table["query_id"].to_list() == ["7", "8", "9"]
        assert table["dataset"].unique().to_list() == ["saved"]
    assert "has no splits. Leave :dev out" in loaded("hf:~/saved:dev")[1].errors[0]
    assert dataset_name("hf:~/saved/") == "saved"


def test_the_mapping_is_for_json_lines_too(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "q.jsonl"
    # lists of objects, and an answer of the plain format that is none
    lines = [{"q": "who?", "a": [{"text": "Ann"}, {"text": "Ann B."}], "answer": "B", "key": "k"}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    table, diagnostics = loaded(str(file), fields=FIELDS)
    assert not diagnostics.errors
    assert table.select("query_id", "question", "answers").rows() == [("k", "who?", ["Ann", "Ann B."])]


@pytest.mark.parametrize(
    ("fields", "query_format", "message"),
    [
        ({"text": "q"}, "auto", "question_fields: text is none of question, answers, answers_all, id"),
        ({"question": ""}, "auto", "question_fields.question: '' is no path"),
        ({"question": "a..b"}, "auto", "is no path"),
        ({"question": "q"}, "kilt", "only with query_format auto or plain, not kilt"),
    ],
)
def test_a_wrong_mapping_is_refused(fields: dict[str, str], query_format: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        JobConfig(question_fields=fields, query_format=query_format)
    with pytest.raises(ValueError, match=message):
        RetrieveConfig(
            question_fields=fields,
            query_format=query_format,
            retrievers={"bm25": RetrieverConfig(kind="bm25")},
        )
