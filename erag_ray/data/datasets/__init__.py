"""Public files -> QUERIES, PROVENANCE, CORPUS and RUNS; RUNS and LABELS -> TREC files.

Order of the calls: `load_queries` and `load_run` read questions and ranked lists; `load_passages` reads the passages
that they name; `resolve_pages` maps runs of pages to passages; `check_inputs` compares the tables;
`Diagnostics.raise_errors` raises all errors in one message. A new data set is one line in `tasks.DATASETS`; a new
format is one function and one line in `QUERY_FORMATS` (questions.py), `PASSAGE_FORMATS` (passages/load.py) or
`RUN_FORMATS` (runs/load.py).
"""
