"""Relevance labels by an LLM judge that sees question and passage but no gold answer, after the paper's baseline."""

from __future__ import annotations

import polars as pl

from erag_ray.annotators.base import PAIR, Evidence
from erag_ray.prompts.kinds.relevance import RELEVANCE

SMALL = 1e-9


def llm_relevance(evidence: Evidence) -> pl.DataFrame:
    """Return 1 if the judge finds the document relevant, else 0: the LLM baseline of Salemi & Zamani, section 3.

    Yes/no scale: yes is at least as likely as no. Graded scale: the grade reaches the threshold. Null for pairs that
    were not judged or got no grade.
    """
    relevant = pl.col("value") >= evidence.relevant_from - SMALL
    return _relevance(evidence).select(*PAIR, label=relevant.cast(pl.Float64))


def llm_relevance_graded(evidence: Evidence) -> pl.DataFrame:
    """Return the judged relevance, 0 to 1: the probability of yes against no, or the grade (0 to 3) divided by 3."""
    return _relevance(evidence).select(*PAIR, label="value")


def _relevance(evidence: Evidence) -> pl.DataFrame:
    judged = evidence.of(RELEVANCE).select(*PAIR, "value").unique(PAIR)
    return evidence.pairs.join(judged, on=PAIR, how="left")
