"""Responses -> what each kind of request came to: the values that annotators and scores get. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from erag_ray.kinds import ANSWER, EARLY_STOPPED, VERDICT, Kind, Value
from erag_ray.planning import Use, Uses
from erag_ray.requests import Response
from erag_ray.schemas import RESPONSES
from erag_ray.user_code import running

INSTEAD_OF_ANSWERS = (EARLY_STOPPED, VERDICT)
"""Kinds that give the score of an answer without all of its text."""
Values = Mapping[Kind, pl.DataFrame]
"""Kind of question -> query_id, doc_id? (null: without any document), reader, value?: what was folded (`fold`).

Of `ANSWER_JUDGE`: query_id, output, value?."""


def fold(uses: Uses, requests: pl.DataFrame, responses: pl.DataFrame, queries: pl.DataFrame) -> Values:
    """What each kind of question came to, about single documents and about none.

    What was asked for its score alone stands for the answer.

    Args:
        uses: how each kind was asked.
        requests: REQUESTS.
        responses: RESPONSES that answer them.
        queries: QUERIES.
    """
    alone = requests.filter(pl.col("doc_ids").list.len() <= 1)
    facts = queries.select("query_id", "dataset", gold_answers="answers")
    joined = alone.with_columns(doc_id=pl.col("doc_ids").list.first()).join(facts, on="query_id")
    answered = joined.join(responses, on=list(RESPONSES.key))
    parts: dict[Kind, list[pl.DataFrame]] = {}
    replaced = {dataset for (_, dataset), use in uses.items() if use.kind in INSTEAD_OF_ANSWERS}
    for pair, use in uses.items():
        if use.kind is ANSWER and pair[1] in replaced:
            continue
        rows = answered.filter(kind=pair[0], dataset=pair[1])
        kind = ANSWER if use.kind in INSTEAD_OF_ANSWERS else use.kind
        value = pl.Series("value", _folded(use, rows), dtype=pl.String if kind.value is str else pl.Float64)
        parts.setdefault(kind, []).append(rows.select("query_id", "doc_id", "reader", value))
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
