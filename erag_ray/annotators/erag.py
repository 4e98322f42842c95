"""eRAG's labels: the score of the reader's output with a single document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from erag_ray.annotators.base import PAIR, Evidence, rows_of, values_of_pairs
from erag_ray.measures.scores import Scoring, score_named, score_outputs
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.auxiliary import AUXILIARY_ANSWER


def erag(evidence: Evidence) -> pl.DataFrame:
    """Return the score of the reader's output with this single document (Salemi & Zamani, SIGIR 2024, section 3).

    QUERIES.score names the score of each query. A null output gives a null label.

    Raises:
        ValueError: a pair lacks an answer by one of the readers; or a score is unknown or out of range.
    """
    return _labels(evidence, answers_of_pairs(evidence, evidence.pairs)).select(
        "reader", "score", *PAIR, "label"
    )


def erag_auxiliary(evidence: Evidence) -> pl.DataFrame:
    """Return the score of the auxiliary reader's output with this single document; a null output gives a null label.

    Raises:
        ValueError: a pair lacks its answer; or a score is unknown or out of range.
    """
    outputs = values_of_pairs(evidence, AUXILIARY_ANSWER, "answer by the auxiliary reader")
    return _labels(evidence, outputs.rename({"value": "output"})).select("score", *PAIR, "label")


def _labels(evidence: Evidence, outputs: pl.DataFrame) -> pl.DataFrame:
    """Add score and label to outputs: query_id, doc_id, output and others."""
    distinct = outputs.select("query_id", "output").drop_nulls("output").unique(maintain_order=True)
    queries = evidence.queries.select("query_id", "score")
    by_score = distinct.join(queries, on="query_id").partition_by("score", include_key=True)
    answers = dict(rows_of(evidence.queries, "query_id", "answers"))
    schema = {"query_id": pl.String, "output": pl.String, "label": pl.Float64}
    parts = (score_part(part, answers, evidence.scoring) for part in by_score)
    labels = pl.concat([pl.DataFrame(schema=schema), *parts])
    return outputs.join(labels, on=["query_id", "output"], how="left").join(queries, on="query_id")


def answers_of_pairs(evidence: Evidence, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the output of each reader with each pair: query_id, doc_id, reader, output (null: failed), has_response.

    Raises:
        ValueError: a pair has no response.
    """
    answers = evidence.of(ANSWER).select(*PAIR, "reader", output="value", has_response=pl.lit(True))
    grid = pairs.join(answers.select(pl.col("reader").unique()), how="cross")
    if grid.is_empty() and not pairs.is_empty():
        raise ValueError(f"there are no answers for {pairs.height} pairs")
    joined = grid.join(answers, on=[*PAIR, "reader"], how="left")
    missing = joined.filter(pl.col("has_response").is_null())
    if missing.height:
        example = missing.select(*PAIR, "reader").row(0, named=True)
        raise ValueError(f"{missing.height} pairs lack an answer, such as {example}")
    return joined


def score_part(
    part: pl.DataFrame, answers: Mapping[str, Sequence[str]], scoring: Scoring | None
) -> pl.DataFrame:
    """Return the labels of (query_id, output) rows with the same score; a null output gives a null label."""
    query_ids = part["query_id"].to_list()
    gold_answers = [answers[query_id] for query_id in query_ids]
    score = score_named(part["score"][0])
    labels = score_outputs(part["output"].to_list(), gold_answers, score, query_ids, scoring)
    return part.select("query_id", "output", pl.Series("label", labels, dtype=pl.Float64))
