"""The only room that imports Ray: runs the other rooms' plain functions and classes on Ray Data and Ray Train.

`session` starts or joins a Ray, `inference` fills the store of responses with a pool of `actor`s, `tasks` does the
numbered tasks of indexes, `measuring` times readers on samples, `training` runs the training loop on data-parallel
workers.
"""

from erag_ray.pipeline.actor import ModelActor, peak_memory_bytes
from erag_ray.pipeline.inference import (
    Done,
    Pool,
    Work,
    block_rows,
    largest_share,
    plan_pool,
    run,
)
from erag_ray.pipeline.measuring import SampleReader, Times, read_samples, sample_name, without_first
from erag_ray.pipeline.session import FREE_CPUS, ray_session
from erag_ray.pipeline.tasks import task_pool
from erag_ray.pipeline.training import train

__all__ = [
    "FREE_CPUS",
    "Done",
    "ModelActor",
    "Pool",
    "SampleReader",
    "Times",
    "Work",
    "block_rows",
    "largest_share",
    "peak_memory_bytes",
    "plan_pool",
    "ray_session",
    "read_samples",
    "run",
    "sample_name",
    "task_pool",
    "train",
    "without_first",
]
