"""Datasets of the real library: saved to disk, and folders of Parquet or JSON Lines, through the loader of a job."""

import dataclasses
import pathlib
from typing import Any

import polars as pl
import pytest
from input_files import without_errors
from polars.testing import assert_frame_equal
from tiny import QUESTIONS, RunJob, Tiny

from erag_ray.data.datasets.queries import load_queries
from erag_ray.inputs.stage import prepare, prepared
from erag_ray.store.fingerprints import NOT_LOCAL, file_stamp

pytestmark = pytest.mark.extras
FIELDS = {"question": "q", "answers": "a.text", "id": "key"}
ROWS = [
    {"q": question, "a": {"text": [answer], "start": [0]}, "key": name, "meta": {"page": page or "none"}}
    for name, (question, answer, page) in QUESTIONS.items()
]


@pytest.fixture
def library(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The library, offline and with a cache of its own."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = pytest.importorskip("datasets")
    monkeypatch.setattr(found.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    found.disable_progress_bars()
    return found


def saved(library: Any, folder: pathlib.Path, kind: str) -> str:
    """Write the questions in one of the forms that the library reads, and return the name."""
    rows = library.Dataset.from_list(ROWS)
    if kind == "dataset":
        rows.save_to_disk(folder)
        return f"hf:{folder}"
    if kind == "splits":
        library.DatasetDict(train=rows.select([0]), dev=rows).save_to_disk(folder)
        return f"hf:{folder}:dev"
    folder.mkdir()
    (rows.to_parquet if kind == "parquet" else rows.to_json)(folder / f"validation.{kind}")
    return f"hf:{folder}:validation"


@pytest.mark.parametrize("kind", ["dataset", "splits", "parquet", "jsonl"])
def test_a_job_reads_a_folder_of_the_library_as_it_reads_a_file(library: Any, tiny: Tiny, kind: str) -> None:
    of_file = prepare(tiny.config).queries
    name = saved(library, tiny.folder / "questions", kind)
    config = dataclasses.replace(
        tiny.config, queries=[name], question_fields=FIELDS, slices=["meta.page"], out=f"{tiny.folder}/other"
    )
    inputs = prepare(config)
    assert_frame_equal(inputs.queries, of_file)
    assert inputs.slices["value"].to_list() == ["p1", "p2", "p3", "p4", "p5", "none"]
    # the same rows: nothing has changed for the next step
    assert_frame_equal(prepared(config).queries, of_file)
    assert file_stamp(name).startswith("6 rows, ")


def test_other_rows_are_found_by_the_stamp(library: Any, tmp_path: pathlib.Path) -> None:
    stamps = [
        file_stamp(saved(library, tmp_path / kind, kind))
        for kind in ("dataset", "splits", "parquet", "jsonl")
    ]
    assert len(set(stamps)) == 1
    library.Dataset.from_list(ROWS[::-1]).save_to_disk(tmp_path / "reversed")
    assert file_stamp(f"hf:{tmp_path}/reversed") not in (stamps[0], NOT_LOCAL)


def test_features_beyond_json_do_not_stop_a_job(library: Any, tmp_path: pathlib.Path) -> None:
    import datetime
    import decimal

    rows = pl.DataFrame({"question": ["who?"], "answers": [["Ann"]], "id": [1]}).with_columns(
        day=pl.lit(datetime.date(2026, 11, 25)),
        price=pl.lit(decimal.Decimal("1.50")),
        picture=pl.lit(b"\x89PNG"),
        score=pl.lit(float("nan")),
    )
    (tmp_path / "folder").mkdir()
    rows.write_parquet(tmp_path / "folder" / "train.parquet")
    found = without_errors(load_queries, f"hf:{tmp_path}/folder", slices=["day", "price", "picture", "score"])
    assert found.slices["value"].to_list() == ["2026-11-25", "1.50", str(b"\x89PNG"), "(none)"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hf:{folder}/none", "cannot be loaded: "),
        ("hf:{folder}/saved:test", "has no split test. Add one of: :train, :dev"),
        ("hf:{folder}/saved", "names no split. Add one of: :train, :dev"),
        ("hf:no-such-owner/no-such-name:test", "cannot be loaded: "),
        ("hf:{folder}/damaged", "cannot be loaded: "),
    ],
)
def test_what_cannot_be_loaded_ends_a_job_with_one_message(
    library: Any, tiny: Tiny, job: RunJob, name: str, message: str
) -> None:
    saved(library, tiny.folder / "saved", "splits")
    saved(library, tiny.folder / "damaged", "dataset")
    for file in (tiny.folder / "damaged").glob("*.arrow"):
        file.write_bytes(b"x")
    name = name.format(folder=tiny.folder)
    code, text = job("prepare", tiny.with_config(queries=[name]))
    assert code == 2
    assert f"{name}: {message}" in text
    assert "Traceback" not in text
