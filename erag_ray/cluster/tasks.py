"""Numbered tasks on a pool of Ray actors: a lost actor is started again, and its task is done again."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ray
import ray.exceptions
import ray.util

from erag_ray.cluster.gpus import check_gpus, process_environment
from erag_ray.cluster.session import gpu_room, nodes_alive, ray_session
from erag_ray.config import SearchConfig
from erag_ray.errors import InputError, JobError
from erag_ray.models.local import is_gpu_lost
from erag_ray.progress import counted
from erag_ray.sharded_tasks import Tasks

# a node that is lost, a process that runs out of memory; what kills its process every time ends the job
TASK_RETRIES = 3


@contextlib.contextmanager
def task_pool(config: SearchConfig, *, show: bool) -> Iterator[Callable[[Tasks], None]]:
    """While open, does tasks on a cluster, ``num_actors`` at a time; the actors stay from one kind to the next."""
    with ray_session(config.ray_address):
        size = num_actors(config, nodes_alive())
        # where the cluster has no room for all, they share what there is
        has_room = size * config.cpus_per_actor <= ray.cluster_resources().get("CPU", 0)
        options = {
            "num_cpus": config.cpus_per_actor if has_room else 0,
            "num_gpus": config.gpus_per_actor,
            "runtime_env": {"env_vars": process_environment(config.gpus_per_actor)},
            "max_restarts": -1,
            "max_task_retries": TASK_RETRIES,
        }
        actors = [_Actor.options(**options).remote() for _ in range(size)]
        try:
            yield lambda tasks: _do(tasks, actors, show)
        finally:
            for actor in actors:
                ray.kill(actor)


def num_actors(config: SearchConfig, nodes: Sequence[Mapping[str, float]]) -> int:
    """Return how many actors a cluster has room for, of those that are configured.

    Raises:
        JobError: it has not the GPUs of a single one.
    """
    if not config.gpus_per_actor:
        return config.num_actors
    room = sum(gpu_room(node.get("GPU", 0), config.gpus_per_actor) for node in nodes)
    if not room:
        gpus = [int(node.get("GPU", 0)) for node in nodes]
        raise JobError(
            f"search.gpus_per_actor: {config.gpus_per_actor:g}, but no node of the cluster has as many "
            f"(GPUs by node: {', '.join(map(str, gpus))}). Set it to 0 to search on CPUs"
        )
    return min(config.num_actors, room)


class TaskActor:
    """Does one task after the other; the worker of the last one stays."""

    def __init__(self) -> None:
        self._made_of: object = None
        self._worker: Callable[[int], None] | None = None

    def do(self, worker: type[Any], settings: Mapping[str, Any], number: int) -> int:
        """Do a task; gives its number. An error that costs this process its GPU ends it, and the task is done again.

        Raises:
            JobError: torch cannot use the GPUs that this actor has.
        """
        if self._worker is None or self._made_of != (worker, settings):
            check_gpus()
            self._worker, self._made_of = worker(**settings), (worker, settings)
        try:
            self._worker(number)
        except RuntimeError as error:
            if not is_gpu_lost(error):
                raise
            traceback.print_exception(error)
            os._exit(1)
        return number


_Actor: Any = ray.remote(TaskActor)


def _do(tasks: Tasks, actors: list[Any], show: bool) -> None:
    pool: Any = ray.util.ActorPool(actors)
    settings = dict(tasks.settings)
    with counted(tasks.noun, len(tasks.numbers), show=show) as on_progress:
        done = pool.map_unordered(
            lambda actor, number: actor.do.remote(tasks.worker, settings, number), tasks.numbers
        )
        try:
            for count, _ in enumerate(done, 1):
                on_progress(count)
        except ray.exceptions.RayActorError as error:
            tries = (
                f"{tasks.noun}: a task ended its process {TASK_RETRIES + 1} times; Ray's worker logs say why"
            )
            raise JobError(tries) from error
        except ray.exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None)
            raise (cause if isinstance(cause, InputError | JobError) else error) from error
