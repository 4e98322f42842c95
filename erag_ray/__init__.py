"""erag_ray: which retriever serves my reader best, how sure is that, and what did it cost to know?

Rooms, in import order (a file imports only files above it; ``tests/test_architecture.py`` holds the line):
errors, logs, termination, uris, schemas, user_code, names, compiling, resident, store, work, sources, config, scores,
measures, agreement, sampling, requests, prompts, datasets, world, corpus, retrieve, models, kinds, pending, train,
annotators, evaluate, report, compat, progress, pipeline, steps, benchmark.
"""

__version__ = "0.2.0"
