"""Whether a comparison is finished: the same job has made all that its folder has."""

from __future__ import annotations

import dataclasses

from erag_ray.config.job import JobConfig
from erag_ray.inputs.stage import input_files
from erag_ray.models import MODELS
from erag_ray.store.fingerprints import file_stamp
from erag_ray.store.folder import Folder
from erag_ray.store.stages.stage import Stage
from erag_ray.support.ownership import MARKER

FINISHED = "finished.json"
OF_CONSOLE = ("progress", "verbose")
"""Keys that change no file."""


def mark_finished(config: JobConfig) -> None:
    """Note in ``out`` what the tables and the report there were made from."""
    if made_from := _made_from(config):
        Folder(config.out).write_bytes(made_from.encode(), FINISHED)


def is_finished(config: JobConfig) -> bool:
    """Return whether ``out`` is as `mark_finished` saw it, and config, input files, models and code are the same."""
    folder = Folder(config.out)
    return folder.exists(FINISHED) and folder.read_bytes(FINISHED).decode(errors="replace") == _made_from(
        config
    )


def _made_from(config: JobConfig) -> str | None:
    """Return the fingerprint of a job and of what it has made; None where not all that it depends on is known."""
    # not known are changes of runs that the job makes itself, of a hub's models, and of code outside the package
    models = [model for model in (config.reader, config.judge, config.auxiliary_reader) if model is not None]
    if config.retrievers or any(model.kind not in MODELS for model in models):
        return None
    local = [model.model for model in models if model.model and model.kind != "served"]
    out = config.out.rstrip("/")
    entries = Folder(out).entries()
    results = [name for name in entries if name not in (FINISHED, MARKER) and not name.startswith("_")]
    code = [*config.annotators, *(config.measures or ()), *config.statistics, config.score or ""]
    return Stage(
        name="comparison",
        tables=[],
        settings={key: value for key, value in dataclasses.asdict(config).items() if key not in OF_CONSOLE},
        inputs={**input_files(config), **{path: file_stamp(path) for path in local}},
        sources={name: file_stamp(f"{out}/{name}") for name in results},
        names=[config.query_format, *code],
        make=lambda append: {},
    ).fingerprint
