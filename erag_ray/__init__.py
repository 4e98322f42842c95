"""Evaluation of retrievers by the reader: which serves it best, how sure is that, and what did it cost to know?

From Python: `compare` and `label`, with `Served`, `Causal` or `Function` as the reader; `score` for outputs that exist;
`job` runs any other job.

The map is in ``erag_ray/README.md``. A file imports only packages that come before its own, their files by name; of a
package with ``__all__`` only what it names. Everything built on the core is in ``extras``, which the core does not
import (``tests/pure/test_architecture.py``).

The core, in import order:
support, config, measures, store, data, prompts, models, annotators, inputs, inference, extensions, retrieve, labels,
analyses, report, comparison, cli, api.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from erag_ray.api import Causal, Function, Result, Retriever, Served, compare, job, label, score

__version__ = "0.2.0"
__all__ = ["Causal", "Function", "Result", "Retriever", "Served", "compare", "job", "label", "score"]


def __getattr__(name: str) -> Any:
    # at the first use, so that the import takes no time
    if name in __all__:
        return getattr(importlib.import_module("erag_ray.api"), name)
    raise AttributeError(f"module 'erag_ray' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
