"""Kinds of request: each `Kind` is a pure pair, ``build`` requests and ``fold`` responses, the same for all models.

An annotator names the kinds that it needs (`annotators.RequestSpec`); so a new kind is one `Kind` in a file of its
own here, or outside the package beside the annotator that asks it.
"""

from erag_ray.kinds.answer import ANSWER
from erag_ray.kinds.answer_judge import ANSWER_JUDGE, judge_passages, judgement
from erag_ray.kinds.auxiliary import AUXILIARY_ANSWER, AUXILIARY_LIKELIHOOD
from erag_ray.kinds.base import Case, Kind, Role, Value
from erag_ray.kinds.early_stopped import EARLY_STOPPED
from erag_ray.kinds.likelihood import GOLD_LIKELIHOOD, continuations, likelihood_form
from erag_ray.kinds.no_response import ABSTAINS, INSTRUCTION, NO_RESPONSE, instructed
from erag_ray.kinds.relevance import RELEVANCE, grade
from erag_ray.kinds.verdict import VERDICT

__all__ = [
    "ABSTAINS",
    "ANSWER",
    "ANSWER_JUDGE",
    "AUXILIARY_ANSWER",
    "AUXILIARY_LIKELIHOOD",
    "EARLY_STOPPED",
    "GOLD_LIKELIHOOD",
    "INSTRUCTION",
    "NO_RESPONSE",
    "RELEVANCE",
    "VERDICT",
    "Case",
    "Kind",
    "Role",
    "Value",
    "continuations",
    "grade",
    "instructed",
    "judge_passages",
    "judgement",
    "likelihood_form",
]
