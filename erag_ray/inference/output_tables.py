"""Folding of responses into values, and tables about raw outputs: OUTPUTS, COMMON_OUTPUTS and JUDGEMENTS. Pure.

A reader that answers nothing, that copies a worked example, or that writes "Refutes" where the gold answer is "REFUTES"
scores low for reasons that no retriever can change; these tables show it.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from erag_ray.inference.planning.pending import Use, Uses
from erag_ray.measures.scores import MARKUP, Scoring, normalize_answer, score_named, score_outputs
from erag_ray.prompts.kinds.base import Kind, Value
from erag_ray.prompts.request import Response
from erag_ray.store.schemas import COMMON_OUTPUTS, OUTPUTS, RESPONSES, frame_schema
from erag_ray.support.user_code import running

SINGLE_DOCUMENT = "single_document"
"""Kind of the lists of one document, as in eRAG."""
NUM_COMMON = 10
KIND = ["dataset", "reader", "kind", "depth"]
TEXT = ["reader", "query_id", "output"]
ANSWERS = frame_schema("kind depth run_id query_id doc_ids reader output num_prompt_tokens num_output_tokens")
"""Outputs that are given for lists of a kind; null where one is missing."""
NO_ANSWERS = pl.DataFrame(schema=ANSWERS)
Values = Mapping[Kind, pl.DataFrame]
"""Kind of request -> query_id, doc_id? (null: without documents), reader, value? (from `fold`).

Of `ANSWER_JUDGE`: query_id, output, value?."""


def fold(uses: Uses, requests: pl.DataFrame, responses: pl.DataFrame, queries: pl.DataFrame) -> Values:
    """Return the values of each kind of request with one document or none."""
    single_document = requests.filter(pl.col("doc_ids").list.len() <= 1)
    facts = queries.select("query_id", "dataset", gold_answers="answers")
    joined = single_document.with_columns(doc_id=pl.col("doc_ids").list.first()).join(facts, on="query_id")
    answered = joined.join(responses, on=list(RESPONSES.key))
    parts: dict[Kind, list[pl.DataFrame]] = {}
    for (name, dataset), use in uses.items():
        rows = answered.filter(kind=name, dataset=dataset)
        dtype = pl.String if use.kind.value is str else pl.Float64
        value = pl.Series("value", _folded(use, rows), dtype=dtype)
        parts.setdefault(use.kind, []).append(rows.select("query_id", "doc_id", "reader", value))
    return {kind: pl.concat(frames) for kind, frames in parts.items()}


def _folded(use: Use, rows: pl.DataFrame) -> pl.Series | list[Value]:
    fold_one = use.kind.fold
    if fold_one is None:
        return rows["output"]
    columns = rows.select("gold_answers", "output", "logprobs", "num_answer_tokens", "error").iter_rows()
    with running(f"kind {use.kind.name}: fold", fold_one):
        return [
            None
            if error is not None
            else fold_one(
                use.answers(gold_answers),
                Response(text=text, logprobs=tuple(values), num_answer_tokens=tuple(counts)),
            )
            for gold_answers, text, values, counts, error in columns
        ]


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Limits, examples and answer sets against which outputs are compared."""

    max_new_tokens: Mapping[str, int | None]
    """By reader: the largest number of tokens of an output; None for a reader that knows no such limit."""
    example_answers: Mapping[str, Collection[str]]
    """By reader: answers of the worked examples in its prompt."""
    verdicts: Mapping[str, Collection[str]]
    """By dataset with a closed set of answers: all of them."""


def outputs_of(
    lists: pl.DataFrame,
    requests: pl.DataFrame,
    responses: pl.DataFrame,
    queries: pl.DataFrame,
    given: pl.DataFrame = NO_ANSWERS,
) -> pl.DataFrame:
    """Return the outputs to lists of the QUERIES that have a response; a row for each distinct list of a kind.

    Lists have the columns kind, depth, query_id, doc_ids; several rows may name one. ``given`` are `ANSWERS` to further
    lists. The result has the columns of `KIND`, query_id, output and num_output_tokens, without errors.
    """
    distinct = lists.select("kind", "depth", "query_id", "doc_ids").unique()
    texts = responses.select(*RESPONSES.key, "output", "num_output_tokens").drop_nulls("output")
    keys = requests.drop("kind")
    requested = distinct.join(keys, on=["query_id", "doc_ids"]).join(texts, on=list(RESPONSES.key))
    columns = ["kind", "depth", "reader", "query_id", "output", "num_output_tokens"]
    outputs = pl.concat([requested.select(columns), given.select(columns).drop_nulls("output")])
    datasets = queries.select("query_id", "dataset")
    return outputs.join(datasets, on="query_id").select(*KIND, "query_id", "output", "num_output_tokens")


