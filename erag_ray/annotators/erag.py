"""eRAG's own labels: the score of what the reader writes with one document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from erag_ray.annotators.base import PAIR, Evidence, rows_of
from erag_ray.kinds import ANSWER
from erag_ray.scores import Scoring, score_named, score_outputs


def erag(evidence: Evidence) -> pl.DataFrame:
    """The score of what the reader wrote with this document alone (Salemi & Zamani, SIGIR 2024, section 3).

    The score is the query's own (QUERIES.score). A null output gives a null label.

    Raises:
        ValueError: a pair lacks an answer by one of the readers; or a score is unknown or out of range.
    """
    read = _answers_of_pairs(evidence)
    distinct = read.select("query_id", "output").drop_nulls("output").unique(maintain_order=True)
    queries = evidence.queries.select("query_id", "score")
    by_score = distinct.join(queries, on="query_id").partition_by("score", include_key=True)
    answers = dict(rows_of(evidence.queries, "query_id", "answers"))
    schema = {"query_id": pl.String, "output": pl.String, "label": pl.Float64}
    parts = (score_part(part, answers, evidence.scoring) for part in by_score)
    labels = pl.concat([pl.DataFrame(schema=schema), *parts])
    scored = read.join(labels, on=["query_id", "output"], how="left").join(queries, on="query_id")
    return scored.select("reader", "score", *PAIR, "label")


def _answers_of_pairs(evidence: Evidence) -> pl.DataFrame:
    """One row per pair and reader. A failed request is a row with a null output; a missing row is a fault."""
    answers = evidence.of(ANSWER).select(*PAIR, "reader", output="value", found=pl.lit(True))
    wanted = evidence.pairs.join(answers.select(pl.col("reader").unique()), how="cross")
    if wanted.is_empty() and not evidence.pairs.is_empty():
        raise ValueError(f"there are no answers for {evidence.pairs.height} pairs")
    read = wanted.join(answers, on=[*PAIR, "reader"], how="left")
    missing = read.filter(pl.col("found").is_null())
    if missing.height:
        example = missing.select(*PAIR, "reader").row(0, named=True)
        raise ValueError(f"{missing.height} pairs lack an answer, such as {example}")
    return read


def score_part(
    part: pl.DataFrame, answers: Mapping[str, Sequence[str]], scoring: Scoring | None
) -> pl.DataFrame:
    """The labels of (query_id, output) rows that share one score; a null output gives a null label."""
    query_ids = part["query_id"].to_list()
    gold_answers = [answers[query_id] for query_id in query_ids]
    score = score_named(part["score"][0])
    labels = score_outputs(part["output"].to_list(), gold_answers, score, query_ids, scoring)
    return part.select("query_id", "output", pl.Series("label", labels, dtype=pl.Float64))
