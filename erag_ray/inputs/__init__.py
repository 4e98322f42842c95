"""Load, check and seal the input tables of a job (`prepare`); all problems are reported in one message."""

from erag_ray.inputs.dependencies import SAMPLE_KEYS, end_to_end_settings, label_settings, sample_settings
from erag_ray.inputs.evidence import Inputs, evidence_of, reader_evidence
from erag_ray.inputs.reader_sample import (
    judged_queries,
    reader_queries,
    sample_notes,
    sampled,
    sampled_queries,
)
from erag_ray.inputs.settings import (
    SAME_READER,
    attempt,
    check_evaluation,
    check_reader_names,
    check_writable,
    evaluation_notes,
    scores_of,
)
from erag_ray.inputs.stage import (
    EVIDENCE_TABLES,
    INPUT_TABLES,
    ReaderCheck,
    check_settings,
    dry_run_config,
    prepare,
    prepared,
)
from erag_ray.inputs.tables import check_inputs, gold_lists, resolve_gold

__all__ = [
    "EVIDENCE_TABLES",
    "INPUT_TABLES",
    "SAME_READER",
    "SAMPLE_KEYS",
    "Inputs",
    "ReaderCheck",
    "attempt",
    "check_evaluation",
    "check_inputs",
    "check_reader_names",
    "check_settings",
    "check_writable",
    "dry_run_config",
    "end_to_end_settings",
    "evaluation_notes",
    "evidence_of",
    "gold_lists",
    "judged_queries",
    "label_settings",
    "prepare",
    "prepared",
    "reader_evidence",
    "reader_queries",
    "resolve_gold",
    "sample_notes",
    "sample_settings",
    "sampled",
    "sampled_queries",
    "scores_of",
]
