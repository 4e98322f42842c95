"""CPUs and GPUs of the nodes of a cluster."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

import ray

from erag_ray.support.errors import JobError

logger = logging.getLogger(__name__)
ROUNDING = 1e-9
"""Of shares of a GPU: ten tenths are one."""
LOOK_SECONDS = 5.0
"""Interval of looks at a cluster that is waited for."""
ADDRESS, HEAD = "node:", "node:__internal_head__"
"""Ray's resource for the address of a node, and one of the head."""
NUM_NAMED = 8


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

    Args:
        nodes: the resources of each.
        each: GPUs of an actor.
        key: of the config, which asks for them.
        advice: what to do if no node has as many.

    Raises:
        JobError: no node has as many.
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
            raise JobError(
                f"wait_for_gpus: {count}, but the cluster has {num_gpus} {waited}; start the job again"
            )
        if num_gpus != last_count:
            logger.info("waiting for GPUs: %d of %d are here", num_gpus, count)
        last_count = num_gpus
        time.sleep(LOOK_SECONDS)
