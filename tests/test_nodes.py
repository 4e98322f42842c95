"""A cluster of three nodes on this machine: what is lost, repeated and read again when parts of it end."""

import contextlib
import pathlib
import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
import ray
from crashes import NUM_REQUESTS, interrupted, wait_until
from echoing import MARK
from ray._raylet import GcsClient
from ray.core.generated import autoscaler_pb2
from two_nodes import MARKS, connect, is_reader, num_nodes, on_two_readers, start_head

pytestmark = MARKS
Cluster = Any
Nodes = tuple[Cluster, list[Any]]
Fault = Callable[[Cluster, list[Any]], None]


@contextlib.contextmanager
def three_nodes() -> Iterator[Nodes]:
    """A head that runs no readers, and two workers."""
    made, workers = start_head(num_cpus=2), list[Any]()
    for _ in range(2):
        add_a_node(made, workers, wait=False)
    made.wait_for_nodes(timeout=120)
    yield made, workers
    made.shutdown()


@contextlib.contextmanager
def connected(nodes: Nodes) -> Iterator[Nodes]:
    """This process is their driver; at the end nothing of it is left there, nor any node that has joined."""
    made, workers = nodes
    ray.shutdown()
    connect(made)
    yield nodes
    while len(workers) > 2:
        made.remove_node(workers.pop())
    ray.shutdown()
    wait_until(lambda: not reader_processes(), "readers are left")


@pytest.fixture(scope="module")
def lasting(ray_environment: None) -> Iterator[Nodes]:
    with three_nodes() as nodes:
        yield nodes


@pytest.fixture
def shared(lasting: Nodes) -> Iterator[Nodes]:
    """The nodes of all tests that end none of them."""
    with connected(lasting):
        wait_until(lambda: num_nodes() == 3, "not three nodes")
        yield lasting


@pytest.fixture
def cluster(ray_environment: None) -> Iterator[Nodes]:
    """Nodes of this test's own."""
    with three_nodes() as nodes, connected(nodes):
        yield nodes


def reader_processes() -> list[psutil.Process]:
    """The processes of this test's reader actors."""
    return [process for process in psutil.Process().children(recursive=True) if is_reader(process)]


def raylet_of(worker: Any) -> psutil.Process:
    return psutil.Process(worker.all_processes["raylet"][0].process.pid)


def pids_on(worker: Any) -> list[int]:
    return [process.pid for process in raylet_of(worker).children(recursive=True) if is_reader(process)]


def with_a_reader(workers: list[Any]) -> Any:
    return next(worker for worker in workers if pids_on(worker))


def add_a_node(cluster: Cluster, workers: list[Any], *, wait: bool = True) -> None:
    workers.append(cluster.add_node(wait=wait, num_cpus=2, object_store_memory=100_000_000))


SLOW = "echoing:Slow"
FAULTS: dict[str, tuple[str, str, Fault]] = {
    # the nodes, the reader, and what befalls them; some readers fail by themselves
    "a reader is killed": ("shared", SLOW, lambda made, workers: reader_processes()[0].kill()),
    "a reader ends itself (os._exit)": ("shared", "echoing:Exits", lambda made, workers: None),
    "memory runs out in a batch": ("shared", "failing:Small", lambda made, workers: None),
    "a node is added": ("shared", SLOW, add_a_node),
    "a node is killed": ("cluster", SLOW, lambda made, workers: raylet_of(with_a_reader(workers)).kill()),
    "a node is removed": ("cluster", SLOW, lambda made, workers: made.remove_node(with_a_reader(workers))),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_request_is_read_once_whatever_ends(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, fault: str
) -> None:
    which, reader, come = FAULTS[fault]
    nodes: Nodes = request.getfixturevalue(which)
    counts = interrupted(on_two_readers(tmp_path, reader), fault, lambda: come(*nodes))
    assert (tmp_path / MARK).exists() or reader == SLOW
    assert (counts.lost, counts.repeated) == (0, 0)
    # what was being read or not yet written when a part ended, and not more
    assert counts.again <= NUM_REQUESTS // 3


NUM_ENDS = 8


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
    """As a provider's notice does: the node ends 15 s after Ray has been told, and its reader before it."""
    worker = with_a_reader(workers)
    reason = autoscaler_pb2.DrainNodeReason.DRAIN_NODE_REASON_PREEMPTION
    deadline = int((time.time() + 15) * 1000)
    notice = (worker.node_id, reason, "the machine is taken back", deadline)
    accepted, why = GcsClient(cluster.gcs_address).drain_node(*notice)
    assert accepted, why
    wait_until(lambda: not pids_on(worker), "a reader is left", 15)
    cluster.remove_node(worker)


@pytest.mark.parametrize(("notice", "which"), [("SIGTERM", "shared"), ("a drained node", "cluster")])
def test_with_notice_nothing_is_read_twice(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, notice: str, which: str
) -> None:
    nodes: Nodes = request.getfixturevalue(which)
    slow = on_two_readers(tmp_path, "echoing:Counts", write_every_seconds=1.0, rows_per_block=60, latency=0.2)
    ends = {
        "SIGTERM": lambda: end_readers(signal.SIGTERM, tmp_path / MARK),
        "a drained node": lambda: drain_a_node(*nodes),
    }
    counts = interrupted(slow, notice, ends[notice], after=NUM_REQUESTS // 10)
    assert (counts.lost, counts.repeated, counts.again) == (0, 0, 0)
    num_answers = len((tmp_path / MARK).read_text().splitlines())
    print(f"computed twice: {num_answers - NUM_REQUESTS}")
    assert num_answers == NUM_REQUESTS


def test_readers_start_on_nodes_that_join_and_none_is_missed_when_they_leave(
    shared: Nodes, tmp_path: pathlib.Path
) -> None:
    made, workers = shared

    def come_and_go() -> None:
        """A node comes, gets a reader, and leaves when that has read."""
        add_a_node(made, workers)
        wait_until(lambda: pids_on(workers[-1]), "no reader on the node that has joined")
        print(f"{len(reader_processes())} readers, two at the start")
        have_answered = lambda: {*map(int, (tmp_path / MARK).read_text().split())}  # noqa: E731
        wait_until(lambda: have_answered() & {*pids_on(workers[-1])}, "it has read nothing")
        made.remove_node(workers.pop())

    slow = on_two_readers(tmp_path, "echoing:Counts", max_readers=8, rows_per_block=10, latency=1.0)
    counts = interrupted(slow, "nodes come and go", come_and_go, after=5)
    assert (counts.lost, counts.repeated) == (0, 0)
