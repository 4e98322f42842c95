"""How usable a document looks to the reader, and whether it is relevant: UDCG and distractors (arXiv 2510.21440)."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from erag_ray.annotators.base import PAIR, SUFFICES, Evidence, values_of_pairs
from erag_ray.prompts.kinds.no_response import NO_RESPONSE

IRRELEVANT_WEIGHT = -1 / 3
"""Weight of a document that is not relevant in UDCG; that of a relevant one is 1."""
DISTRACTS = 0.8
"""A document without use that is more usable than this is a distractor."""


def usable(evidence: Evidence) -> pl.DataFrame:
    """Return 1 minus the probability that the reader abstains with this single document, in [0, 1].

    Null where the request failed.
    """
    values = values_of_pairs(evidence, NO_RESPONSE)
    return values.select(pl.exclude("value"), label=1 - pl.col("value"))


def udcg(evidence: Evidence, relevance: Callable[[Evidence], pl.DataFrame]) -> pl.DataFrame:
    """Return the signed term of UDCG: `usable`, times 1 if the document is relevant, else -1/3; in [-1/3, 1].

    Args:
        evidence: with the responses that both need.
        relevance: annotator whose labels of at least the job's threshold (none: `SUFFICES`) are relevant. Null there
            gives null.
    """
    relevant = _relevant(evidence, relevance)
    weight = pl.when("relevant").then(1.0).when(pl.col("relevant").not_()).then(IRRELEVANT_WEIGHT)
    return relevant.with_columns(label=pl.col("label") * weight).drop("relevant")


def distracting(evidence: Evidence, relevance: Callable[[Evidence], pl.DataFrame]) -> pl.DataFrame:
    """Return 1 if a document is not relevant but more usable than `DISTRACTS`, else 0; as `udcg`."""
    relevant = _relevant(evidence, relevance)
    is_judged = pl.col("relevant").is_not_null()
    distracts = pl.col("relevant").not_() & (pl.col("label") > DISTRACTS)
    return relevant.with_columns(label=pl.when(is_judged).then(distracts.cast(pl.Float64))).drop("relevant")


def _relevant(evidence: Evidence, relevance: Callable[[Evidence], pl.DataFrame]) -> pl.DataFrame:
    """Return `usable` as column label, whether each document is relevant, and the columns that both fill."""
    least = SUFFICES if evidence.threshold is None else evidence.threshold
    labels = relevance(evidence)
    on = [name for name in (*PAIR, "reader") if name in labels.columns]
    return (
        usable(evidence)
        .join(labels.rename({"label": "relevant"}), on=on, how="left")
        .with_columns(relevant=pl.col("relevant") >= least)
    )
