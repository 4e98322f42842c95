"""Relevance by a language model that sees question and passage but no gold answer, after the paper's baseline."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import polars as pl

from erag_ray.annotators.base import PAIR, Evidence

SMALL = 1e-9
MAX_GRADE = 3
GRADE = re.compile(r"\D*([0-3])(?!\d)")


def llm_relevance(evidence: Evidence) -> pl.DataFrame:
    """1 if the judge finds the document relevant (the LLM baseline of Salemi & Zamani, SIGIR 2024, section 3).

    By yes and no: if yes is at least as likely; by grades: if the grade reaches the threshold. Null where the judge was
    not asked, or gave no grade.
    """
    relevant = pl.col("relevance") >= evidence.relevant_from - SMALL
    return _relevance(evidence).select(*PAIR, label=relevant.cast(pl.Float64))


def llm_relevance_graded(evidence: Evidence) -> pl.DataFrame:
    """How relevant the judge finds the document, 0 to 1: the probability of yes against no, or a third of the grade."""
    return _relevance(evidence).select(*PAIR, label="relevance")


def _relevance(evidence: Evidence) -> pl.DataFrame:
    assert evidence.judgements is not None, "annotate() checks this"
    return evidence.pairs.join(evidence.judgements.select(*PAIR, "relevance"), on=PAIR, how="left")


def share(output: str) -> float | None:
    """What a judge by yes and no writes: the probability of yes; None for what is no number."""
    found = float(output)
    return found if math.isfinite(found) else None


def grade(output: str) -> float | None:
    """The first number in what was written, as a share of the highest grade; None where it is no grade from 0 to 3."""
    found = GRADE.match(output)
    return int(found[1]) / MAX_GRADE if found else None


SCALES: dict[str, Callable[[str], float | None]] = {"yes_no": share, "grades": grade}
"""How a judge answers -> what its output says about relevance, 0 to 1."""
