"""Folding of responses into the values of each kind of request, the input of annotators and scores. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from erag_ray.inference.planning.pending import Use, Uses
from erag_ray.prompts.kinds.base import Kind, Value
from erag_ray.prompts.request import Response
from erag_ray.store.schemas import RESPONSES
from erag_ray.support.user_code import running

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
