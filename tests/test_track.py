"""A finished job as a run of a tracker: what is logged, what is refused before anything is read, and what fails."""

import importlib
import json
import os
import pathlib
import re
import sys
import types

import polars as pl
import pytest
from conftest import finish
from guides import ROOT
from hypothesis import given
from hypothesis import strategies as st
from scripts import python
from tiny import RunJob, Tiny, job_command, write_tiny

from erag_ray.analyses.columns import PER_QUERY
from erag_ray.analyses.means import MEANS
from erag_ray.extras.track import TRACKERS, TrackedRun, check_tracker, safe_name, track
from erag_ray.store.schemas import COSTS
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The tiny comparison with its report; one run has a name that no tracker takes."""
    tiny = write_tiny(tmp_path_factory.mktemp("finished"))
    runs = {"good": str(tiny.run("good")), "bad@β": str(tiny.run("bad"))}
    tiny = tiny.with_config(runs=runs)
    return finish(tiny)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[TrackedRun]:
    """What a stand-in for MLflow gets; its files are read while they are there."""
    runs: list[TrackedRun] = []

    def log(run: TrackedRun) -> None:
        files = {str(file.relative_to(run.folder)) for file in run.folder.rglob("*") if file.is_file()}
        table = pl.read_parquet(run.folder / "per_query.parquet")
        runs.append(run)
        runs[-1].__dict__.update(files=files, table=table)

    monkeypatch.setitem(TRACKERS, "mlflow", log)
    return runs


def test_a_run_has_every_mean_with_its_interval_the_cost_and_the_page(
    finished: Tiny, logged: list[TrackedRun]
) -> None:
    config = finished.with_config(track="mlflow").config
    track(config)
    (run,) = logged
    store = TableStore(config.out)
    means = store.read(MEANS)
    assert run.name == "out"
    assert run.settings["reader.kind"] == "echo"
    # the name of a run, too, becomes one that a tracker takes
    assert [key for key in run.settings if key.startswith("runs.bad__-")]
    assert (run.settings["cutoffs"], run.settings["score"]) == ("[1, 3]", "null")
    # six questions, all right with one document
    assert run.metrics["tiny/good/end_to_end/depth_1/exact_match_1"] == 1.0
    (row,) = means.filter(
        annotator="erag", run_id="good", depth=3, measure="nDCG", cutoff=3, ideal="pool"
    ).rows(named=True)
    name = "tiny/good/erag/depth_3/nDCG_3_pool"
    assert [run.metrics[name + end] for end in ("", "/low", "/high")] == [
        row["mean"],
        row["low"],
        row["high"],
    ]
    values = sum(means[column].count() for column in ("mean", "low", "high"))
    costs = {name: value for name, value in run.metrics.items() if name.startswith("cost/")}
    assert len(run.metrics) == values + len(costs)
    sealed = TableStore(f"{config.out}/compare").read(COSTS)
    assert costs["cost/compare/num_requests"] == sealed["num_requests"].sum()
    assert "cost/compare/price" not in costs
    assert {"report/index.html", "report/questions/0000.js", "report.md", "per_query.parquet"} <= run.files  # type: ignore[attr-defined]
    assert run.table.equals(store.read(PER_QUERY))  # type: ignore[attr-defined]


WORDS = st.text(st.sampled_from("aB1_@/ .β-"), min_size=1, max_size=4)


@given(st.lists(st.tuples(WORDS, WORDS), min_size=2, max_size=20, unique=True))
def test_names_of_metrics_are_valid_and_distinct(words: list[tuple[str, str]]) -> None:
    names = [safe_name(*pair) for pair in words]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_./ -]{1,250}", name) for name in names)


def test_nothing_is_logged_without_the_key(finished: Tiny, logged: list[TrackedRun]) -> None:
    track(finished.config)
    assert not logged


@pytest.mark.parametrize("name", ["compare", "evaluate"])
def test_a_missing_library_is_one_message_before_anything_is_read(
    tiny: Tiny, job: RunJob, no_reader: None, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for package in TRACKERS:
        monkeypatch.setitem(sys.modules, package, None)
        # the questions are not there either, which is not looked at
        code, text = job(name, tiny.with_config(track=package, queries=["none.jsonl"]))
        assert code == 2
        assert f"track: {package} is not installed: pip install 'erag-ray[trackers]'" in text
        assert "none.jsonl" not in text


def test_a_folder_of_runs_is_not_the_library(
    tiny: Tiny, job: RunJob, no_reader: None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "wandb").mkdir(parents=True)
    elsewhere = [path for path in sys.path if not (pathlib.Path(path) / "wandb").exists()]
    monkeypatch.setattr(sys, "path", [str(tmp_path / "here"), *elsewhere])
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    importlib.invalidate_caches()
    code, text = job("compare", tiny.with_config(track="wandb"))
    assert code == 2
    assert "track: wandb is not installed" in text


def test_an_unknown_tracker_is_refused(tiny: Tiny) -> None:
    with pytest.raises(InputError, match=r"unknown tracker 'mlfow'; known: .* Did you mean 'mlflow'"):
        check_tracker(tiny.with_config(track="mlfow").config)


def test_a_tracker_that_fails_leaves_all_tables_and_says_so(
    finished: Tiny, job: RunJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(run: TrackedRun) -> None:
        print("words of a library")
        raise ConnectionError("no\nanswer")

    monkeypatch.setitem(TRACKERS, "mlflow", fail)
    library = types.ModuleType("mlflow")
    library.__spec__ = types.SimpleNamespace(origin="mlflow.py")  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "mlflow", library)
    code, text = job("evaluate", finished.with_config(track="mlflow"))
    assert code == 1
    assert "track: mlflow: ConnectionError: no answer; the job is finished and everything is in " in text
    assert "words of a library" in text  # on standard error
    assert TableStore(finished.config.out).is_sealed(MEANS)
    assert (pathlib.Path(finished.config.out) / "report" / "index.html").is_file()


# --- the real libraries, in processes of their own: they read their variables when they are imported ---

READ = {
    "mlflow": """
