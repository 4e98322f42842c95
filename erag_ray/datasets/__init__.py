"""Public files -> QUERIES, PROVENANCE, CORPUS and RUNS; RUNS and LABELS -> TREC files.

Order of the calls: `load_queries` and `load_run` read questions and ranked lists; `load_passages` reads the passages
that they name; `resolve_pages` maps runs of pages to passages; `check_inputs` compares the tables;
`Diagnostics.raise_errors` raises all errors in one message. A new data set is one line in `tasks.DATASETS`; a new
format is one function and one line in `QUERY_FORMATS` (questions.py), `PASSAGE_FORMATS` (passages/load.py) or
`RUN_FORMATS` (runs/load.py).
"""

from erag_ray.datasets.answers import READ as ANSWER_FIELDS
from erag_ray.datasets.answers import gold_answers
from erag_ray.datasets.facts import all_forms, parse_facts
from erag_ray.datasets.queries import NO_VALUE, LoadedQueries, load_queries, sample, sample_loaded
from erag_ray.datasets.questions import QUERY_FORMATS, Question
from erag_ray.datasets.reading_comprehension import load_reading_comprehension
from erag_ray.datasets.tasks import DATASETS, Dataset, find_dataset, known_name

__all__ = [
    "ANSWER_FIELDS",
    "DATASETS",
    "NO_VALUE",
    "QUERY_FORMATS",
    "Dataset",
    "LoadedQueries",
    "Question",
    "all_forms",
    "find_dataset",
    "gold_answers",
    "known_name",
    "load_queries",
    "load_reading_comprehension",
    "parse_facts",
    "sample",
    "sample_loaded",
]
