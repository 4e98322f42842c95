"""eRAG's labels: the score of the reader's output with a single document, for all gold answers or for each fact."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from erag_ray.annotators.base import PAIR, Evidence, score_rows, values_of_pairs
from erag_ray.prompts.kinds.answer import ANSWER, AUXILIARY_ANSWER
from erag_ray.prompts.kinds.base import Kind
from erag_ray.store.schemas import FACT_LABELS


def erag(evidence: Evidence) -> pl.DataFrame:
    """Return the score of the reader's output with this single document (Salemi & Zamani, SIGIR 2024, section 3).

    QUERIES.score names the score of each query. A null output gives a null label.
    """
    return _labels(evidence, evidence.queries, ANSWER).select("reader", "score", *PAIR, "label")


def erag_auxiliary(evidence: Evidence) -> pl.DataFrame:
    """Return the score of the auxiliary reader's output with this single document; a null output gives a null label."""
    return _labels(evidence, evidence.queries, AUXILIARY_ANSWER).select("score", *PAIR, "label")


def erag_facts(evidence: Evidence) -> pl.DataFrame:
    """Return the mean of `fact_labels` over the facts of a question: the share of them that a document gives."""
    labels = fact_labels(evidence).group_by("reader", "score", *PAIR, maintain_order=True)
    # a document is judged for all facts or for none
    return labels.agg(label=pl.when(pl.col("label").null_count() == 0).then(pl.col("label").mean()))


def fact_labels(evidence: Evidence) -> pl.DataFrame:
    """Return FACT_LABELS: the score of the output with a single document against the forms of one fact, in [0, 1].

    The outputs are those of `erag`: no further request. A null output gives null labels. Questions without facts have
    no rows.

    Raises:
        ValueError: there are no facts; a pair lacks its answer; or a score is unknown.
    """
    if evidence.facts is None:
        raise ValueError("there are no facts")
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
