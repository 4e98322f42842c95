"""Evaluation of retrievers by the reader: which serves it best, how sure is that, and what did it cost to know?

From Python: `compare` and `label`, with `Served`, `Causal` or `Function` as the reader.

The map is in ``erag_ray/README.md``. A file imports only rooms that stand before its own, and of another room only
what its ``__init__`` gives. What stands on the core is in ``extras``, which the core does not import
(``tests/pure/test_architecture.py``).

The core, in import order:
masking, errors, uris, logs, termination, schemas, user_code, registry, numba_jit, process_memory, ownership, store,
progress, sharded_tasks, model_sources, config, scores, output_tables, measures, agreement, stages, files,
passages, datasets, runs, requests, kinds, models, annotators, cluster, inputs, planning, inference, extensions,
parts, retrieve, labels, analyses, report, comparison, cli, api.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from erag_ray.api import Causal as Causal
    from erag_ray.api import Function as Function
    from erag_ray.api import Result as Result
    from erag_ray.api import Retriever as Retriever
    from erag_ray.api import Served as Served
    from erag_ray.api import compare as compare
    from erag_ray.api import label as label

__version__ = "0.2.0"
__all__ = ["Causal", "Function", "Result", "Retriever", "Served", "compare", "label"]


def __getattr__(name: str) -> Any:
    # at the first use, so that the import takes no time
    if name in __all__:
        return getattr(importlib.import_module("erag_ray.api"), name)
    raise AttributeError(f"module 'erag_ray' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
