"""Labels beyond the paper: likelihood of the gold answers, and gain or harm of a document."""

from __future__ import annotations

import sys

import polars as pl

from erag_ray.annotators.base import PAIR, Evidence, score_rows, values_of_pairs
from erag_ray.annotators.erag import erag
from erag_ray.annotators.unrelated import unrelated_pairs
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.likelihood import AUXILIARY_LIKELIHOOD, GOLD_LIKELIHOOD

TIES = 12
"""Decimal digits of a gain, so that the difference of equal scores is exactly 0."""
TAIL = 40
"""One in `TAIL` unrelated documents is below the noise interval and one above, so it covers 95 %."""


def gold_likelihood(evidence: Evidence) -> pl.DataFrame:
    """Return the likelihood of the gold answers for the reader with this single document, 0 to 1.

    It is the maximum over the gold answers of the geometric mean of the token probabilities, exp(mean log-probability).
    """
    return values_of_pairs(evidence, GOLD_LIKELIHOOD).select("reader", *PAIR, label="value")


def gold_likelihood_auxiliary(evidence: Evidence) -> pl.DataFrame:
    """Return `gold_likelihood` for the auxiliary reader."""
    return values_of_pairs(evidence, AUXILIARY_LIKELIHOOD).select(*PAIR, label="value")


def gain_likelihood(evidence: Evidence) -> pl.DataFrame:
    """Return `gold_likelihood` minus its value with unrelated documents, -1 to 1: below 0 the document does harm.

    Any document in the prompt changes the likelihood. So the baseline is the geometric mean of the likelihoods with the
    question's unrelated documents, and the gain is 0 where the ratio of the two is within `likelihood_noise`. Null for
    a question without unrelated documents.
    """
    usual = _unrelated(evidence).select("query_id", "dataset", "usual").unique()
    joined = values_of_pairs(evidence, GOLD_LIKELIHOOD).join(usual, on="query_id", how="left")
    joined = joined.join(likelihood_noise(evidence), on="dataset", how="left")
    is_noise = (_log("value") - pl.col("usual")).is_between("low", "high")
    gain = (pl.col("value") - pl.col("usual").exp()).round(TIES)
    # a null ratio gives a null label
    label = pl.when(is_noise).then(0.0).when(is_noise.not_()).then(gain)
    return joined.select("reader", *PAIR, label=label)


def likelihood_noise(evidence: Evidence) -> pl.DataFrame:
    """Return how much unrelated documents change the log-likelihood of the gold answers.

    The bounds cover 95 % of the unrelated documents, or all if there are fewer than `TAIL` - 1. A retrieved document is
    compared with the mean of n others, but each of the n with a mean that includes itself. Its deviation is smaller by
    sqrt((n - 1) / (n + 1)), and is scaled up accordingly.

    Returns:
        Columns dataset, low, high, num_pairs.
    """
    size, rank = pl.col("size"), (pl.len() + 1) // TAIL
    deviation = (pl.col("log") - pl.col("usual")) * ((size + 1) / (size - 1)).sqrt()
    deviations = _unrelated(evidence).filter(size > 1).select("dataset", deviation=deviation)
    bounds = deviations.group_by("dataset").agg(
        low=pl.col("deviation").sort().get(rank.clip(1) - 1),
        high=pl.col("deviation").sort(descending=True).get(rank.clip(1) - 1),
        num_pairs=pl.len(),
    )
    datasets = evidence.queries.select(pl.col("dataset").unique().sort())
    joined = datasets.join(bounds, on="dataset", how="left", maintain_order="left")
    return joined.with_columns(pl.col("num_pairs").fill_null(0))


def _unrelated(evidence: Evidence) -> pl.DataFrame:
    """Return the unrelated documents with their likelihood.

    Returns:
        query_id, dataset, log (log-likelihood), usual (its mean over the question's documents), size (their number).
    """
    likelihoods = evidence.of(GOLD_LIKELIHOOD).select(*PAIR, log=_log("value")).unique(PAIR).drop_nulls()
    pairs = unrelated_pairs(evidence).join(likelihoods, on=PAIR)
    named = pairs.join(evidence.queries.select("query_id", "dataset"), on="query_id")
    statistics = {"usual": pl.col("log").mean(), "size": pl.len().cast(pl.Int64)}
    return named.with_columns(value.over("query_id").alias(name) for name, value in statistics.items())


def _log(column: str) -> pl.Expr:
    """Return the logarithm of a likelihood; finite for 0."""
    return pl.col(column).clip(sys.float_info.min).log()


def gain(evidence: Evidence) -> pl.DataFrame:
    """Return eRAG's label minus the score of the closed-book answer: -1 to 1, below 0 the document does harm.

    Raises:
        ValueError: a query lacks its closed-book answer.
    """
    without = _closed_book_scores(evidence)
    missing = evidence.pairs.join(without, on="query_id", how="anti")
    if missing.height:
        example = missing["query_id"][0]
        raise ValueError(f"query {example!r} has no closed-book answer, so its gain has no baseline")
    both = erag(evidence).join(without, on=["query_id", "reader"])
    difference = (pl.col("label") - pl.col("without")).round(TIES)
    return both.select("reader", "score", *PAIR, label=difference)


def closed_book_answers(evidence: Evidence) -> pl.DataFrame:
    """Count the questions that a reader answers without documents: only for these can `gain` be below 0.

    Returns:
        Columns dataset, reader, num_questions, num_answered (score above 0).
    """
    scores = _closed_book_scores(evidence).join(evidence.queries.select("query_id", "dataset"), on="query_id")
    counts = {"num_questions": pl.len(), "num_answered": (pl.col("without") > 0).sum()}
    return scores.group_by("dataset", "reader").agg(**counts).sort("dataset", "reader")


def _closed_book_scores(evidence: Evidence) -> pl.DataFrame:
    """Return the score of the closed-book answer: query_id, reader, without (null if the request failed)."""
    outputs = evidence.of(ANSWER).rename({"value": "output"})
    closed_book = outputs.filter(pl.col("doc_id").is_null()).unique(["query_id", "reader"])
    scored = score_rows(closed_book, evidence.queries, evidence.scoring)
    return scored.select("query_id", "reader", without="value")
