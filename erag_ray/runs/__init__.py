"""Ranked lists: loading into RUNS, writing RUNS and LABELS as TREC files, and names of the reference baselines."""

from erag_ray.runs.load import RUN_FORMATS, load_run
from erag_ray.runs.pairs import pairs
from erag_ray.runs.predictions import ENTRY_COLUMNS, RUN_COLUMNS, resolve_pages
from erag_ray.runs.references import END_TO_END, GOLD_PASSAGES, NO_PASSAGES, REFERENCE_NAMES, REFERENCES
from erag_ray.runs.trec import write_trec_qrels, write_trec_run

__all__ = [
    "END_TO_END",
    "ENTRY_COLUMNS",
    "GOLD_PASSAGES",
    "NO_PASSAGES",
    "REFERENCES",
    "REFERENCE_NAMES",
    "RUN_COLUMNS",
    "RUN_FORMATS",
    "load_run",
    "pairs",
    "resolve_pages",
    "write_trec_qrels",
    "write_trec_run",
]
