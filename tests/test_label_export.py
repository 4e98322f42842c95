"""jobs/export.py: labels of a finished job as a dataset with a card, and training data, on the tiny comparison."""

import dataclasses
import pathlib
import re
import shutil

import polars as pl
import pytest
import yaml
from conftest import finish
from heavy_packages import HEAVY, job_without
from scripts import python
from tiny import PASSAGES, QUESTIONS, Tiny, make_tables, write_tiny

from erag_ray.config.reader import ReaderConfig
from erag_ray.extras.label_export.card import PUBLIC
from erag_ray.extras.label_export.config import ExportConfig
from erag_ray.extras.label_export.rows import COLUMNS, SPLITS
from erag_ray.extras.label_export.stage import export
from erag_ray.store.schemas import LABELS, RUNS
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The tiny comparison, finished; its inputs are gone."""
    tiny = write_tiny(tmp_path_factory.mktemp("finished"))
    finish(tiny, make_tables)
    for path in (tiny.queries, tiny.passages):
        path.unlink()
    return tiny


def config(finished: Tiny, out: pathlib.Path, **changes: object) -> ExportConfig:
    return ExportConfig(job=finished.config.out, out=str(out), progress=False, **changes)  # type: ignore[arg-type]


def front_matter(out: pathlib.Path) -> dict[str, object]:
    text = (out / "README.md").read_text()
    return dict(yaml.safe_load(text.split("---\n")[1]))


def rows_of(out: pathlib.Path, folder: str) -> pl.DataFrame:
    """All rows that the card names, by split; each path must exist."""
    (entry,) = (entry for entry in front_matter(out)["configs"] if entry["config_name"] == folder)  # type: ignore[attr-defined]
    parts = [
        pl.read_parquet(out / path).select(pl.lit(files["split"]).alias("split"), pl.all())
        for files in entry["data_files"]
        for path in files["path"]
    ]
    return pl.concat(parts)


def test_every_label_leaves_and_no_question_is_in_two_splits(finished: Tiny, tmp_path: pathlib.Path) -> None:
    export(config(finished, tmp_path, validation_fraction=0.3, test_fraction=0.3))
    rows, sealed = rows_of(tmp_path, "labels"), TableStore(finished.config.out).read(LABELS)
    assert rows.columns == ["split", *COLUMNS]
    assert sorted(rows.select(sealed.columns).rows()) == sorted(sealed.rows())
    assert rows.select("query_id", "split").unique().height == len(QUESTIONS)
    both = rows.join(rows_of(tmp_path, "training"), left_on="question", right_on="anchor")
    assert (both["split"] == both["split_right"]).all()
    (own,) = both.filter(query_id="q1")["positive", "negative_1"].unique().rows()
    assert own == ("Ada Brunner she built the marn bridge", "Marn who built the marn bridge is told here")
    (one,) = rows.filter(annotator="erag", query_id="q1", doc_id="d2").rows(named=True)
    assert (one["output"], one["label"], one["answers"]) == ("Marn", 0.0, ["Ada Brunner"])
    # second in one run, and first in another
    assert (one["text"], one["best_rank"]) == (PASSAGES["d2"][2], 1)
    assert not rows.filter(annotator="provenance")["output"].count()


def test_the_card_has_the_numbers_of_the_files(finished: Tiny, tmp_path: pathlib.Path) -> None:
    export(config(finished, tmp_path, num_negatives=2, license="cc-by-sa-4.0"))
    text, rows = (tmp_path / "README.md").read_text(), rows_of(tmp_path, "labels")
    assert front_matter(tmp_path)["license"] == "cc-by-sa-4.0"
    assert front_matter(tmp_path)["size_categories"] == ["n<1K"]
    pairs = rows.select("query_id", "doc_id").unique()
    assert f"{rows.height} labels of {pairs.height} pairs" in text
    # 6 of 18 documents are useful, as above
    assert "| erag | 18 | 0 | 6 | 0.333 |" in text
    training = rows_of(tmp_path, "training")
    for split in SPLITS:
        labels = rows.filter(split=split)
        counts = (labels["query_id"].n_unique(), labels.height, training.filter(split=split).height)
        assert not labels.height or f"| {split} | {' | '.join(map(str, counts))} |" in text
    assert f"{training.height} rows of" in text
    assert "Left out: 0 questions without a useful document, 2 with fewer than 2 negatives" in text
    assert finished.config.out not in text


def test_a_second_export_replaces_the_first(finished: Tiny, tmp_path: pathlib.Path) -> None:
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "mine.txt").touch()
    export(config(finished, tmp_path, test_fraction=0.0, validation_fraction=0.9))
    export(config(finished, tmp_path, test_fraction=0.9, validation_fraction=0.0))
    named = {
        path
        for entry in front_matter(tmp_path)["configs"]
        for of in entry["data_files"]
        for path in of["path"]
    }  # type: ignore[attr-defined]
    files = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert files == {*named, "README.md", "labels/mine.txt"}
    assert not list(tmp_path.rglob("_unfinished"))


def test_folders_of_others_are_refused(finished: Tiny, tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match=r"out: .* is the folder of a job, whose table labels would be over"):
        export(config(finished, pathlib.Path(finished.config.out)))
    (tmp_path / "README.md").write_text("# My project")
    with pytest.raises(InputError, match=r"out: .*README\.md is not the card of an export"):
        export(config(finished, tmp_path))
    assert (tmp_path / "README.md").read_text() == "# My project"


def test_stale_and_missing_tables_are_refused_and_nothing_is_written(
    finished: Tiny, tmp_path: pathlib.Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished.config.out, copy)
    store, out = TableStore(str(copy)), tmp_path / "out"
    store.write(store.read(RUNS).head(3), RUNS)
    match = "labels were computed from an earlier version of runs; run erag-ray"
    with pytest.raises(InputError, match=match):
        export(ExportConfig(job=str(copy), out=str(out), progress=False))
    store.invalidate(LABELS)
    with pytest.raises(InputError, match=r"no sealed labels; run erag-ray compare"):
        export(ExportConfig(job=str(copy), out=str(out), progress=False))
    assert not out.exists()


def test_the_job_needs_neither_ray_nor_torch_nor_datasets(finished: Tiny, tmp_path: pathlib.Path) -> None:
    start = ["-c", job_without({*HEAVY, "datasets"}, "export"), "--out", tmp_path]
    done = python(*start, "--job", finished.config.out)
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"labels: \d+; training rows: 6; questions left out of the training data: 0", done.stderr
    )
    assert rows_of(tmp_path, "training").height == 6
    wrong = python(*start, "--job", finished.config.out, "--num_negatives", "9")
    assert wrong.returncode == 2
    assert "(at most 3). Set num_negatives to at most 3" in wrong.stderr
    assert "Traceback" not in wrong.stderr


@pytest.mark.extras
def test_the_library_datasets_reads_the_folder(
    finished: Tiny, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    export(config(finished, tmp_path / "out", validation_fraction=0.3, test_fraction=0.3))
    for name in ("labels", "training"):
        loaded = datasets.load_dataset(str(tmp_path / "out"), name, cache_dir=str(tmp_path / "cache"))
        rows = rows_of(tmp_path / "out", name)
        for split, part in loaded.items():
            assert part.to_list() == rows.filter(split=split).drop("split").to_dicts()
        assert sum(part.num_rows for part in loaded.values()) == rows.height
    files = str(tmp_path / "out" / "training" / "*.parquet")
    whole = datasets.load_dataset(
        "parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache")
    )
    assert whole.column_names == ["anchor", "positive", "negative_1"]
    assert whole.num_rows == 6


def test_the_card_names_settings_that_the_reader_has() -> None:
    assert {field.name for field in dataclasses.fields(ReaderConfig)} >= {*PUBLIC}
