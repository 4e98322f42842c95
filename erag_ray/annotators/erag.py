"""Labels by the reader with a single document: eRAG's score of its output, gain, gold likelihood."""

from dataclasses import replace

import polars as pl

from erag_ray.annotators.base import PAIR, Evidence, score_rows, values_of_pairs
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.base import Kind
from erag_ray.prompts.kinds.likelihood import GOLD_LIKELIHOOD
from erag_ray.store.schemas import FACT_LABELS

TIES = 14
"""Decimal digits of a gain: equal gains tie, and so do their means, which are compared to fewer digits."""


def erag(evidence: Evidence, kind: Kind = ANSWER) -> pl.DataFrame:
    """Return the score of the reader's output with this single document (Salemi & Zamani, SIGIR 2024, section 3).

    QUERIES.score names the score of each query. A null output gives a null label. ``kind`` is that of the output.
    """
    return _labels(evidence, evidence.queries, kind).select("reader", "score", *PAIR, "label")


def erag_facts(evidence: Evidence) -> pl.DataFrame:
    """Return the mean of `fact_labels` over the facts of a question: the share of them that a document gives."""
    labels = fact_labels(evidence).group_by("reader", "score", *PAIR, maintain_order=True)
    # a document is judged for all facts or for none
    return labels.agg(label=pl.when(pl.col("label").null_count() == 0).then(pl.col("label").mean()))


def fact_labels(evidence: Evidence) -> pl.DataFrame:
    """Return FACT_LABELS: the score of the output with a single document against the forms of one fact, in [0, 1].

    The outputs are those of `erag`: no further request. A null output gives null labels. Questions without facts have
    no rows. Raise ValueError if a pair lacks its answer, or a score is unknown.
    """
    facts = evidence.facts.join(evidence.queries.select("query_id", "score"), on="query_id")
    pairs = evidence.pairs.join(facts, on="query_id", how="semi")
    labels = _labels(replace(evidence, pairs=pairs), facts, ANSWER)
    return labels.select(FACT_LABELS.columns.names).sort(FACT_LABELS.key)


def _labels(evidence: Evidence, questions: pl.DataFrame, kind: Kind) -> pl.DataFrame:
    """Return the columns reader, score, query_id, doc_id and label, and fact if the questions have it."""
    outputs = values_of_pairs(evidence, kind).rename({"value": "output"})
    key = [name for name in ("query_id", "fact") if name in questions.columns]
    # a query's documents often lead to the same output
    distinct = outputs.select("query_id", "output").unique(maintain_order=True)
    rows = distinct.join(questions.select(key), on="query_id", maintain_order="left")
    labels = score_rows(rows, questions, evidence.scoring, key).rename({"value": "label"})
    return outputs.join(labels, on=["query_id", "output"], nulls_equal=True)


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
    return both.select("reader", "score", *PAIR, label=(pl.col("label") - pl.col("without")).round(TIES))


def closed_book_answers(evidence: Evidence) -> pl.DataFrame:
    """Count the questions that a reader answers without documents: only for these can `gain` be below 0.

    Columns are dataset, reader, num_questions, num_answered (score above 0).
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


def gold_likelihood(evidence: Evidence, kind: Kind = GOLD_LIKELIHOOD) -> pl.DataFrame:
    """Return the likelihood of the gold answers for the reader with this single document, 0 to 1.

    It is the maximum over the gold answers of the geometric mean of the token probabilities, exp(mean log-probability).
    """
    return values_of_pairs(evidence, kind).select("reader", *PAIR, label="value")