def describe_outputs(
    outputs: pl.DataFrame, queries: pl.DataFrame, expected: Expected
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return OUTPUTS and COMMON_OUTPUTS of `outputs_of` the queries; raise ValueError if a score is unknown."""
    # without any reader polars would infer strings
    limit = pl.col("reader").replace_strict(
        dict(expected.max_new_tokens), default=None, return_dtype=pl.Int64
    )
    is_empty = pl.col("output").str.strip_chars() == ""
    flagged = outputs.join(_answer_flags(outputs, queries, expected), on=TEXT, how="left").with_columns(
        is_empty=is_empty,
        is_marked_up=pl.any_horizontal(pl.col("output").str.contains(pattern) for pattern in MARKUP.values()),
        # some servers count no tokens
        is_at_limit=pl.when(is_empty | (pl.col("num_output_tokens") > 0)).then(
            pl.col("num_output_tokens") >= limit
        ),
    )
    counts = flagged.group_by(KIND).agg(
        num_outputs=pl.len(),
        num_distinct=pl.col("output").n_unique(),
        num_at_limit=pl.when(pl.col("is_at_limit").count() > 0).then(pl.col("is_at_limit").sum()),
        **{
            f"num_{flag}": pl.col(f"is_{flag}").sum() for flag in ("empty", "copied", "misspelt", "marked_up")
        },
    )
    table = counts.join(_majorities(queries), on="dataset").sort(KIND).select(OUTPUTS.columns.names)
    return table, _most_common(outputs)


def describe_judgements(outputs: pl.DataFrame, judgements: pl.DataFrame) -> pl.DataFrame:
    """Return JUDGEMENTS of `outputs_of` the queries whose outputs a judge scores.

    ``judgements`` has query_id, output, value? (the judge's verdict): one row for each output that the judge graded.
    """
    graded = judgements.with_columns(is_graded=pl.lit(True))
    joined = outputs.join(graded, on=["query_id", "output"], how="left")
    is_graded, value = pl.col("is_graded").fill_null(False), pl.col("value")
    counts = joined.group_by(KIND).agg(
        num_outputs=pl.len(),
        num_correct=(value == "CORRECT").sum(),
        num_incorrect=(value == "INCORRECT").sum(),
        num_abstained=(value == "ABSTAINED").sum(),
        num_unusable=(is_graded & value.is_null()).sum(),
        num_not_asked=(~is_graded).sum(),
    )
    return counts.sort(KIND)


def _answer_flags(outputs: pl.DataFrame, queries: pl.DataFrame, expected: Expected) -> pl.DataFrame:
    """Return the columns of `TEXT`, is_copied and is_misspelt: a row for each distinct output to a question."""
    distinct = outputs.select(TEXT).unique()
    questions = queries.select("query_id", "dataset", "score", "answers")
    rows = distinct.join(questions, on="query_id", maintain_order="left").iter_rows(named=True)
    flags = [(_is_copied(row, expected), _is_misspelt(row, expected)) for row in rows]
    schema = {"is_copied": pl.Boolean, "is_misspelt": pl.Boolean}
    return distinct.hstack(pl.DataFrame(flags, schema=schema, orient="row"))


def _is_copied(row: Mapping[str, Any], expected: Expected) -> bool:
    """Return whether an output repeats the answer of a worked example, and is no gold answer."""
    output = normalize_answer(row["output"])
    examples = map(normalize_answer, expected.example_answers.get(row["reader"], ()))
    return output in examples and output not in map(normalize_answer, row["answers"])


def _is_misspelt(row: Mapping[str, Any], expected: Expected) -> bool:
    """Return whether an output differs from an answer only in case, punctuation or articles, and so scores 0."""
    answers = [*row["answers"], *expected.verdicts.get(row["dataset"], ())]
    if row["score"] != "accuracy" or row["output"].strip() in answers:
        return False
    output = normalize_answer(row["output"])
    return bool(output) and output in map(normalize_answer, answers)


def _majorities(queries: pl.DataFrame) -> pl.DataFrame:
    """Return each dataset's most common gold answer, the share of questions with it, and its mean score as output."""
    rows = []
    for (dataset,), questions in queries.group_by("dataset"):
        counts = Counter(answer for answers in questions["answers"] for answer in set(answers))
        answer, count = min(counts.items(), key=lambda item: (-item[1], item[0]))
        rows.append((dataset, answer, count / questions.height, _mean_score(answer, questions)))
    columns = ("dataset", "majority_answer", "majority_share", "majority_score")
    return pl.DataFrame(rows, schema=columns, orient="row")


def _mean_score(output: str, queries: pl.DataFrame) -> float | None:
    """Return the mean score of one output to all questions; those for which user code raises are left out."""
    values: list[float | None] = []
    for questions in queries.partition_by("score"):
        ids, answers = questions["query_id"].to_list(), questions["answers"].to_list()
        score = score_named(questions["score"][0])
        values += score_outputs([output] * questions.height, answers, score, ids, Scoring())
    scores = [value for value in values if value is not None]
    return sum(scores) / len(scores) if scores else None


def _most_common(outputs: pl.DataFrame) -> pl.DataFrame:
    counts = outputs.group_by(*KIND, "output").agg(num_outputs=pl.len())
    ordered = counts.sort(*KIND, "num_outputs", "output", descending=[*[False] * len(KIND), True, False])
    ranked = ordered.with_columns(
        place=pl.int_range(1, pl.len() + 1).over(KIND),
        share=pl.col("num_outputs") / pl.col("num_outputs").sum().over(KIND),
    )
    return ranked.filter(pl.col("place") <= NUM_COMMON).select(COMMON_OUTPUTS.columns.names)
