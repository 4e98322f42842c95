"""PENDING to RESPONSES on a pool of actors, each with one model.

Ray Data streams blocks of requests from Parquet shards to a fixed pool. Each actor runs its block batch by batch and
appends the responses to the store, so that a killed job loses at most the running batches. Only counts return to the
driver.
"""

import contextlib
import dataclasses
import functools
import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import ray

from erag_ray.config.job import JobConfig
from erag_ray.inference.actor import MAX_LOADS, ModelActor
from erag_ray.inference.cluster.gpus import gpu_names, process_environment
from erag_ray.inference.cluster.nodes import (
    PlacementCheck,
    gpu_room,
    gpu_rooms,
    nodes_alive,
    num_gpus_of,
    wait_for_gpus,
)
from erag_ray.inference.cluster.session import FREE_CPUS
from erag_ray.inference.coordinator import POLL_SECONDS, STOP_SECONDS, Coordinator
from erag_ray.inference.work import Done, Work, sum_counts
from erag_ray.models import Resources, model_class
from erag_ray.store.folder import Folder
from erag_ray.store.responses import ResponseStore
from erag_ray.support.errors import InputError, JobError
from erag_ray.support.progress import progress
from erag_ray.support.termination import before_interruption

logger = logging.getLogger(__name__)
MIN_BLOCK, MAX_BLOCK, BLOCKS_PER_READER = 128, 32_768, 12
FIRST_BLOCK = 4096
BLOCK_SECONDS = 60.0
ROUNDS_IN_FLIGHT = 4
COUNT_SECONDS = 1.0
NO_PROGRESS = "RAY_DATA_EXECUTION_NO_PROGRESS_TIMEOUT_S"
"""Environment variable: seconds without a finished block after which Ray ends a job; by default half an hour."""
SMALL_MODEL = 400 << 20
"""Maximal bytes of weights for two actors on a GPU: T5-small has 242 MB in float32, T5-base 892 MB."""
SHARING_ACTORS, CPUS_OF_SHARING_ACTOR = 2, 2
"""Actors on a GPU, and CPUs that each requires: one for Python, one for tokenising and copies."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
    """A fixed pool of actors and the resources of each."""

    size: int
    num_cpus: int
    """Logical CPUs of each; 0 reserves none."""
    num_gpus: float
    num_together: int = 1
    """The maximum of actors that share the memory of one GPU or, without GPUs, of one node."""
    most: int = 0
    """Number of actors once nodes have joined; those that reserve nothing are not more than at the start."""

    @property
    def strategy(self) -> ray.data.ActorPoolStrategy:
        if self.most <= self.size or not (self.num_cpus or self.num_gpus):
            return ray.data.ActorPoolStrategy(size=self.size)
        return ray.data.ActorPoolStrategy(min_size=1, max_size=self.most, initial_size=self.size)

    @property
    def num_threads(self) -> int:
        return max(self.num_cpus, 1)

    def described(self, nodes: Sequence[Mapping[str, float]]) -> str:
        threads = f"{self.num_threads} CPU thread{'s' * (self.num_threads > 1)} each"
        if not self.num_gpus:
            return f"readers: {self.size} on CPUs, {threads}"
        num_gpus, names = num_gpus_of(nodes), gpu_names(nodes)
        kind = f" ({names})" if names else ""
        if self.num_gpus < 1:
            most = round(1 / self.num_gpus)
            gpus = f"{num_gpus} GPU{'s' * (num_gpus > 1)}{kind}"
            return f"readers: {self.size} on {gpus}, up to {most} on each, {threads}"
        num_used = round(self.size * self.num_gpus)
        idle = f" of {num_gpus}, {num_gpus - num_used} idle" if num_used < num_gpus else ""
        where = f"each on {self.num_gpus:.0f} GPUs" if self.num_gpus > 1 else "one on each GPU"
        return f"readers: {self.size}, {where}{kind}{idle}, {threads}"


def plan_pool(config: JobConfig, resources: Resources) -> Pool:
    """Plan a pool that fits the cluster and leaves CPUs free, so that nothing waits for ever.

    With GPUs: one actor on each, two for a small model (`actors_per_gpu`), or ``num_readers`` that share them evenly.
    Without, or for a model that needs none: one actor with the cores of the largest node. An actor that would leave
    fewer than `FREE_CPUS` logical CPUs, or fit on no node, is scheduled without reserving any. Raise JobError if the
    cluster has too few GPUs, also after waiting, or no node has enough for one actor.
    """
    wait_for_gpus(config.wait_for_gpus, config.placement_timeout)
    nodes = nodes_alive()
    # a cluster without GPUs computes on CPUs
    each = resources.num_gpus if num_gpus_of(nodes) else 0.0
    advice = "A reader takes GPUs of one node: lower the number, or add nodes with more GPUs"
    room = gpu_rooms(nodes, each, "GPUs of a reader (tensor_parallel_size)", advice)
    sharing = actors_per_gpu(config, resources, nodes, room)
    size = config.num_readers or max(sum(room) * sharing, 1)
    per_room = math.ceil(size / sum(room)) if sum(room) else 0
    num_gpus = resources.num_gpus / per_room if per_room else 0.0
    capacities = [slots * per_room if per_room else size for slots in room]
    share = largest_share([int(node.get("CPU", 0)) for node in nodes], capacities, size)
    num_cpus = min(config.cpus_per_reader or resources.num_cpus or share, share)
    # of readers that reserve no CPUs, all may be on one node
    on_a_node = min(size, max(int(node.get("CPU", 0)) // num_cpus for node in nodes)) if num_cpus else size
    num_together = max(gpu_room(1, num_gpus), 1) if num_gpus else on_a_node
    most = max(size, config.max_readers or 0)
    return Pool(size=size, num_cpus=num_cpus, num_gpus=num_gpus, num_together=num_together, most=most)


def actors_per_gpu(
    config: JobConfig, resources: Resources, nodes: Sequence[Mapping[str, float]], room: Sequence[int]
) -> int:
    """Return how many actors share a GPU if ``num_readers`` is not set.

    A small T5 computes faster than one process can prepare its requests: the count in `notebooks/a100_estimate.py`
    says 14,500 pairs a second for T5-small, of which one actor reached .58 and two .84 (`notebooks/benchmark.py --parts
    '[host]'`). Of the 3,900 of T5-base one reached .92.
    """
    is_small = 0 < resources.weight_bytes <= SMALL_MODEL and resources.num_gpus == 1
    if not is_small or not sum(room):
        return 1
    capacities = [slots * SHARING_ACTORS for slots in room]
    share = largest_share([int(node.get("CPU", 0)) for node in nodes], capacities, sum(capacities))
    num_cpus = min(config.cpus_per_reader or share, share)
    return SHARING_ACTORS if num_cpus >= CPUS_OF_SHARING_ACTOR else 1


def largest_share(cpus: Sequence[int], capacities: Sequence[int], size: int) -> int:
    """Return the most CPUs that each of ``size`` readers can reserve such that `FREE_CPUS` are left in the cluster."""
    for share in range((sum(cpus) - FREE_CPUS) // size, 0, -1):
        readers = (
            min(node_cpus // share, capacity) for node_cpus, capacity in zip(cpus, capacities, strict=True)
        )
        if sum(readers) >= size:
            return share
    return 0


def block_rows(
    config: JobConfig, num_requests: int, pool: Pool, speed: float | None, in_flight: int = 1
) -> int:
    """Return the number of requests in a block: small enough to balance the readers, large enough to be efficient.

    ``speed`` are responses per second of one reader, if known: a block takes `BLOCK_SECONDS` at most. ``in_flight`` are
    the concurrent requests of one reader: a block has several rounds of them.
    """
    even = num_requests // (max(pool.size, pool.most) * BLOCKS_PER_READER)
    most = FIRST_BLOCK if speed is None else min(int(speed * BLOCK_SECONDS), MAX_BLOCK)
    return config.rows_per_block or max(min(even, most), MIN_BLOCK, ROUNDS_IN_FLIGHT * in_flight)


def run(work: Work, config: JobConfig, job: str) -> Done:
    """Run the requests, and return when their responses are in the store.

    Raises:
        JobError: the store cannot be written, the reader cannot go on, or none gets the resources that it needs; the
            responses so far are kept.
        ray.exceptions.RayError: a reader failed for another reason; the job can be started again.
    """
    pool = plan_pool(config, work.resources)
    store = ResponseStore(config.cache_dir, work.model)
    rows = block_rows(config, work.num_requests, pool, store.speed(), work.resources.in_flight)
    # a reader without a block would load its model for nothing
    num_blocks = max(-(-work.num_requests // rows), 1)
    pool = dataclasses.replace(pool, size=min(pool.size, num_blocks), most=min(pool.most, num_blocks))
    _set_up_data()
    arguments = actor_arguments(work, config, job, pool)
    if config.progress:
        logger.info("%s", pool.described(nodes_alive()))
    actor: Any = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Coordinator)
    coordinator = actor.remote(config.max_cost, pool.size)
    counted = (
        _shards(work.requests)
        .repartition(target_num_rows_per_block=rows)
        .map_batches(
            ModelActor,
            fn_constructor_kwargs=arguments | {"coordinator": coordinator},
            batch_size=rows,
            batch_format="pyarrow",
            zero_copy_batch=True,
            compute=pool.strategy,
            num_cpus=pool.num_cpus,
            num_gpus=pool.num_gpus,
            runtime_env={"env_vars": process_environment(pool.num_gpus)},
        )
    )
    needs, keys = f"CPU {pool.num_cpus}, GPU {pool.num_gpus:g}", "num_readers or cpus_per_reader"
    check = functools.partial(
        PlacementCheck, ModelActor.__name__, "reader", needs, keys, config.placement_timeout
    )
    counted.context.custom_execution_callback_classes.append(check)  # type: ignore[arg-type]
    count = functools.partial(_num_responses, coordinator, work.num_requests, [0])
    shown = progress(count, work.num_requests, f"{pool.size} x {work.model}")
    with (
        store.lease(job),
        shown if config.progress else contextlib.nullcontext(),
        before_interruption(functools.partial(_stop, coordinator)),
    ):
        try:
            batches = list(counted.iter_batches(batch_format="pyarrow", batch_size=None))
        except ray.exceptions.RayTaskError as error:
            raise error_of(error, config.cache_dir, work.requests) from error
    return sum_counts(pa.concat_tables(batches), store, job)


def _num_responses(coordinator: Any, most: int, last: list[int]) -> int:
    """Return the number of responses so far; those of an actor that died are counted again when they come again."""
    with contextlib.suppress(ray.exceptions.RayError):
        last[0] = min(ray.get(coordinator.num_responses.remote(), timeout=COUNT_SECONDS), most)
    return last[0]


def _stop(coordinator: Any) -> None:
    """Order the actors to write their responses, and wait for them up to `STOP_SECONDS`."""
    deadline = time.monotonic() + STOP_SECONDS
    text = f"an actor did not answer within {STOP_SECONDS:.0f} s: its responses since the last file are lost"
    with contextlib.suppress(ray.exceptions.RayError):
        while (left := deadline - time.monotonic()) > 0:
            if ray.get(coordinator.stop.remote(), timeout=left):
                text = "all responses are written"
                break
            time.sleep(POLL_SECONDS)
    logger.info("stopping: %s", text)


def actor_arguments(work: Work, config: JobConfig, job: str, pool: Pool) -> dict[str, Any]:
    has_timeouts = config.max_batch_seconds == "auto" and model_class(work.config.kind).has_timeouts
    return {
        "config": work.config,
        "model": work.model,
        "forms": work.forms,
        "store": config.cache_dir,
        "job": job,
        "num_threads": pool.num_threads,
        "write_every_seconds": config.write_every_seconds,
        "max_batch_seconds": None if has_timeouts else config.max_batch_seconds,
        "memory_share": 1 / pool.num_together,
        "max_cost": None if config.max_cost is None else config.max_cost / pool.size,
        "may_all_fail": work.may_all_fail,
    }


def _shards(path: str) -> ray.data.Dataset:
    try:
        folder = Folder(path)
        return ray.data.read_parquet(folder.path, filesystem=folder.filesystem)
    except (ValueError, OSError) as error:
        raise _unusable(f"the requests in {path}", error) from error


def error_of(error: ray.exceptions.RayTaskError, store: str, requests: str) -> Exception:
    """Return the cause of a reader's error as an error for users, without Ray's traceback."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, JobError | InputError):
        return cause
    if isinstance(cause, OSError | pa.ArrowException):
        return _unusable(f"the store {store}, or the requests in {requests},", cause)
    return error


def _unusable(what: str, error: Exception) -> JobError:
    # the first argument only: Ray appends advice that does not apply here
    reason = getattr(error, "strerror", None) or (error.args[0] if error.args else error)
    advice = "The responses so far are kept. Make room or repair it, and start the same command again"
    return JobError(f"{what} cannot be used: {reason}. {advice}")


def _set_up_data() -> None:
    # first: importing ray.data sets the levels of its loggers
    context = ray.data.DataContext.get_current()
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # they print the traceback of an error that is raised as well
    for name in ("_internal.execution.streaming_executor_state", "exceptions"):
        logging.getLogger(f"ray.data.{name}").setLevel(logging.CRITICAL)
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # Ray ends an actor for good that it cannot reach while it starts, and by default the job with it
    context.max_consecutive_actor_init_deaths = MAX_LOADS
    if NO_PROGRESS not in os.environ:
        # loading, or a block of a slow model, may take longer; `Watchdog` and `PlacementCheck` have limits for both
        context.execution_no_progress_timeout_s = -1
