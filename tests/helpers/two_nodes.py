"""A job on a Ray of two nodes."""

from __future__ import annotations

import dataclasses
import pathlib

import psutil
import pytest
from crashes import write_larger

from erag_ray.config.job import JobConfig

MARKS = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings(
        r"ignore::ResourceWarning", r"ignore::pytest.PytestUnraisableExceptionWarning"
    ),
]


QUICK = {"health_check_period_ms": 1000, "health_check_failure_threshold": 5, "health_check_timeout_ms": 1000}


def is_reader(process: psutil.Process) -> bool:
    try:
        return "MapWorker(MapBatches(ModelActor))" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


def on_two_readers(folder: pathlib.Path) -> JobConfig:
    config = write_larger(folder)
    return dataclasses.replace(config, num_readers=2, cpus_per_reader=1, progress=False, rows_per_block=20)
