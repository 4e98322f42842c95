"""What a table was made from, and one job at a time in one folder.

`Stage` and `ensure` make tables where they are not current; `stale` names what was made from other tables; `locked`
keeps other jobs out of an output folder; `folders` names what lies there beside tables.
"""

from erag_ray.stages.folders import EXPORT, JOB_STAGES, judge_stage
from erag_ray.stages.lock import locked
from erag_ray.stages.stage import Append, Stage, delete_report, digests, ensure, stale

__all__ = [
    "EXPORT",
    "JOB_STAGES",
    "Append",
    "Stage",
    "delete_report",
    "digests",
    "ensure",
    "judge_stage",
    "locked",
    "stale",
]
