"""Labels beyond the paper: likelihood of the gold answers, and gain or harm of a document, against unrelated ones."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import polars as pl
import xxhash

from erag_ray.annotators.base import PAIR, Evidence, score_rows, values_of_pairs, with_passage
from erag_ray.annotators.contains import contains_answer_dpr
from erag_ray.annotators.erag import erag
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.likelihood import AUXILIARY_LIKELIHOOD, GOLD_LIKELIHOOD

TIES = 12
"""Decimal digits of a gain, so that the difference of equal scores is exactly 0."""
TAIL = 40
"""One in `TAIL` unrelated documents is below the noise interval and one above, so it covers 95 %."""
PER_QUESTION = 3
NUM_CANDIDATES = 8
"""Number of candidates per question for `PER_QUESTION` documents; the first unrelated ones are selected."""


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
        query_id = missing["query_id"][0]
        raise ValueError(f"query {query_id!r} has no closed-book answer, so its gain has no baseline")
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


def unrelated_pairs(evidence: Evidence, per_question: int = PER_QUESTION) -> pl.DataFrame:
    """Return up to ``per_question`` unrelated documents of each question that has pairs: columns query_id, doc_id.

    They were retrieved for other questions of its dataset and not for this one, are neither its gold documents nor of
    its gold pages, and do not contain its answers. Selection is by consistent hashing: they follow the hash of the
    question on a ring of document hashes, so most of them stay the same if another run is added.
    """
    pairs = evidence.pairs.join(evidence.queries.select("query_id", "dataset"), on="query_id")
    num_candidates = NUM_CANDIDATES + per_question - PER_QUESTION
    parts = [_following(part, num_candidates) for part in pairs.partition_by("dataset")]
    schema = {"query_id": pl.String, "doc_id": pl.String, "offset": pl.Int64}
    others = pl.concat([pl.DataFrame(schema=schema), *parts]).join(pairs, on=PAIR, how="anti")
    paged = with_passage(others, evidence.corpus, "page_id")
    for gold in (["query_id", "page_id"], PAIR):
        paged = paged.join(evidence.provenance, on=gold, how="anti")
    without = contains_answer_dpr(replace(evidence, pairs=paged.select(PAIR))).filter(pl.col("label") == 0)
    unrelated = paged.join(without, on=PAIR, how="semi").sort("query_id", "offset")
    return unrelated.group_by("query_id", maintain_order=True).head(per_question).select(PAIR)


def _following(pairs: pl.DataFrame, count: int) -> pl.DataFrame:
    """Return ``count`` documents that follow each question on the ring: columns query_id, doc_id, offset."""
    documents, queries = (pairs[name].unique() for name in ("doc_id", "query_id"))
    hashes = _hashes(documents)
    order = np.argsort(hashes)
    offsets = np.arange(min(count, len(order)))
    rows = np.searchsorted(hashes[order], _hashes(queries))[:, None] + offsets
    return pl.DataFrame(
        {
            "query_id": queries.gather(np.repeat(np.arange(len(queries)), len(offsets))),
            "doc_id": documents.gather(order[rows.ravel() % len(order)]),
            "offset": np.tile(offsets, len(queries)),
        }
    )


def _hashes(ids: pl.Series) -> np.ndarray:
    return np.fromiter((xxhash.xxh3_64_intdigest(name.encode()) for name in ids), np.uint64, len(ids))
