"""Public files -> QUERIES, PROVENANCE, CORPUS and RUNS; RUNS and LABELS -> TREC files.

The walk: `load_queries` and `load_run` read questions and ranked lists; `load_passages` reads the passages
they name; `resolve_pages` finishes runs that name pages; `check_inputs` compares; `Diagnostics.raise_errors`
raises all that is wrong in one message. A new data set is one line in `known.DATASETS`; a new format is one
function and one line in `QUERY_FORMATS` (questions.py), `PASSAGE_FORMATS` (passages.py) or `RUN_FORMATS`
(runs.py).
"""

from erag_ray.datasets.queries import (
    GOLD_COLUMNS,
    NO_VALUE,
    LoadedQueries,
    load_queries,
    sample,
    sample_loaded,
)
from erag_ray.datasets.questions import QUERY_FORMATS, Question
from erag_ray.datasets.reading_comprehension import load_given
from erag_ray.datasets.tasks import DATASETS, Dataset, find_dataset, known_name

__all__ = [
    "DATASETS",
    "GOLD_COLUMNS",
    "NO_VALUE",
    "QUERY_FORMATS",
    "Dataset",
    "LoadedQueries",
    "Question",
    "find_dataset",
    "known_name",
    "load_given",
    "load_queries",
    "sample",
    "sample_loaded",
]
