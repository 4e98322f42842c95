"""Numbered tasks on a pool of Ray actors, with restarts of lost actors and retries of their tasks."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ray
import ray.exceptions
import ray.util

from erag_ray.config.retrieval import SearchConfig
from erag_ray.inference.cluster.gpus import check_gpus, process_environment
from erag_ray.inference.cluster.nodes import LOOK_SECONDS, PlacementCheck, gpu_rooms, nodes_alive
from erag_ray.inference.cluster.session import ray_session
from erag_ray.models.local.process import is_gpu_lost
from erag_ray.store.sharded_tasks import Tasks
from erag_ray.support.errors import InputError, JobError
from erag_ray.support.masking import masked_traceback
from erag_ray.support.progress import counted

# for lost nodes and processes out of memory; a task that kills its process each time ends the job
TASK_RETRIES = 3


@contextlib.contextmanager
def task_pool(config: SearchConfig, *, show: bool) -> Iterator[Callable[[Tasks], None]]:
    """Yield a function that runs tasks on a cluster, ``num_actors`` at a time; all tasks share the actors."""
    with ray_session(config.ray_address):
        size = num_actors(config, nodes_alive())
        # without enough CPUs for all actors, let them share the CPUs
        has_room = size * config.cpus_per_actor <= ray.cluster_resources().get("CPU", 0)
        num_cpus = config.cpus_per_actor if has_room else 0
        needs = f"CPU {num_cpus}, GPU {config.gpus_per_actor:g}"
        keys = "search.num_actors or search.cpus_per_actor"
        check = PlacementCheck(TaskActor.__name__, "search actor", needs, keys, config.placement_timeout)
        options = {
            "num_cpus": num_cpus,
            "num_gpus": config.gpus_per_actor,
            "runtime_env": {"env_vars": process_environment(config.gpus_per_actor)},
            "max_restarts": -1,
            "max_task_retries": TASK_RETRIES,
        }
        actors = [_Actor.options(**options).remote() for _ in range(size)]
        try:
            yield lambda tasks: _do(tasks, actors, check, show)
        finally:
            for actor in actors:
                ray.kill(actor)


def num_actors(config: SearchConfig, nodes: Sequence[Mapping[str, float]]) -> int:
    """Return the number of actors: as configured, at most as many as have GPUs; raise JobError if none has."""
    if not config.gpus_per_actor:
        return config.num_actors
    advice = "Set it to 0 to search on CPUs"
    rooms = gpu_rooms(nodes, config.gpus_per_actor, "search.gpus_per_actor", advice)
    return min(config.num_actors, sum(rooms))


class TaskActor:
    """Actor that runs one task after the other and reuses the worker of the previous one."""

    def __init__(self) -> None:
        self._worker_key: object = None
        self._worker: Callable[[int], None] | None = None

    def do(self, worker: type[Any], settings: Mapping[str, Any], number: int) -> int:
        """Run a task and return its number. If its GPU is lost, the process exits, so that Ray retries the task.

        Raises:
            JobError: torch cannot use this actor's GPUs.
        """
        if self._worker is None or self._worker_key != (worker, settings):
            check_gpus()
            self._worker, self._worker_key = worker(**settings), (worker, settings)
        try:
            self._worker(number)
        except RuntimeError as error:
            if not is_gpu_lost(error):
                raise
            print(masked_traceback(error), file=sys.stderr, flush=True)
            os._exit(1)
        return number


_Actor: Any = ray.remote(TaskActor)


def _do(tasks: Tasks, actors: list[Any], check: PlacementCheck, show: bool) -> None:
    pool: Any = ray.util.ActorPool(actors)
    settings, count = dict(tasks.settings), 0
    for task in tasks.numbers:
        pool.submit(lambda actor, number: actor.do.remote(tasks.worker, settings, number), task)
    with counted(tasks.noun, len(tasks.numbers), show=show) as on_progress:
        try:
            while pool.has_next():
                with contextlib.suppress(TimeoutError):
                    pool.get_next_unordered(timeout=LOOK_SECONDS)
                    count += 1
                    on_progress(count)
                check.look()
        except ray.exceptions.RayActorError as error:
            text = f"{tasks.noun}: a task ended its process {TASK_RETRIES + 1} times. See Ray's worker logs"
            raise JobError(text) from error
        except ray.exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None)
            raise (cause if isinstance(cause, InputError | JobError) else error) from error
