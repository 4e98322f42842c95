"""Timing of readers on samples of requests, one after the other on loaded models.

Responses go to the store, as in any job. The time is that inside the model, without loading, the store, and the first
sample of a kind in each process, which includes one-time work: kernels, caches, memory.
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
from erag_ray.inference.actor import ModelActor
from erag_ray.inference.pool import Pool, actor_arguments, error_of
from erag_ray.inference.work import Work
from erag_ray.sharded_tasks import Tasks, part
from erag_ray.store import Folder, ResponseStore

TIMES = "times"


class Times(NamedTuple):
    """Time and memory of a sample.

    Attributes:
        worker: the process that ran it.
        order: how many samples that process had run before.
        num_responses: in the sample.
        seconds: inside the model.
        batch_rows: the maximum of requests in one batch of the model.
        peak_memory_bytes: of the process so far.
    """

    worker: str
    order: int
    num_responses: int
    seconds: float
    batch_rows: int
    peak_memory_bytes: int


class SampleReader:
    """Task: run a sample of requests and write its `Times`.

    Args:
        samples: folder of the samples.
        arguments: of the `ModelActor`.
    """

    def __init__(self, *, samples: str, **arguments: Any) -> None:
        self._folder = Folder(samples)
        self._actor = ModelActor(**arguments)
        self._worker, self._order = uuid.uuid4().hex, 0

    def __call__(self, number: int) -> None:
        start, requests = self._actor.model_seconds, self._folder.read_parquet(sample_name(number))
        (counts,) = self._actor(requests)
        times = Times(
            worker=self._worker,
            order=self._order,
            num_responses=counts["num_responses"][0],
            seconds=self._actor.model_seconds - start,
            batch_rows=self._batch_rows(requests),
            peak_memory_bytes=counts["peak_memory_bytes"][0],
        )
        self._order += 1
        self._folder.write_bytes(json.dumps(times).encode(), TIMES, part(number))

    def _batch_rows(self, requests: pa.Table) -> int:
        forms = set(requests.column("form").to_pylist())
        return max(self._actor.isolation.model.batch_rows(self._actor.forms[form]) for form in forms)


def sample_name(number: int) -> str:
    """Return the file name of a sample."""
    return f"{part(number)}.parquet"


def read_samples(work: Work, num_samples: int, config: JobConfig, job: str, pool: Pool) -> list[Times]:
    """Run the samples 0 to ``num_samples`` - 1, and return their times in this order; all responses are then stored.

    The samples run on ``pool.num_together`` actors, as many as share one GPU or one node in the job, so that they slow
    each other down as they do there. The first sample of each actor is among the times: see `without_first`.

    Args:
        work: the model; ``requests`` is the folder of the samples (`sample_name`), one file each.
        num_samples: their number.
        config: the job.
        job: its id, for its lease on the store.
        pool: the job's pool.

    Raises:
        JobError: the store cannot be written, or the reader cannot go on; the responses so far are kept.
        InputError: as raised by the model.
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
    with store.lease(job), task_pool(search, show=config.progress) as do:
        try:
            do(tasks)
        except ray.exceptions.RayTaskError as error:
            raise error_of(error, config.cache_dir, work.requests) from error
    return [Times(*json.loads(samples.read_bytes(TIMES, part(number)))) for number in tasks.numbers]


def without_first(times: Sequence[Times]) -> list[Times]:
    """Return the times of the samples of one kind without each worker's first (the warm-up)."""
    first = {sample.worker: sample.order for sample in sorted(times, key=lambda sample: -sample.order)}
    return [sample for sample in times if sample.order > first[sample.worker]]
