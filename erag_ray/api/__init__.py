"""The interface of Python: `compare`, `score` and `label` for data in memory, readers, any `job`, and `Result`."""

from erag_ray.api.calls import compare, job, label, score
from erag_ray.api.readers import Causal, Function, Retriever, Served
from erag_ray.api.result import Result

__all__ = ["Causal", "Function", "Result", "Retriever", "Served", "compare", "job", "label", "score"]
