"""Fewer readings for the same answer: read a sample of the documents, with known probabilities, and stop when told.

`design` says which documents are read and with what probability, `estimates` makes of their labels what all labels
would have given, and `looks` says when two runs' difference is settled, however often one has looked. Pure.
"""

from __future__ import annotations

from erag_ray.sampling.design import IMPORTANCE, importance, is_drawn, probabilities, random_numbers
from erag_ray.sampling.estimates import ESTIMATES, Estimate, estimate, mean_interval
from erag_ray.sampling.looks import BOUNDARIES, Looks, critical_values, look
from erag_ray.sampling.sampled import Sampled

__all__ = [
    "BOUNDARIES",
    "ESTIMATES",
    "IMPORTANCE",
    "Estimate",
    "Looks",
    "Sampled",
    "critical_values",
    "estimate",
    "importance",
    "is_drawn",
    "look",
    "mean_interval",
    "probabilities",
    "random_numbers",
]
