"""A cluster of three nodes on this machine: what is lost, repeated and read again when parts of it end.

Run: pytest -m cluster tests/test_nodes.py
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
import ray
import ray.cluster_utils
from crashes import NUM_REQUESTS, stored, write_larger
from quiet_ray import ENVIRONMENT

from erag_ray.config import JobConfig
from erag_ray.steps.inputs import prepare
from erag_ray.steps.planning import plan_stage
from erag_ray.steps.reading import run_stage

# Ray warns of its own inner workings
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings(
        r"ignore::DeprecationWarning:ray\..*",
        r"ignore::FutureWarning:ray\..*",
        r"ignore::ResourceWarning",
        r"ignore::pytest.PytestUnraisableExceptionWarning",
    ),
]
ROOT = pathlib.Path(__file__).parents[1]
QUICK = {"health_check_period_ms": 1000, "health_check_failure_threshold": 5, "health_check_timeout_ms": 1000}
Cluster = Any
Fault = Callable[[Cluster, list[Any]], None]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, list[Any]]]:
    """A head that runs no readers, and two workers."""
    if ray.is_initialized():
        ray.shutdown()
    for name, setting in {**ENVIRONMENT, "PYTHONPATH": str(ROOT)}.items():
        monkeypatch.setenv(name, setting)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    made = ray.cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "_system_config": QUICK}
    )
    workers = [made.add_node(num_cpus=2, object_store_memory=100_000_000) for _ in range(2)]
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made, workers
    ray.shutdown()
    made.shutdown()


def reader_processes() -> list[psutil.Process]:
    """The processes of this test's reader actors."""
    own = psutil.Process().children(recursive=True)
    return [process for process in own if "MapWorker(MapBatches(ReaderActor))" in " ".join(process.cmdline())]


def kill_a_reader(cluster: Cluster, workers: list[Any]) -> None:
    reader_processes()[0].send_signal(signal.SIGKILL)


def kill_a_node(cluster: Cluster, workers: list[Any]) -> None:
    os.kill(workers[1].all_processes["raylet"][0].process.pid, signal.SIGKILL)


def remove_a_node(cluster: Cluster, workers: list[Any]) -> None:
    cluster.remove_node(workers[1])


def add_a_node(cluster: Cluster, workers: list[Any]) -> None:
    workers.append(cluster.add_node(num_cpus=2, object_store_memory=100_000_000))


def nothing(cluster: Cluster, workers: list[Any]) -> None:
    return


FAULTS: dict[str, Fault] = {
    "nothing": nothing,
    "a reader is killed": kill_a_reader,
    "a node is killed": kill_a_node,
    "a node is removed": remove_a_node,
    "a node is added": add_a_node,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_request_is_read_once_whatever_ends(
    cluster: tuple[Cluster, list[Any]], tmp_path: pathlib.Path, fault: str
) -> None:
    config = dataclasses.replace(
        write_larger(tmp_path), num_readers=2, cpus_per_reader=1, progress=False, rows_per_block=20
    )
    inputs = prepare(config)
    plan = plan_stage(config, inputs, "compare", alone=True, together=True)
    start, found = time.monotonic(), []
    # nodes can be started in the main thread alone, so the reading has another
    reading = threading.Thread(target=lambda: found.append(run_stage(config, plan)))
    reading.start()
    wait_for_a_third(config)
    FAULTS[fault](*cluster)
    reading.join()
    (done,) = found
    rows = stored(config)
    keys = rows.select("question_key", "passages_key")
    lost = plan.asks.select("question_key", "passages_key").unique().join(keys, on=keys.columns, how="anti")
    used = done.readings.select(keys.columns)
    seconds = time.monotonic() - start
    again = rows.height - keys.n_unique()
    print(
        f"| {fault} | {lost.height} | {used.height - used.n_unique()} | {again} | {seconds:.0f} |", flush=True
    )
    assert (lost.height, used.height - used.n_unique()) == (0, 0)
    assert keys.n_unique() == used.height == NUM_REQUESTS
    assert done.readings["error"].count() == 0
    # what was being read or not yet written when a part ended, and not more
    assert again <= NUM_REQUESTS // 3


def wait_for_a_third(config: JobConfig) -> None:
    deadline = time.monotonic() + 120
    while len(stored(config)) < NUM_REQUESTS // 3:
        assert time.monotonic() < deadline, "the job wrote nothing"
        time.sleep(0.05)
