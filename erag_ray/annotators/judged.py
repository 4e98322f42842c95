"""Relevance by a language model that sees question and passage but no gold answer, after the paper's baseline."""

from __future__ import annotations

import polars as pl

from erag_ray.annotators.base import PAIR, Evidence
from erag_ray.kinds import RELEVANCE

SMALL = 1e-9


def llm_relevance(evidence: Evidence) -> pl.DataFrame:
    """1 if the judge finds the document relevant (the LLM baseline of Salemi & Zamani, SIGIR 2024, section 3).

    By yes and no: if yes is at least as likely; by grades: if the grade reaches the threshold. Null where the judge was
    not asked, or gave no grade.
    """
    relevant = pl.col("value") >= evidence.relevant_from - SMALL
    return _relevance(evidence).select(*PAIR, label=relevant.cast(pl.Float64))


def llm_relevance_graded(evidence: Evidence) -> pl.DataFrame:
    """How relevant the judge finds the document, 0 to 1: the probability of yes against no, or a third of the grade."""
    return _relevance(evidence).select(*PAIR, label="value")


def _relevance(evidence: Evidence) -> pl.DataFrame:
    judged = evidence.of(RELEVANCE).select(*PAIR, "value").unique(PAIR)
    return evidence.pairs.join(judged, on=PAIR, how="left")
