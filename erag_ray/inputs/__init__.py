"""Input files -> the sealed input tables of a job, or one message with everything that is wrong (`prepare`)."""

from erag_ray.inputs.dependencies import end_to_end_settings, label_settings
from erag_ray.inputs.evidence import evidence_of
from erag_ray.inputs.settings import attempt, check_evaluation, check_places, cutoff_notes, scores_of
from erag_ray.inputs.stage import (
    INPUT_TABLES,
    Inputs,
    ReaderCheck,
    check_settings,
    dry_run_config,
    prepare,
    prepared,
)
from erag_ray.inputs.tables import check_inputs, gold_lists

__all__ = [
    "INPUT_TABLES",
    "Inputs",
    "ReaderCheck",
    "attempt",
    "check_evaluation",
    "check_inputs",
    "check_places",
    "check_settings",
    "cutoff_notes",
    "dry_run_config",
    "end_to_end_settings",
    "evidence_of",
    "gold_lists",
    "label_settings",
    "prepare",
    "prepared",
    "scores_of",
]
