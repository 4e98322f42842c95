"""Inference on Ray Data: the pending requests of a stage to responses in the store.

`stage` runs and seals a planned stage, `pool` streams requests to a pool of `actor`s with one model each, `in_process`
runs them without Ray, and `dry_run` says what a job will cost.
"""

from erag_ray.inference.actor import ModelActor, peak_memory_bytes
from erag_ray.inference.dry_run import estimate_cost
from erag_ray.inference.errors import check_share
from erag_ray.inference.pool import Pool, block_rows, largest_share, plan_pool, run
from erag_ray.inference.stage import Finished, readers_session, run_part, run_stage
from erag_ray.inference.values import INSTEAD_OF_ANSWERS, Values
from erag_ray.inference.work import Done, Work

__all__ = [
    "INSTEAD_OF_ANSWERS",
    "Done",
    "Finished",
    "ModelActor",
    "Pool",
    "Values",
    "Work",
    "block_rows",
    "check_share",
    "estimate_cost",
    "largest_share",
    "peak_memory_bytes",
    "plan_pool",
    "readers_session",
    "run",
    "run_part",
    "run_stage",
]
