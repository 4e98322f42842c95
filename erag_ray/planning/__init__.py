"""Inputs -> everything that a job asks of models, less what was answered before; and what the rest will cost.

`plan_stage` plans, `preview` says what it costs, `pending` builds requests and their keys, `uses` says which model is
asked what, and checks it before any weights are loaded.
"""

from erag_ray.planning.pending import DocIds, PendingRequests, Use, Uses, as_lists_of_one, ranked_lists
from erag_ray.planning.plan import (
    Answered,
    ModelPlan,
    StagePlan,
    end_to_end_lists,
    plan_labels,
    plan_lists,
    plan_stage,
    preview,
    spread,
)
from erag_ray.planning.uses import check_reader

__all__ = [
    "Answered",
    "DocIds",
    "ModelPlan",
    "PendingRequests",
    "StagePlan",
    "Use",
    "Uses",
    "as_lists_of_one",
    "check_reader",
    "end_to_end_lists",
    "plan_labels",
    "plan_lists",
    "plan_stage",
    "preview",
    "ranked_lists",
    "spread",
]
