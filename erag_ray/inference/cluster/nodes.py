"""CPUs and GPUs of the nodes of a cluster, and actors that wait for them."""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import ray
import ray._private.state

from erag_ray.support.errors import JobError
from erag_ray.support.user_code import RESUME_ADVICE

logger = logging.getLogger(__name__)
ROUNDING = 1e-9
"""Of shares of a GPU: ten tenths are one."""
LOOK_SECONDS, LINE_SECONDS = 5.0, 60.0
"""Interval of looks at the cluster, and the wait of an actor after which it is named."""
ADDRESS, HEAD = "node:", "node:__internal_head__"
"""Ray's resource for the address of a node, and one of the head."""
NUM_NAMED = 8
WAITING = ("DEPENDENCIES_UNREADY", "PENDING_CREATION", "RESTARTING")
"""States of an actor before it has a process, and while that constructs it."""


def nodes_alive() -> list[Mapping[str, float]]:
    """Return the resources of each node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def num_gpus_of(nodes: Sequence[Mapping[str, float]]) -> int:
    return int(sum(node.get("GPU", 0) for node in nodes))


def gpu_room(num_gpus: float, each: float) -> int:
    """Return how many actors that need ``each`` GPUs fit on so many; 0 where they need none."""
    return int(num_gpus / each + ROUNDING) if each else 0


def gpu_rooms(nodes: Sequence[Mapping[str, float]], each: float, key: str, advice: str) -> list[int]:
    """Return how many actors that need ``each`` GPUs fit on each node; 0 where they need none.

    Raises:
        JobError: no node has as many; the message starts with ``key`` and ends with ``advice``.
    """
    rooms = [gpu_room(node.get("GPU", 0), each) for node in nodes]
    if each and not any(rooms):
        has = described(nodes)
        raise JobError(f"{key}: {each:g}, but no node of the cluster has as many GPUs ({has}). {advice}")
    return rooms


def described(nodes: Sequence[Mapping[str, float]]) -> str:
    """Return the CPUs and GPUs of each node, such as "10.0.0.1: CPU 4, GPU 1"."""
    texts = []
    for node in nodes[:NUM_NAMED]:
        address = next((name for name in node if name.startswith(ADDRESS) and name != HEAD), "a node")
        amounts = ", ".join(f"{kind} {node.get(kind, 0):g}" for kind in ("CPU", "GPU"))
        texts.append(f"{address.removeprefix(ADDRESS)}: {amounts}")
    return "; ".join([*texts, *[f"{len(nodes) - NUM_NAMED} more"] * (len(nodes) > NUM_NAMED)])


def wait_for_gpus(count: int | None, timeout: float | None) -> None:
    """Until the cluster has so many GPUs: its machines may still be starting, and a smaller pool would stay small.

    Raises:
        JobError: they did not come within ``timeout`` seconds.
    """
    start, last_count = time.monotonic(), -1
    while (num_gpus := num_gpus_of(nodes := nodes_alive())) < (count or 0):
        if timeout is not None and time.monotonic() > start + timeout:
            waited = f"after {timeout:.0f} s (placement_timeout): {described(nodes)}"
            text = f"the cluster has {num_gpus} {waited}; start the job again"
            raise JobError(f"wait_for_gpus: {count}, but {text}")
        if num_gpus != last_count:
            logger.info("waiting for GPUs: %d of %d are here", num_gpus, count)
        last_count = num_gpus
        time.sleep(LOOK_SECONDS)


class PlacementCheck:
    """Names actors that wait for resources, and ends the job if all of them do for ``timeout`` seconds.

    Ray Data calls it at each step of its loop, also while all actors wait: it is an ExecutionCallback. Messages call
    actors of this class by the noun, and say in words what each needs and which keys of the config to lower.
    """

    def __init__(self, actor: str, noun: str, needs: str, keys: str, timeout: float | None) -> None:
        self._actor, self._noun, self._needs, self._keys, self._timeout = actor, noun, needs, keys, timeout
        self._any_at = self._all_at = self._look_at = time.monotonic()
        self._is_named = False

    def before_execution_starts(self, executor: Any, *error: object) -> None:
        return

    after_execution_succeeds = after_execution_fails = before_execution_starts

    def on_execution_step(self, executor: Any) -> None:
        self.look()

    def look(self) -> None:
        """Count the actors that wait, at most every `LOOK_SECONDS`; raise JobError if all have for too long."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        num_waiting, num_placed = self._counts()
        if num_placed or not num_waiting:
            self._any_at = now
        if not num_waiting:
            self._all_at, self._is_named = now, False
        if now - self._all_at > LINE_SECONDS and not self._is_named:
            self._is_named = True
            text = f"{num_waiting} of {num_waiting + num_placed} {self._noun}s wait for resources"
            logger.warning("%s: %s", text, self._advice())
        if self._timeout is not None and now - self._any_at > self._timeout:
            text = f"placement_timeout: no {self._noun} has had its resources for {now - self._any_at:.0f} s"
            raise JobError(f"{text}: {self._advice()}; {RESUME_ADVICE}")

    def _counts(self) -> tuple[int, int]:
        """Return the number of actors that wait for resources, and of those that have a process."""
        job = ray.JobID.from_hex(ray.get_runtime_context().get_job_id())
        actors = ray._private.state.actors(job_id=job).values()
        ours = [actor for actor in actors if self._actor in actor["ActorClassName"]]
        alive = [actor for actor in ours if actor["State"] != "DEAD"]
        waiting = [actor for actor in alive if actor["State"] in WAITING and not actor["Address"]["Port"]]
        return len(waiting), len(alive) - len(waiting)

    def _advice(self) -> str:
        free = ray._private.state.available_resources_per_node()
        return (
            f"each needs {self._needs}. The nodes have {described(nodes_alive())}; of these are free "
            f"{described(list(free.values()))}. Stop what else runs there, add nodes, or lower {self._keys}; "
            "placement_timeout says how long a job waits"
        )
