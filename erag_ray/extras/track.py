"""A finished job as a run of an experiment tracker: MLflow, Trackio or Weights & Biases (config key ``track``).

A run has the config, the means with their intervals, the cost, and the files page, report.md and per_query.parquet.
Where it goes, the libraries take from their own variables (MLFLOW_TRACKING_URI, TRACKIO_DIR, WANDB_MODE, ...). To add a
tracker, write a function and add it to `TRACKERS`.
"""

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import json
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl
import pyarrow.fs as pafs
import xxhash

from erag_ray.analyses.columns import PER_QUERY
from erag_ray.analyses.costs import sum_costs
from erag_ray.analyses.means import MEANS
from erag_ray.config.job import JobConfig
from erag_ray.extensions import Extension
from erag_ray.store.stages.stage import read_costs
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError, JobError
from erag_ray.support.logs import say
from erag_ray.support.progress import stage_progress
from erag_ray.support.registry import suggestion
from erag_ray.support.user_code import one_line

PROJECT = "erag_ray"
"""The experiment or project, unless the tracker's own variable names another."""
MAX_NAME = 200
MAX_VALUE = 5000
INSTALL = "pip install 'erag-ray[trackers]'"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """All that a tracker gets."""

    name: str
    """Last part of the job's ``out``."""
    settings: Mapping[str, str | float | bool]
    """The config, a value for each key with dots; lists as JSON."""
    metrics: Mapping[str, float]
    """Means, bounds of their intervals, and costs."""
    folder: pathlib.Path
    """A local folder with the report and per_query.parquet."""


def check_tracker(config: JobConfig) -> None:
    """Raise InputError unless the job's tracker is known, and its library installed."""
    if config.track is None:
        return
    if config.track not in TRACKERS:
        text = f"track: unknown tracker {config.track!r}; known: {', '.join(TRACKERS)}"
        raise InputError([text + suggestion(config.track, TRACKERS)])
    spec = importlib.util.find_spec(config.track)
    # wandb and trackio may be names of folders with runs, which Python takes for packages without code
    if spec is None or spec.origin is None:
        raise InputError(
            [f"track: {config.track} is not installed: {INSTALL}, or pip install {config.track}"]
        )


def track(config: JobConfig) -> None:
    """Log a finished job to its tracker, if any; raise JobError if that fails: all tables and the report stay."""
    if config.track is None:
        return
    with (
        stage_progress(f"logging to {config.track}", show=config.progress),
        tempfile.TemporaryDirectory() as folder,
    ):
        run = _tracked(config, pathlib.Path(folder))
        try:
            # standard output is for the job's own tables
            with contextlib.redirect_stdout(sys.stderr):
                TRACKERS[config.track](run)
        except Exception as error:
            reason = one_line(f"{type(error).__name__}: {error}")
            advice = f"the job is finished and everything is in {config.out}; start the same command again to log it"
            raise JobError(f"track: {config.track}: {reason}; {advice}") from error
    say(f"logged to {config.track}: run {run.name}, {len(run.metrics):,} metrics")


def _tracked(config: JobConfig, folder: pathlib.Path) -> TrackedRun:
    store = TableStore(config.out)
    for name in ("report", "report.md"):
        if store.folder.exists(name):
            pafs.copy_files(
                store.folder.at(name),
                str(folder / name),
                source_filesystem=store.folder.filesystem,
                destination_filesystem=pafs.LocalFileSystem(),
            )
    store.read(PER_QUERY).write_parquet(folder / "per_query.parquet")
    return TrackedRun(
        name=os.path.basename(config.out.rstrip("/")) or PROJECT,
        settings={safe_name(key): value for key, value in _flat(dataclasses.asdict(config))},
        metrics={**_means(store.read(MEANS)), **_costs(config.out)},
        folder=folder,
    )


def _flat(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str | float | bool]]:
    """Yield the keys of a config with dots, and their values; texts are cut to what MLflow takes."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{path}{name}.")
            continue
        plain = json.dumps(value, default=str) if isinstance(value, list | tuple) or value is None else value
        is_long = isinstance(plain, str) and len(plain) > MAX_VALUE
        yield f"{path}{name}", f"{plain[: MAX_VALUE - 3]}..." if is_long else plain


def _means(means: pl.DataFrame) -> dict[str, float]:
    """Return name -> value of each mean, and of the bounds of its interval under ``NAME/low`` and ``NAME/high``.

    Names are DATASET/RUN/ANNOTATOR/depth_DEPTH/MEASURE_CUTOFF, with _pool for the measures whose ideal is the pool.
    """
    metrics: dict[str, float] = {}
    for row in means.iter_rows(named=True):
        ideal = "_pool" if row["ideal"] == "pool" else ""
        measure = f"{row['measure']}_{row['cutoff']}{ideal}"
        name = safe_name(row["dataset"], row["run_id"], row["annotator"], f"depth_{row['depth']}", measure)
        values = {"": row["mean"], "/low": row["low"], "/high": row["high"]}
        metrics.update({f"{name}{end}": value for end, value in values.items() if value is not None})
    return metrics


def safe_name(*words: str) -> str:
    """Join words by slashes to a name that every tracker accepts: letters, digits, ``_.- ``.

    Names of which something had to be replaced or cut end in a hash, so that no two words share a name.
    """
    name = "/".join(word.replace("/", "_") for word in words)
    safe = re.sub(r"[^\w./ -]", "_", name, flags=re.ASCII)[:MAX_NAME]
    is_same = safe == "/".join(words)
    return safe if is_same else f"{safe}-{xxhash.xxh3_64_hexdigest(repr(words).encode())[:8]}"


def _costs(out: str) -> dict[str, float]:
    """Return cost/STAGE/COLUMN -> the sum over the attempts and models of a stage, of memory the most."""
    return {
        f"cost/{row['stage']}/{name}": float(value)
        for row in sum_costs(read_costs(out), "stage").drop("priced").iter_rows(named=True)
        for name, value in row.items()
        if name != "stage" and value is not None
    }


def _to_mlflow(run: TrackedRun) -> None:
    mlflow: Any = importlib.import_module("mlflow")
    if not os.environ.keys() & {"MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"}:
        mlflow.set_experiment(PROJECT)
    with mlflow.start_run(run_name=run.name):
        mlflow.log_params(dict(run.settings))
        mlflow.log_metrics(dict(run.metrics))
        mlflow.log_artifacts(str(run.folder))


def _to_wandb(run: TrackedRun, name: str = "wandb", **options: Any) -> None:
    """Log to Weights & Biases, or to a library with its interface."""
    library: Any = importlib.import_module(name)
    project = os.environ.get(f"{name.upper()}_PROJECT", PROJECT)
    library.init(project=project, name=run.name, config=dict(run.settings), **options)
    try:
        library.log(dict(run.metrics))
        artifact = library.Artifact(re.sub(r"[^\w.-]", "_", run.name, flags=re.ASCII)[:MAX_NAME], "report")
        artifact.add_dir(str(run.folder))
        library.log_artifact(artifact)
    finally:
        library.finish()


TRACKERS: dict[str, Callable[[TrackedRun], None]] = {
    "mlflow": _to_mlflow,
    "trackio": functools.partial(_to_wandb, name="trackio", auto_log_cpu=False, auto_log_gpu=False),
    "wandb": _to_wandb,
}

EXTENSION = Extension(name="track", check=check_tracker, finish=track)
