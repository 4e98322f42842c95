"""A cluster of three nodes on this machine: what is lost, repeated and read again when parts of it end."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
import ray
import ray.cluster_utils
from crashes import NUM_REQUESTS, ROOT, interrupted
from failing import MARK
from quiet_ray import ENVIRONMENT
from ray._raylet import GcsClient
from ray.core.generated import autoscaler_pb2
from two_nodes import MARKS, QUICK, is_reader, on_two_readers

pytestmark = MARKS
Cluster = Any
Fault = Callable[[Cluster, list[Any]], None]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[tuple[Cluster, list[Any]]]:
    """A head that runs no readers, and two workers."""
    if ray.is_initialized():
        ray.shutdown()
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "helpers")])
    for name, setting in {**ENVIRONMENT, "PYTHONPATH": paths, MARK: str(tmp_path / "mark")}.items():
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
    return [process for process in psutil.Process().children(recursive=True) if is_reader(process)]


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
    counts = interrupted(on_two_readers(tmp_path), fault, lambda: FAULTS[fault](*cluster))
    assert (counts.lost, counts.repeated) == (0, 0)
    # what was being read or not yet written when a part ended, and not more
    assert counts.again <= NUM_REQUESTS // 3


READERS = {"a reader ends itself (os._exit)": "failing:Exits", "memory runs out in a batch": "failing:Small"}


@pytest.mark.parametrize("fault", READERS)
def test_every_request_is_read_once_by_a_reader_that_fails(
    cluster: tuple[Cluster, list[Any]], tmp_path: pathlib.Path, fault: str
) -> None:
    config = on_two_readers(tmp_path)
    failing = dataclasses.replace(config, reader=dataclasses.replace(config.reader, kind=READERS[fault]))
    counts = interrupted(failing, fault, lambda: None)
    assert (tmp_path / "mark").exists()
    assert (counts.lost, counts.repeated) == (0, 0)
    assert counts.again <= NUM_REQUESTS // 3


NUM_ENDS, INTERVAL, LATENCY = 8, 1.0, 0.2


def end_readers(number: int, mark: pathlib.Path) -> None:
    """Send a signal to readers that have answered something, one after the other.

    Three in a row that end while they load are the end of the job.
    """
    draw, ended = random.Random(number), set[int]()
    deadline = time.monotonic() + 120
    while len(ended) < NUM_ENDS:
        assert time.monotonic() < deadline, f"the job was done after {len(ended)} ends"
        time.sleep(draw.uniform(0.3, 1.0))
        have_answered = set(map(int, mark.read_text().split())) - ended
        for process in [one for one in reader_processes() if one.pid in have_answered][:1]:
            process.send_signal(number)
            ended.add(process.pid)


def drain_a_node(cluster: Cluster, workers: list[Any]) -> None:
    """As a provider's notice does: the node ends 15 s after Ray has been told."""
    address, node = cluster.gcs_address, workers[1].node_id
    reason = autoscaler_pb2.DrainNodeReason.DRAIN_NODE_REASON_PREEMPTION
    deadline = int((time.time() + 15) * 1000)
    accepted, why = GcsClient(address).drain_node(node, reason, "the machine is taken back", deadline)
    assert accepted, why
    time.sleep(15)
    assert not pids_on(workers[1])
    cluster.remove_node(workers[1])


def pids_on(worker: Any) -> list[int]:
    raylet = psutil.Process(worker.all_processes["raylet"][0].process.pid)
    return [process.pid for process in raylet.children(recursive=True) if is_reader(process)]


@pytest.mark.parametrize("notice", ["SIGTERM", "a drained node"])
def test_with_notice_nothing_is_read_twice(
    cluster: tuple[Cluster, list[Any]], tmp_path: pathlib.Path, notice: str
) -> None:
    config = on_two_readers(tmp_path)
    reader = dataclasses.replace(config.reader, kind="failing:Counts", simulated_latency_seconds=LATENCY)
    slow = dataclasses.replace(config, reader=reader, write_every_seconds=INTERVAL, rows_per_block=60)
    ends = {
        "SIGTERM": lambda: end_readers(signal.SIGTERM, tmp_path / "mark"),
        "a drained node": lambda: drain_a_node(*cluster),
    }
    counts = interrupted(slow, notice, ends[notice])
    assert (counts.lost, counts.repeated, counts.again) == (0, 0, 0)
    num_answers = len((tmp_path / "mark").read_text().splitlines())
    print(f"computed twice: {num_answers - NUM_REQUESTS}")
    assert num_answers == NUM_REQUESTS


def test_readers_start_on_nodes_that_join_and_none_is_missed_when_they_leave(
    cluster: tuple[Cluster, list[Any]], tmp_path: pathlib.Path
) -> None:
    made, workers = cluster
    config = dataclasses.replace(on_two_readers(tmp_path), max_readers=8, rows_per_block=10)
    slow = dataclasses.replace(
        config, reader=dataclasses.replace(config.reader, simulated_latency_seconds=1.0)
    )

    def come_and_go() -> None:
        """A node comes, gets a reader, and leaves when that has read."""
        add_a_node(made, workers)
        deadline = time.monotonic() + 100
        while not pids_on(workers[-1]):
            assert time.monotonic() < deadline, "no reader on the node that has joined"
            time.sleep(0.2)
        print(f"{len(reader_processes())} readers, two at the start")
        time.sleep(3.0)
        made.remove_node(workers.pop())

    counts = interrupted(slow, "nodes come and go", come_and_go)
    assert (counts.lost, counts.repeated) == (0, 0)
