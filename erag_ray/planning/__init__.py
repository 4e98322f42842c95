"""Plan the requests of a job: all requests, minus the cached responses, with a cost preview.

`plan_stage` plans a stage and `preview` estimates its cost. `pending` builds requests and their keys. `uses` selects
and checks the model and form for each kind of request before any weights are loaded.
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
    prompt_tokens,
    sampled_prompts,
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
    "prompt_tokens",
    "ranked_lists",
    "sampled_prompts",
]
