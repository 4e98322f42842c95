"""Ranked lists: loading into RUNS, writing RUNS and LABELS as TREC files, and names of the reference baselines.

Lists may bring their texts and latencies along (`load_corpus`, `seconds_of`).
"""

from erag_ray.runs.entries import ENTRY_COLUMNS, RUN_COLUMNS, as_entries
from erag_ray.runs.load import RUN_FORMATS, load_run
from erag_ray.runs.orders import BY_RANK, rising_fault
from erag_ray.runs.pairs import pairs
from erag_ray.runs.predictions import resolve_pages
from erag_ray.runs.references import END_TO_END, GOLD_PASSAGES, NO_PASSAGES, REFERENCE_NAMES, REFERENCES
from erag_ray.runs.texts import load_corpus, seconds_of, with_texts
from erag_ray.runs.trec import write_trec_qrels, write_trec_run

__all__ = [
    "BY_RANK",
    "END_TO_END",
    "ENTRY_COLUMNS",
    "GOLD_PASSAGES",
    "NO_PASSAGES",
    "REFERENCES",
    "REFERENCE_NAMES",
    "RUN_COLUMNS",
    "RUN_FORMATS",
    "as_entries",
    "load_corpus",
    "load_run",
    "pairs",
    "resolve_pages",
    "rising_fault",
    "seconds_of",
    "with_texts",
    "write_trec_qrels",
    "write_trec_run",
]
