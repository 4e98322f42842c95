"""A head and a worker on addresses of their own, and a link between them that is cut: nothing is lost.

The worker has a network namespace, which a bridge joins to the head's; it takes root and the command ``ip``.
"""

import contextlib
import dataclasses
import itertools
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
import ray
from crashes import NUM_REQUESTS, end, environment, interrupted, wait_until
from two_nodes import MARKS, connect, is_reader, num_nodes, on_two_readers, start_head

pytestmark = MARKS
RAY = [sys.executable, "-m", "ray.scripts.scripts"]
NUMBERS = itertools.count()


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


@dataclasses.dataclass(frozen=True, kw_only=True)
class Link:
    """Two addresses and what joins them; names and addresses are this process's own."""

    head: str
    worker: str
    namespace: str
    port: str

    def cut(self) -> None:
        """Both sides keep their addresses and hear nothing of each other."""
        ip("link", "set", self.port, "down")

    def mend(self) -> None:
        ip("link", "set", self.port, "up")


@pytest.fixture
def link() -> Iterator[Link]:
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("a network of its own takes root and the command ip")
    # what ends of one test may outlive it for a moment
    own = os.getpid() + next(NUMBERS)
    network = f"10.{200 + own % 50}.{own // 50 % 250}"
    name = f"erag{own}"
    made = Link(head=f"{network}.1", worker=f"{network}.2", namespace=name, port=f"{name}v")
    bridge = f"{name}b"
    try:
        ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
    try:
        lay(made, bridge)
        yield made
    finally:
        found = ip("netns", "pids", name).split()
        # all of them this test's
        end([psutil.Process(int(number)) for number in found if psutil.pid_exists(int(number))])
        for words in (["link", "delete", made.port], ["link", "delete", bridge], ["netns", "delete", name]):
            with contextlib.suppress(subprocess.CalledProcessError):
                ip(*words)


def lay(link: Link, bridge: str) -> None:
    # the head's address is the bridge's, which stays up when the worker's port goes down
    ip("link", "add", bridge, "type", "bridge")
    ip("addr", "add", f"{link.head}/24", "dev", bridge)
    ip("link", "set", bridge, "up")
    ip("link", "add", link.port, "type", "veth", "peer", "name", "eth0", "netns", link.namespace)
    ip("link", "set", link.port, "master", bridge, "up")
    ip("-n", link.namespace, "addr", "add", f"{link.worker}/24", "dev", "eth0")
    for device in ("eth0", "lo"):
        ip("-n", link.namespace, "link", "set", device, "up")


@pytest.fixture
def worker(ray_environment: None, link: Link, tmp_path: pathlib.Path) -> Iterator[psutil.Process]:
    """A head, this process connected to it, and the worker behind the link."""
    # without the worker there must be room for both readers and for what reads their requests
    head = start_head(num_cpus=4, node_ip_address=link.head)
    log = tmp_path / "worker.log"
    process = start_worker(link, head.address, log)
    try:
        connect(head)
        wait_until(lambda: num_nodes() == 2, f"not two nodes: see {log}")
        yield psutil.Process(process.pid)
    finally:
        ray.shutdown()
        family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
        process.terminate()
        end(family)
        process.wait()
        head.shutdown()


def start_worker(link: Link, address: str, log: pathlib.Path) -> subprocess.Popen[bytes]:
    own = [f"--address={address}", f"--node-ip-address={link.worker}", "--num-cpus=2", "--block"]
    options = [*own, "--object-store-memory=100000000", "--disable-usage-stats"]
    command = ["ip", "netns", "exec", link.namespace, *RAY, "start", *options]
    with log.open("w") as out:
        return subprocess.Popen(command, env=environment(), stdout=out, stderr=subprocess.STDOUT)


def cut_and_mend(link: Link) -> None:
    """Back once the node has been given up: its reader may still be writing."""
    link.cut()
    wait_until(lambda: num_nodes() == 1, "the node is not given up")
    link.mend()


def cut_for_a_moment(link: Link) -> None:
    """Back before the node is given up."""
    link.cut()
    time.sleep(2)
    link.mend()


# those of one Ray leave it as it was
FAULTS: list[dict[str, Callable[[Link], None]]] = [
    {"nothing (a node behind a link)": lambda link: None, "the link is cut for 2 s": cut_for_a_moment},
    {"the link to a node is cut": Link.cut},
    {"the link is cut, and back when the node is given up": cut_and_mend},
]


@pytest.mark.parametrize("faults", FAULTS, ids=", ".join)
def test_every_request_is_read_once_whatever_the_link_does(
    link: Link, worker: psutil.Process, tmp_path: pathlib.Path, faults: dict[str, Callable[[Link], None]]
) -> None:
    def come() -> None:
        readers = [process for process in worker.children(recursive=True) if is_reader(process)]
        assert readers, "no reader behind the link"
        fault(link)

    for name, fault in faults.items():
        folder = tmp_path / name
        folder.mkdir()
        counts = interrupted(on_two_readers(folder), name, come)
        assert (counts.lost, counts.repeated) == (0, 0)
        assert counts.again <= NUM_REQUESTS // 3
        if fault is Link.cut:
            assert num_nodes() == 1
