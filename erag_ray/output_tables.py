"""Responses -> OUTPUTS and COMMON_OUTPUTS: what a reader writes, before any of it is scored. Pure.

A reader that answers nothing, that copies a worked example, or that writes "Refutes" where the gold answer is "REFUTES"
scores low for reasons that no retriever can mend; these tables show it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from erag_ray.schemas import COMMON_OUTPUTS, JUDGEMENTS, OUTPUTS, RESPONSES, conform
from erag_ray.scores import JUDGED, Scoring, normalize_answer, score_named, score_outputs

SINGLE_DOCUMENT = "single_document"
"""Kind of the lists that hold one document, as eRAG reads it."""
NUM_COMMON = 10
KIND = ["dataset", "reader", "kind", "depth"]
TEXT = ["reader", "query_id", "output"]


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What is known of a reader and its datasets before it writes anything."""

    max_new_tokens: Mapping[str, int]
    """Reader -> most tokens of an output."""
    example_answers: Mapping[str, Collection[str]]
    """Reader -> answers of the worked examples in its prompt."""
    verdicts: Mapping[str, Collection[str]]
    """Dataset -> all answers that its questions can have, where they are but a few."""


def describe_outputs(
    lists: pl.DataFrame,
    requests: pl.DataFrame,
    responses: pl.DataFrame,
    queries: pl.DataFrame,
    expected: Expected,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """OUTPUTS and COMMON_OUTPUTS of the lists that were read.

    Args:
        lists: columns kind, depth, query_id, doc_ids; several rows may name one list.
        requests: REQUESTS for answers.
        responses: RESPONSES that answer them; those that ended as an error are left out.
        queries: QUERIES of the lists.
        expected: what is known of the readers and datasets.

    Raises:
        ValueError: a score is unknown.
    """
    outputs = _outputs(lists, requests, responses, queries)
    # of no readers polars makes strings
    limit = pl.col("reader").replace_strict(dict(expected.max_new_tokens)).cast(pl.Int64)
    flagged = outputs.join(_answer_flags(outputs, queries, expected), on=TEXT, how="left").with_columns(
        is_empty=pl.col("output").str.strip_chars() == "",
        is_at_limit=pl.col("num_output_tokens") >= limit,
    )
    counts = flagged.group_by(KIND).agg(
        num_outputs=pl.len(),
        num_distinct=pl.col("output").n_unique(),
        **{f"num_{flag}": pl.col(f"is_{flag}").sum() for flag in ("empty", "at_limit", "copied", "misspelt")},
    )
    table = counts.join(_majorities(queries), on="dataset").sort(KIND).select(OUTPUTS.columns.names)
    return pl.DataFrame(conform(table, OUTPUTS)), pl.DataFrame(conform(_commonest(outputs), COMMON_OUTPUTS))


def describe_judgements(
    lists: pl.DataFrame,
    requests: pl.DataFrame,
    responses: pl.DataFrame,
    queries: pl.DataFrame,
    judgements: pl.DataFrame,
) -> pl.DataFrame:
    """JUDGEMENTS of the lists whose outputs a judge scores.

    Args:
        lists: columns kind, depth, query_id, doc_ids; several rows may name one list.
        requests: REQUESTS for answers.
        responses: RESPONSES that answer them; those that ended as an error are left out.
        queries: QUERIES of the lists.
        judgements: query_id, output, value? (what the judge says of it): of all outputs about which it was asked.
    """
    outputs = _outputs(lists, requests, responses, queries.filter(judged_queries()))
    known = judgements.with_columns(is_asked=pl.lit(True))
    joined = outputs.join(known, on=["query_id", "output"], how="left")
    is_asked, value = pl.col("is_asked").fill_null(False), pl.col("value")
    counts = joined.group_by(KIND).agg(
        num_outputs=pl.len(),
        num_correct=(value == "CORRECT").sum(),
        num_incorrect=(value == "INCORRECT").sum(),
        num_abstained=(value == "ABSTAINED").sum(),
        num_unusable=(is_asked & value.is_null()).sum(),
        num_not_asked=(~is_asked).sum(),
    )
    return pl.DataFrame(conform(counts.sort(KIND), JUDGEMENTS))


def judged_queries() -> pl.Expr:
    """A condition on the columns of QUERIES: a judge scores their outputs."""
    return pl.col("score").is_in(JUDGED)


def _outputs(
    lists: pl.DataFrame, requests: pl.DataFrame, responses: pl.DataFrame, queries: pl.DataFrame
) -> pl.DataFrame:
    """Columns of `KIND`, query_id, output and num_output_tokens; a row for each distinct list of a kind."""
    distinct = lists.select("kind", "depth", "query_id", "doc_ids").unique()
    texts = responses.select(*RESPONSES.key, "output", "num_output_tokens").drop_nulls("output")
    asked = requests.drop("kind")
    answered = distinct.join(asked, on=["query_id", "doc_ids"]).join(texts, on=list(RESPONSES.key))
    datasets = queries.select("query_id", "dataset")
    return answered.join(datasets, on="query_id").select(*KIND, "query_id", "output", "num_output_tokens")


def _answer_flags(outputs: pl.DataFrame, queries: pl.DataFrame, expected: Expected) -> pl.DataFrame:
    """Columns of `TEXT`, is_copied and is_misspelt: a row for each distinct output to a question."""
    distinct = outputs.select(TEXT).unique()
    facts = queries.select("query_id", "dataset", "score", "answers")
    rows = distinct.join(facts, on="query_id", maintain_order="left").iter_rows(named=True)
    flags = [(_is_copied(row, expected), _is_misspelt(row, expected)) for row in rows]
    schema = {"is_copied": pl.Boolean, "is_misspelt": pl.Boolean}
    return distinct.hstack(pl.DataFrame(flags, schema=schema, orient="row"))


def _is_copied(row: Mapping[str, Any], expected: Expected) -> bool:
    """Whether an output repeats the answer of a worked example, which is no answer to the question."""
    plain = normalize_answer(row["output"])
    examples = map(normalize_answer, expected.example_answers.get(row["reader"], ()))
    return plain in examples and plain not in map(normalize_answer, row["answers"])


def _is_misspelt(row: Mapping[str, Any], expected: Expected) -> bool:
    """Whether an output is an answer but for case, punctuation and articles, by a score to which these matter."""
    answers = [*row["answers"], *expected.verdicts.get(row["dataset"], ())]
    if score_named(row["score"]).normalises or row["output"].strip() in answers:
        return False
    plain = normalize_answer(row["output"])
    return bool(plain) and plain in map(normalize_answer, answers)


def _majorities(queries: pl.DataFrame) -> pl.DataFrame:
    """The commonest gold answer of each dataset, the share of questions that have it, and its score as an output."""
    rows = []
    for (dataset,), part in queries.group_by("dataset"):
        counts = Counter(answer for answers in part["answers"] for answer in set(answers))
        answer, count = min(counts.items(), key=lambda item: (-item[1], item[0]))
        rows.append((dataset, answer, count / part.height, _mean_score(answer, part)))
    columns = ("dataset", "majority_answer", "majority_share", "majority_score")
    return pl.DataFrame(rows, schema=columns, orient="row")


def _mean_score(output: str, queries: pl.DataFrame) -> float | None:
    """The mean score of one output to all questions; where a score of the user's own raises, of the others."""
    values: list[float | None] = []
    for part in queries.partition_by("score"):
        ids, answers = part["query_id"].to_list(), part["answers"].to_list()
        score = score_named(part["score"][0])
        values += score_outputs([output] * part.height, answers, score, ids, Scoring())
    scores = [value for value in values if value is not None]
    return sum(scores) / len(scores) if scores else None


def _commonest(outputs: pl.DataFrame) -> pl.DataFrame:
    counts = outputs.group_by(*KIND, "output").agg(num_outputs=pl.len())
    ordered = counts.sort(*KIND, "num_outputs", "output", descending=[*[False] * len(KIND), True, False])
    numbered = ordered.with_columns(
        place=pl.int_range(1, pl.len() + 1).over(KIND),
        share=pl.col("num_outputs") / pl.col("num_outputs").sum().over(KIND),
    )
    return numbered.filter(pl.col("place") <= NUM_COMMON).select(COMMON_OUTPUTS.columns.names)
