"""Readers that wait for resources of the cluster are named, and do not wait for ever."""

from __future__ import annotations

import logging
import time
from typing import Any

import ray
import ray._private.state
from ray.data._internal.execution.execution_callback import ExecutionCallback

from erag_ray.inference.cluster.nodes import LOOK_SECONDS, described, nodes_alive
from erag_ray.support.errors import JobError
from erag_ray.support.user_code import RESUME_ADVICE

logger = logging.getLogger(__name__)
LINE_SECONDS = 60.0
"""The wait of a reader after which it is named."""
WAITING = ("DEPENDENCIES_UNREADY", "PENDING_CREATION", "RESTARTING")
"""States of an actor before it has a process, and while that constructs it."""


class PlacementCheck(ExecutionCallback):
    """Names readers that wait for resources, and ends the job if there is none for ``timeout`` seconds.

    Ray Data calls it at each step of its loop, while actors wait too.

    Args:
        actor: name of their class.
        needs: what each of them needs, in words.
        timeout: seconds; None to wait for ever.
    """

    def __init__(self, actor: str, needs: str, timeout: float | None) -> None:
        self._actor, self._needs, self._timeout = actor, needs, timeout
        self._any_at = self._all_at = self._look_at = time.monotonic()
        self._is_named = False

    def on_execution_step(self, executor: Any) -> None:
        """Look at the actors, at most every `LOOK_SECONDS`.

        Raises:
            JobError: no actor has had a process for ``timeout`` seconds.
        """
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        num_waiting, num_placed = self._counts()
        if num_placed or not num_waiting:
            self._any_at = now
        if not num_waiting:
            self._all_at, self._is_named = now, False
        if self._timeout is not None and now - self._any_at > self._timeout:
            text = f"placement_timeout: all readers wait for resources since {now - self._any_at:.0f} s"
            raise JobError(f"{text}: {self._advice()}; {RESUME_ADVICE}")
        if now - self._all_at > LINE_SECONDS and not self._is_named:
            self._is_named = True
            text = f"{num_waiting} of {num_waiting + num_placed} readers wait for resources"
            logger.warning("%s: %s", text, self._advice())

    def _counts(self) -> tuple[int, int]:
        """Return the number of actors that wait for resources, and of those that have a process."""
        job = ray.JobID.from_hex(ray.get_runtime_context().get_job_id())
        actors = ray._private.state.actors(job_id=job).values()
        ours = [actor for actor in actors if f"({self._actor})" in actor["ActorClassName"]]
        alive = [actor for actor in ours if actor["State"] != "DEAD"]
        waiting = [actor for actor in alive if actor["State"] in WAITING and not actor["Address"]["Port"]]
        return len(waiting), len(alive) - len(waiting)

    def _advice(self) -> str:
        free = ray._private.state.available_resources_per_node()
        return (
            f"each needs {self._needs}. The nodes have {described(nodes_alive())}; of these are free "
            f"{described(list(free.values()))}. Stop what else runs there, add nodes, or lower num_readers or "
            "cpus_per_reader; placement_timeout says how long a job waits"
        )
