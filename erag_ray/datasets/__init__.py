"""Public files -> QUERIES, PROVENANCE, CORPUS and RUNS; RUNS and LABELS -> TREC files.

The walk: `load_queries` and `load_run` read questions and ranked lists; `load_passages` reads the passages
they name; `resolve_pages` finishes runs that name pages; `check_inputs` compares; `Findings.raise_problems`
raises all that is wrong in one message. A new data set is one line in `known.DATASETS`; a new format is one
function and one line in `QUERY_FORMATS` (questions.py), `PASSAGE_FORMATS` (passages.py) or `RUN_FORMATS`
(runs.py).
"""

from erag_ray.datasets.checks import check_inputs, gold_lists
from erag_ray.datasets.findings import Findings
from erag_ray.datasets.given import load_given
from erag_ray.datasets.known import DATASETS, Dataset, find_dataset
from erag_ray.datasets.passages import PASSAGE_FORMATS, load_passages
from erag_ray.datasets.predictions import resolve_pages
from erag_ray.datasets.queries import NO_VALUE, LoadedQueries, load_queries, sample, sample_loaded
from erag_ray.datasets.questions import QUERY_FORMATS, Question
from erag_ray.datasets.runs import RUN_FORMATS, load_run
from erag_ray.datasets.trec import write_trec_qrels, write_trec_run

__all__ = [
    "DATASETS",
    "NO_VALUE",
    "PASSAGE_FORMATS",
    "QUERY_FORMATS",
    "RUN_FORMATS",
    "Dataset",
    "Findings",
    "LoadedQueries",
    "Question",
    "check_inputs",
    "find_dataset",
    "gold_lists",
    "load_given",
    "load_passages",
    "load_queries",
    "load_run",
    "resolve_pages",
    "sample",
    "sample_loaded",
    "write_trec_qrels",
    "write_trec_run",
]
