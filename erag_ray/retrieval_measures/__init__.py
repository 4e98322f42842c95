"""What runs find before any reader: gold pages, answers, KILT's R-precision and recall. Sealed as SANITY."""

from erag_ray.retrieval_measures.measures import hit_values, page_values, sanity
from erag_ray.retrieval_measures.stage import find_sanity
from erag_ray.retrieval_measures.table import sanity_tables

__all__ = ["find_sanity", "hit_values", "page_values", "sanity", "sanity_tables"]
