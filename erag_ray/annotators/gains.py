"""Labels that the paper does not have: how likely the gold answers become, and what a document gains or harms."""

from __future__ import annotations

import sys

import polars as pl

from erag_ray.annotators.base import PAIR, Evidence, rows_of
from erag_ray.annotators.erag import erag, score_part
from erag_ray.annotators.unrelated import unrelated_pairs
from erag_ray.kinds import ANSWER, GOLD_LIKELIHOOD

TIES = 12
"""Digits of a gain: what is left of equal scores must be 0, neither help nor harm."""
TAIL = 40
"""One in so many unrelated documents lies below the noise, and as many above: it holds 95 % of them."""


def gold_likelihood(evidence: Evidence) -> pl.DataFrame:
    """How likely the gold answers are to the reader with this document alone, 0 to 1.

    The largest over the gold answers of the geometric mean probability of a token, exp(mean log-probability): a
    monotone function of the mean log-probability that maps it to [0, 1].

    Raises:
        ValueError: a pair lacks its likelihood.
    """
    return _likelihoods(evidence).select("reader", *PAIR, label="likelihood")


def gain_likelihood(evidence: Evidence) -> pl.DataFrame:
    """`gold_likelihood` minus what it is with unrelated documents, -1 to 1: below 0 for a document that does harm.

    Any document in the prompt moves the likelihood. So a gain counts from the geometric mean of the likelihoods with
    the question's unrelated documents, and is 0 where the quotient of the two lies within `likelihood_noise`. Null for
    a question without unrelated documents.

    Raises:
        ValueError: a pair lacks its likelihood.
    """
    usual = _unrelated(evidence).select("query_id", "dataset", "usual").unique()
    joined = _likelihoods(evidence).join(usual, on="query_id", how="left")
    joined = joined.join(likelihood_noise(evidence), on="dataset", how="left")
    is_noise = (_log("likelihood") - pl.col("usual")).is_between("low", "high")
    gain = (pl.col("likelihood") - pl.col("usual").exp()).round(TIES)
    # a null is neither in nor out
    label = pl.when(is_noise).then(0.0).when(is_noise.not_()).then(gain)
    return joined.select("reader", *PAIR, label=label)


def likelihood_noise(evidence: Evidence) -> pl.DataFrame:
    """How far unrelated documents move the log-likelihood of the gold answers: columns dataset, low, high, num_pairs.

    The bounds hold 95 % of the documents, or all of fewer than `TAIL` - 1. A document is compared with the mean of n
    others, so each of the n lies (with its own value in that mean) closer to it, by sqrt((n - 1) / (n + 1)).
    """
    size, place = pl.col("size"), (pl.len() + 1) // TAIL
    deviation = (pl.col("log") - pl.col("usual")) * ((size + 1) / (size - 1)).sqrt()
    known = _unrelated(evidence).filter(size > 1).select("dataset", deviation=deviation)
    bounds = known.group_by("dataset").agg(
        low=pl.col("deviation").sort().get(place.clip(1) - 1),
        high=pl.col("deviation").sort(descending=True).get(place.clip(1) - 1),
        num_pairs=pl.len(),
    )
    datasets = evidence.queries.select(pl.col("dataset").unique().sort())
    joined = datasets.join(bounds, on="dataset", how="left", maintain_order="left")
    return joined.with_columns(pl.col("num_pairs").fill_null(0))


def _unrelated(evidence: Evidence) -> pl.DataFrame:
    """Unrelated documents with their likelihood.

    Returns:
        query_id, dataset, log (of the likelihood), usual (its mean over the question's documents), size (their number).
    """
    known = evidence.of(GOLD_LIKELIHOOD).select(*PAIR, log=_log("value")).unique(PAIR).drop_nulls()
    pairs = unrelated_pairs(evidence).join(known, on=PAIR)
    named = pairs.join(evidence.queries.select("query_id", "dataset"), on="query_id")
    over = {"usual": pl.col("log").mean(), "size": pl.len().cast(pl.Int64)}
    return named.with_columns(value.over("query_id").alias(name) for name, value in over.items())


def _log(column: str) -> pl.Expr:
    """The logarithm of a likelihood; that of 0 is finite."""
    return pl.col(column).clip(sys.float_info.min).log()


def gain(evidence: Evidence) -> pl.DataFrame:
    """ERAG's label with the document minus the score of the closed-book answer: -1 to 1, below 0 where it does harm.

    Raises:
        ValueError: as `erag`; or a query lacks its closed-book answer.
    """
    without = _closed_book_scores(evidence)
    missing = evidence.pairs.join(without, on="query_id", how="anti")
    if missing.height:
        example = missing["query_id"][0]
        raise ValueError(
            f"query {example!r} was not asked without documents, so there is nothing to gain over"
        )
    both = erag(evidence).join(without, on=["query_id", "reader"])
    difference = (pl.col("label") - pl.col("without")).round(TIES)
    return both.select("reader", "score", *PAIR, label=difference)


def closed_book_answers(evidence: Evidence) -> pl.DataFrame:
    """How many questions a reader answers without documents: only on these can `gain` fall below 0.

    Returns:
        dataset, reader, num_questions, num_answered (a score above 0).
    """
    scores = _closed_book_scores(evidence).join(evidence.queries.select("query_id", "dataset"), on="query_id")
    counts = {"num_questions": pl.len(), "num_answered": (pl.col("without") > 0).sum()}
    return scores.group_by("dataset", "reader").agg(**counts).sort("dataset", "reader")


def _closed_book_scores(evidence: Evidence) -> pl.DataFrame:
    """query_id, reader, without: the score of the answer without documents; null where the request failed."""
    outputs = evidence.of(ANSWER).rename({"value": "output"})
    none = outputs.filter(pl.col("doc_id").is_null()).unique(["query_id", "reader"])
    named = none.join(evidence.queries.select("query_id", "score"), on="query_id")
    answers = dict(rows_of(evidence.queries, "query_id", "answers"))
    parts = [
        part.select("query_id", "reader", without=score_part(part, answers, evidence.scoring)["label"])
        for part in named.partition_by("score")
    ]
    schema = {"query_id": pl.String, "reader": pl.String, "without": pl.Float64}
    return pl.concat([pl.DataFrame(schema=schema), *parts])


def _likelihoods(evidence: Evidence) -> pl.DataFrame:
    """query_id, doc_id, reader and likelihood of every pair."""
    found = evidence.of(GOLD_LIKELIHOOD).unique([*PAIR, "reader"])
    known = found.select(*PAIR, "reader", likelihood="value", found=pl.lit(True))
    joined = evidence.pairs.join(known, on=PAIR, how="left")
    missing = joined.filter(pl.col("found").is_null())
    if missing.height:
        example = missing.select(PAIR).row(0, named=True)
        raise ValueError(f"{missing.height} pairs lack a likelihood, such as {example}")
    return joined.drop("found")
