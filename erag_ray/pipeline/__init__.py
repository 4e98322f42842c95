"""The only room that imports Ray: runs the other rooms' plain functions and classes on Ray Data and Ray Train.

`session` starts or joins a Ray, `reading` fills the store of readings with a pool of `actor`s, `tasks` does the
numbered tasks of indexes, `measuring` times readers on samples, `training` runs the training loop on data-parallel
workers.
"""

from erag_ray.pipeline.actor import ReaderActor, peak_memory_bytes
from erag_ray.pipeline.measuring import SampleReader, Times, read_samples, sample_name, without_first
from erag_ray.pipeline.reading import (
    Done,
    Pool,
    Work,
    block_rows,
    largest_share,
    plan_pool,
    read,
)
from erag_ray.pipeline.session import FREE_CPUS, ray_session
from erag_ray.pipeline.tasks import task_pool
from erag_ray.pipeline.training import train

__all__ = [
    "FREE_CPUS",
    "Done",
    "Pool",
    "ReaderActor",
    "SampleReader",
    "Times",
    "Work",
    "block_rows",
    "largest_share",
    "peak_memory_bytes",
    "plan_pool",
    "ray_session",
    "read",
    "read_samples",
    "sample_name",
    "task_pool",
    "train",
    "without_first",
]
