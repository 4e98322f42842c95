"""How long readers take: samples of requests, read one by one by readers that stay loaded.

The store gets what is read, as in any job; only the time inside a reader counts, without its loading, the store, and
the first sample of a kind in each process, which takes what is done once: kernels, caches, memory.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import ray.exceptions

from erag_ray.cluster import task_pool
from erag_ray.config import JobConfig, SearchConfig
from erag_ray.inference.actor import NOTES, ModelActor
from erag_ray.inference.pool import Pool, Work, actor_arguments, error_of
from erag_ray.sharded_tasks import Tasks, part
from erag_ray.store import Folder, Lease, ResponseStore

TIMES = "times"


class Times(NamedTuple):
    """What a sample took.

    Attributes:
        worker: the process that read it.
        order: how many that process had read before.
        num_responses: in the sample.
        seconds: inside the reader.
        batch_rows: most requests in one batch of the reader.
        peak_memory_bytes: the most that the process has held so far.
    """

    worker: str
    order: int
    num_responses: int
    seconds: float
    batch_rows: int
    peak_memory_bytes: int


class SampleReader:
    """Reads numbered samples of requests and leaves the `Times` of each.

    Args:
        samples: folder of the samples.
        arguments: of the `ModelActor`.
    """

    def __init__(self, *, samples: str, **arguments: Any) -> None:
        self._folder = Folder(samples)
        self._actor = ModelActor(**arguments)
        self._worker, self._order = uuid.uuid4().hex, 0

    def __call__(self, number: int) -> None:
        before, requests = self._actor.model_seconds, self._folder.read_parquet(sample_name(number))
        (counts,) = self._actor(requests)
        times = Times(
            worker=self._worker,
            order=self._order,
            num_responses=counts["num_responses"][0],
            seconds=self._actor.model_seconds - before,
            batch_rows=self._batch_rows(requests),
            peak_memory_bytes=counts["peak_memory_bytes"][0],
        )
        self._order += 1
        self._folder.write_bytes(json.dumps(times).encode(), TIMES, part(number))

    def _batch_rows(self, requests: pa.Table) -> int:
        places = set(requests.column("form").to_pylist())
        return max(self._actor.isolation.model.batch_rows(self._actor.forms[place]) for place in places)


def sample_name(number: int) -> str:
    """The file of a sample."""
    return f"{part(number)}.parquet"


def read_samples(work: Work, num_samples: int, config: JobConfig, job: str, pool: Pool) -> list[Times]:
    """Read numbered samples, one after the other; what they hold is in the store when this returns.

    By one reader, or as many as share a GPU or a node, so that they slow each other down as they will.

    Args:
        work: ``requests`` is the folder of the samples (`sample_name`).
        num_samples: how many there are.
        config: the job.
        job: its id.
        pool: that the job would have.

    Raises:
        JobError: nothing can be written, or the reader cannot go on; what was written stays.
    """
    search = SearchConfig(
        num_actors=pool.num_together,
        cpus_per_actor=pool.num_cpus,
        gpus_per_actor=pool.num_gpus,
        ray_address=config.ray_address,
    )
    tasks = Tasks(
        worker=SampleReader,
        settings={"samples": work.requests, **actor_arguments(work, config, job, pool)},
        numbers=range(num_samples),
        noun=f"samples by {work.model}",
    )
    store, samples = ResponseStore(config.cache_dir, work.model), Folder(work.requests)
    with Lease(store.folder, job), task_pool(search, show=config.progress) as do:
        try:
            do(tasks)
        except ray.exceptions.RayTaskError as error:
            raise error_of(error, config.cache_dir, work.requests) from error
    store.folder.delete_folder(NOTES, job)
    return [Times(*json.loads(samples.read_bytes(TIMES, part(number)))) for number in tasks.numbers]


def without_first(times: Sequence[Times]) -> list[Times]:
    """The times of the samples of one kind, but of each worker's first."""
    first = {one.worker: one.order for one in sorted(times, key=lambda one: -one.order)}
    return [one for one in times if one.order > first[one.worker]]
