"""Turn responses into LABELS (single documents) and UTILITY (whole lists), after judgements if a judge scores.

`label` and `score_end_to_end` are stages; `judge_outputs` gets the judge's verdicts on the outputs of a finished stage.
"""

from erag_ray.labels.document_labels import label, label_by_reader
from erag_ray.labels.end_to_end import list_responses, score_end_to_end, utility_of
from erag_ray.labels.judgements import judge_outputs, preview_judgements
from erag_ray.labels.scoring import check_scores, score_notes, scoring_of

__all__ = [
    "check_scores",
    "judge_outputs",
    "label",
    "label_by_reader",
    "list_responses",
    "preview_judgements",
    "score_end_to_end",
    "score_notes",
    "scoring_of",
    "utility_of",
]
