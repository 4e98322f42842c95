"""Retrieval measures without a reader: gold pages, answers, KILT's R-precision and recall (RETRIEVAL_MEASURES)."""

from erag_ray.retrieval_measures.measures import hit_values, mean_retrieval_measures, page_values
from erag_ray.retrieval_measures.stage import find_retrieval_measures

__all__ = [
    "find_retrieval_measures",
    "hit_values",
    "mean_retrieval_measures",
    "page_values",
]
