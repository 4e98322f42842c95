"""eRAG's label of each fact, for questions whose gold answers are several facts: no further request."""

from __future__ import annotations

import polars as pl

from erag_ray.annotators.base import PAIR, Evidence
from erag_ray.annotators.erag import answers_of_pairs
from erag_ray.measures.scores import score_named, score_outputs
from erag_ray.store.schemas import FACT_LABELS

ON = ["query_id", "output"]


def erag_facts(evidence: Evidence) -> pl.DataFrame:
    """Return the mean of `fact_labels` over the facts of a question: the share of them that a document gives.

    Raises:
        ValueError: as `fact_labels`.
    """
    labels = fact_labels(evidence).group_by("reader", "score", *PAIR, maintain_order=True)
    # a document is judged for all facts or for none
    return labels.agg(label=pl.when(pl.col("label").null_count() == 0).then(pl.col("label").mean()))


def fact_labels(evidence: Evidence) -> pl.DataFrame:
    """Return FACT_LABELS: the score of the output with a single document against the forms of one fact, in [0, 1].

    The outputs are those of eRAG's labels (Salemi & Zamani, SIGIR 2024), and QUERIES.score names the score. A null
    output gives null labels. Questions without facts have no rows.

    Raises:
        ValueError: there are no facts; a pair lacks an answer by one of the readers; or a score is unknown.
    """
    if evidence.facts is None:
        raise ValueError("there are no facts")
    pairs = evidence.pairs.join(evidence.facts, on="query_id", how="semi")
    outputs = answers_of_pairs(evidence, pairs)
    queries = evidence.queries.select("query_id", "score")
    distinct = outputs.select(ON).unique(maintain_order=True).join(queries, on="query_id")
    by_fact = distinct.join(evidence.facts, on="query_id")
    empty = pl.DataFrame(schema={**by_fact.schema, "label": pl.Float64})
    parts = [_scored(part, evidence) for part in by_fact.partition_by("score", maintain_order=True)]
    labels = pl.concat([empty, *parts])
    joined = outputs.join(labels, on=ON, nulls_equal=True)
    return joined.select(FACT_LABELS.columns.names).sort(FACT_LABELS.key)


def _scored(part: pl.DataFrame, evidence: Evidence) -> pl.DataFrame:
    """Add the column ``label`` to rows with the same score."""
    columns = part["output"].to_list(), part["answers"].to_list()
    score = score_named(part["score"][0])
    labels = score_outputs(*columns, score, part["query_id"].to_list(), evidence.scoring)
    return part.with_columns(pl.Series("label", labels, dtype=pl.Float64))
