"""Stages with fingerprints, and a lock on the output folder.

`Stage` and `ensure` recompute tables that are not current, `stale` lists tables with changed sources, `locked` excludes
other jobs from an output folder, `shared` keeps what the steps of a job share, and `folders` names its other folders.
"""

from erag_ray.stages.folders import EXPORT, JOB_STAGES, judge_stage
from erag_ray.stages.lock import locked
from erag_ray.stages.memory import job_memory, shared
from erag_ray.stages.stage import Append, Stage, digests, ensure, stale

__all__ = [
    "EXPORT",
    "JOB_STAGES",
    "Append",
    "Stage",
    "digests",
    "ensure",
    "job_memory",
    "judge_stage",
    "locked",
    "shared",
    "stale",
]
