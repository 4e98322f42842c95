"""Labels that the paper does not have: how likely the golds become, and what a document gains over having none."""

from __future__ import annotations

import polars as pl

from erag_ray.annotators.base import PAIR, Evidence, rows_of
from erag_ray.annotators.erag import erag, score_part

TIES = 12
"""Digits of a gain: what is left of equal scores must be 0, neither help nor harm."""


def gold_likelihood(evidence: Evidence) -> pl.DataFrame:
    """How likely the gold answers are to the reader with this document alone, 0 to 1.

    The largest over the golds of the geometric mean probability of a token, exp(mean log-probability): a monotone
    function of the mean log-probability that maps it to [0, 1].

    Raises:
        ValueError: a pair lacks its likelihood.
    """
    return _likelihoods(evidence).select("reader", *PAIR, label="likelihood")


def gain_likelihood(evidence: Evidence) -> pl.DataFrame:
    """`gold_likelihood` with the document minus without any: -1 to 1, below 0 for a document that does harm.

    Raises:
        ValueError: a pair lacks its likelihood, or a query the one without documents.
    """
    assert evidence.likelihoods is not None, "annotate() checks this"
    none = evidence.likelihoods.filter(pl.col("doc_id").is_null())
    without = none.select("query_id", without="likelihood").unique("query_id")
    return _gain(_likelihoods(evidence).rename({"likelihood": "with"}), without, ["reader"])


def gain(evidence: Evidence) -> pl.DataFrame:
    """ERAG's label with the document minus the score of the closed-book answer: -1 to 1, below 0 where it does harm.

    Raises:
        ValueError: as `erag`; or a query lacks its closed-book reading.
    """
    assert evidence.readings is not None, "annotate() checks this"
    none = evidence.readings.filter(pl.col("doc_id").is_null()).unique(["query_id", "reader"])
    said = none.join(evidence.queries.select("query_id", "score"), on="query_id")
    answers = dict(rows_of(evidence.queries, "query_id", "answers"))
    parts = [
        part.select("query_id", "reader", without=score_part(part, answers, evidence.score_errors)["label"])
        for part in said.partition_by("score")
    ]
    schema = {"query_id": pl.String, "reader": pl.String, "without": pl.Float64}
    without = pl.concat([pl.DataFrame(schema=schema), *parts])
    return _gain(erag(evidence).rename({"label": "with"}), without, ["reader", "score"])


def _likelihoods(evidence: Evidence) -> pl.DataFrame:
    """query_id, doc_id, reader and likelihood of every pair that the reader has read."""
    assert evidence.readings is not None, "annotate() checks this"
    assert evidence.likelihoods is not None, "annotate() checks this"
    read = evidence.pairs.join(evidence.readings.select(*PAIR, "reader").unique(), on=PAIR)
    found = evidence.likelihoods.select(*PAIR, "likelihood", found=pl.lit(True)).unique(PAIR)
    joined = read.join(found, on=PAIR, how="left")
    missing = joined.filter(pl.col("found").is_null())
    if missing.height:
        example = missing.select(PAIR).row(0, named=True)
        raise ValueError(f"{missing.height} pairs lack a likelihood, such as {example}")
    return joined.drop("found")


def _gain(labels: pl.DataFrame, without: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    shared = [name for name in ("query_id", "reader") if name in without.columns]
    missing = labels.join(without, on=shared, how="anti")
    if missing.height:
        example = missing["query_id"][0]
        raise ValueError(
            f"query {example!r} was not read without documents, so there is nothing to gain over"
        )
    both = labels.join(without, on=shared)
    return both.select(*names, *PAIR, label=(pl.col("with") - pl.col("without")).round(TIES))
