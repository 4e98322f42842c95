"""A job on a Ray of two nodes."""

import dataclasses
import pathlib
from typing import Any

import psutil
import pytest
import ray
import ray.cluster_utils
from crashes import write_larger

from erag_ray.config.job import JobConfig
from erag_ray.config.reader import ReaderConfig

MARKS = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings(
        r"ignore::ResourceWarning", r"ignore::pytest.PytestUnraisableExceptionWarning"
    ),
]

HEALTH = {
    "health_check_period_ms": 1000,
    "health_check_failure_threshold": 5,
    "health_check_timeout_ms": 1000,
}


def start_head(**options: Any) -> ray.cluster_utils.Cluster:
    """Without the dashboard, which is ten more processes."""
    ray.shutdown()
    head = {"include_dashboard": False, "_system_config": HEALTH, **options}
    return ray.cluster_utils.Cluster(initialize_head=True, head_node_args=head)


def connect(head: ray.cluster_utils.Cluster) -> None:
    ray.init(address=head.address, log_to_driver=False, logging_level="ERROR")


def is_reader(process: psutil.Process) -> bool:
    try:
        return "MapWorker(MapBatches(ModelActor))" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


def on_two_readers(
    folder: pathlib.Path, kind: str = "echoing:Slow", *, latency: float = 0.03, **changes: Any
) -> JobConfig:
    config = write_larger(folder)
    reader = ReaderConfig(kind=kind, options={"folder": str(folder)}, simulated_latency_seconds=latency)
    settings = {"num_readers": 2, "cpus_per_reader": 1, "progress": False, "rows_per_block": 20}
    return dataclasses.replace(config, reader=reader, **{**settings, **changes})


def num_nodes() -> int:
    return sum(node["Alive"] for node in ray.nodes())
