"""erag_ray: which retriever serves my reader best, how sure is that, and what did it cost to know?

The map is in ``erag_ray/README.md``. A file imports only rooms that stand before its own, and of another room only
what its ``__init__`` gives; the core imports nothing of what stands on it (``tests/pure/test_architecture.py``).

The core, in import order:
errors, uris, logs, termination, schemas, user_code, registry, numba_jit, process_memory, store, progress,
sharded_tasks, model_sources, config, scores, output_tables, measures, agreement, stages, files, passages, datasets,
runs, requests, kinds, models, annotators, cluster, inputs, planning, inference, retrieve, labels, evaluate, report,
track, retrieval_measures, cli, compat.

On the core stand, in import order:
papers, train, world, sequential_test, label_export, benchmark.
"""

__version__ = "0.2.0"
