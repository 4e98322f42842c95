"""Work on a Ray that believes in two GPUs, on a machine whose torch sees none; prints what came of it as JSON.

A program of its own, as the tests' own Ray has no GPUs. Run: python tests/fake_gpus.py FOLDER
"""

import json
import logging
import os
import pathlib
import sys
from typing import Any

import ray
from models import t5_folder
from quiet_ray import ENVIRONMENT
from tiny import compare, write_tiny

from erag_ray.config.reader import ReaderConfig
from erag_ray.config.retrieval import SearchConfig
from erag_ray.extras.train.workers import run_worker
from erag_ray.inference.cluster.tasks import task_pool
from erag_ray.inference.stage import run_stage
from erag_ray.store.sharded_tasks import Tasks
from erag_ray.support.errors import JobError


class Environment:
    """A worker that leaves what its process sees of GPUs."""

    def __init__(self, folder: str) -> None:
        self.folder = pathlib.Path(folder)

    def __call__(self, number: int) -> None:
        found = {"visible": os.environ.get("CUDA_VISIBLE_DEVICES"), "process": os.getpid()}
        (self.folder / f"{number}.json").write_text(json.dumps(found))


def visible(folder: pathlib.Path, **search: Any) -> list[Any]:
    """Do four tasks on actors; what each of them saw."""
    folder.mkdir()
    tasks = Tasks(worker=Environment, settings={"folder": str(folder)}, numbers=range(4), noun="tasks")
    with task_pool(SearchConfig(**search), show=False) as do:
        do(tasks)
    return [json.loads((folder / f"{number}.json").read_text()) for number in range(4)]


def error_of(work: Any) -> str:
    """What work is refused with; "" where it is not."""
    try:
        work()
    except JobError as error:
        return str(error)
    return ""


def main(folder: pathlib.Path) -> None:
    os.environ.update(ENVIRONMENT)
    ray.init(
        address="local",
        num_cpus=4,
        num_gpus=2,
        include_dashboard=False,
        object_store_memory=150_000_000,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    reader = ReaderConfig(kind="fid", model=t5_folder(folder / "t5"), max_new_tokens=4)
    tiny = write_tiny(folder).with_config(reader=reader)
    worker = ray.remote(num_gpus=1, num_cpus=1)(run_worker)
    found = {
        "job": error_of(lambda: run_stage(tiny.config, compare(tiny))),
        "training": repr(ray.get(worker.remote({}))),
        "tasks": error_of(lambda: visible(folder / "one", num_actors=5, gpus_per_actor=1)),
        "too_many": error_of(lambda: visible(folder / "three", num_actors=1, gpus_per_actor=3)),
        "without": visible(folder / "none", num_actors=2),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