import json, mlflow
(run,) = mlflow.search_runs(experiment_names=["erag_ray"], output_format="list")
client = mlflow.MlflowClient()
files = {file.path for folder in ("", "report") for file in client.list_artifacts(run.info.run_id, folder)}
print(json.dumps([run.info.run_name, run.data.params, run.data.metrics, sorted(files)]))
""",
    "trackio": """
import json, os, pathlib, trackio
(run,) = trackio.Api().runs("erag_ray")
(row,) = trackio.SQLiteStorage.get_logs("erag_ray", run.name)

blobs = [blob for blob in pathlib.Path(os.environ["TRACKIO_DIR"]).rglob("*") if blob.is_file()]
page = [blob.name for blob in blobs if blob.read_bytes().startswith(b"<!doctype html>")]
print(json.dumps([run.name, run.config, row, page]))
""",
}


def run_python(folder: pathlib.Path, *words: str) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "TRACKIO_DIR": str(folder / "trackio"),
        "WANDB_DIR": str(folder / "wandb-runs"),
        "WANDB_MODE": "offline",
    }
    done = python(*words, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.splitlines()) < 60
    return done.stdout


def log_for_real(finished: Tiny, folder: pathlib.Path, name: str) -> str:
    command = job_command(finished.with_config(track=name).config, folder, "evaluate")
    return run_python(folder, str(ROOT / command[1]), *command[2:])


@pytest.mark.extras
@pytest.mark.parametrize("name", READ)
def test_the_real_library_has_what_was_logged(finished: Tiny, tmp_path: pathlib.Path, name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"needs {name}")
    printed = log_for_real(finished, tmp_path, name)
    assert printed.splitlines()[-1].startswith("Report: ")
    assert "rackio" not in printed
    run_name, settings, metrics, files = json.loads(run_python(tmp_path, "-c", READ[name]).splitlines()[-1])
    assert run_name == "out"
    assert settings["reader.kind"] == "echo"
    (row,) = (
        TableStore(finished.config.out)
        .read(MEANS)
        .filter(annotator="erag", run_id="good", depth=3, measure="nDCG", cutoff=3, ideal="pool")
        .rows(named=True)
    )
    for end, column in {"": "mean", "/low": "low", "/high": "high"}.items():
        assert metrics[f"tiny/good/erag/depth_3/nDCG_3_pool{end}"] == row[column]
    if name == "mlflow":
        assert {"per_query.parquet", "report.md", "report/index.html"} <= set(files)
    else:
        assert len(files) == 1


@pytest.mark.extras
def test_wandb_writes_a_run_offline(finished: Tiny, tmp_path: pathlib.Path) -> None:
    if importlib.util.find_spec("wandb") is None:
        pytest.skip("needs wandb")
    log_for_real(finished, tmp_path, "wandb")
    (file,) = (tmp_path / "wandb-runs").rglob("*.wandb")
    content = file.read_bytes()
    assert b"tiny/good/erag/depth_3/nDCG_3_pool" in content
    assert b"per_query.parquet" in content
