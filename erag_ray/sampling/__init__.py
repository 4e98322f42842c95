"""Fewer readings for the same answer: read a sample of the documents, with known probabilities, and stop when told.

`design` says which documents are read and with what probability, and what all labels would have given; `looks` says
when two runs' difference is settled, however often one has looked. Pure.
"""

from __future__ import annotations

from erag_ray.sampling.design import (
    IMPORTANCE,
    estimate,
    importance,
    is_drawn,
    probabilities,
    random_numbers,
)
from erag_ray.sampling.looks import BOUNDARIES, Looks, critical_values, look

__all__ = [
    "BOUNDARIES",
    "IMPORTANCE",
    "Looks",
    "critical_values",
    "estimate",
    "importance",
    "is_drawn",
    "look",
    "probabilities",
    "random_numbers",
]
