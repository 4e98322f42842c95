"""Fewer readings for the same answer: read a sample of the documents, with known probabilities, and stop when told.

`design` says which documents are read and with what probability, `estimates` makes of their labels what all labels
would have given, and `looks` says when two runs' difference is settled, however often one has looked. Pure.
"""

from erag_ray.sequential_test.config import SettleConfig
from erag_ray.sequential_test.design import IMPORTANCE, importance, is_drawn, probabilities, random_numbers
from erag_ray.sequential_test.estimates import ESTIMATES, Estimate, estimate, mean_interval
from erag_ray.sequential_test.looks import BOUNDARIES, Looks, critical_values, look
from erag_ray.sequential_test.sampled import Sampled
from erag_ray.sequential_test.stage import settle

__all__ = [
    "BOUNDARIES",
    "ESTIMATES",
    "IMPORTANCE",
    "Estimate",
    "Looks",
    "Sampled",
    "SettleConfig",
    "critical_values",
    "estimate",
    "importance",
    "is_drawn",
    "look",
    "mean_interval",
    "probabilities",
    "random_numbers",
    "settle",
]
