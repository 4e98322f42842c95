"""Recheck of models whose responses may differ: a sample is asked again, and outputs and scores are compared.

The sample runs after the new requests, by the same readers. Its requests have keys of their own, so that both responses
are in the store.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from erag_ray.inference.planning.pending import Uses
from erag_ray.inference.planning.plan import ModelPlan, StagePlan
from erag_ray.measures.scores import JUDGED, score_named, score_outputs
from erag_ray.prompts.request import Form, Response, question_key
from erag_ray.store.responses import KEY_COLUMNS, ResponseStore

PASSAGES_KEY = "passages_key"


class Sample(NamedTuple):
    """New requests of a model that are asked for again: PENDING."""

    table: pa.Table
    forms: Sequence[Form]
    """Of the model's requests, and then of these."""
    keys: pl.DataFrame
    """Columns question_key and passages_key of the first response, and again, the question_key of the second."""


def sample_of(plan: ModelPlan, fraction: float, seed: int) -> Sample | None:
    """Return a random sample of a model's new requests, rounded up; None if it is empty."""
    count = math.ceil(fraction * plan.new.height)
    if not count:
        return None
    rows = np.sort(np.random.default_rng(seed).choice(plan.new.height, count, replace=False))
    table, again = plan.make_requests(plan.new[rows]), [form.again for form in plan.forms]
    fields = (table.column(name).to_pylist() for name in ("form", "question", "answers"))
    keys = [
        question_key(again[form], question, tuple(answers))
        for form, question, answers in zip(*fields, strict=True)
    ]
    first = pl.DataFrame({name: table.column(name).to_numpy() for name in KEY_COLUMNS})
    of_again = {"question_key": pa.array(keys, pa.uint64()), "form": pc.add(table["form"], len(again))}
    for name, column in of_again.items():
        table = table.set_column(table.column_names.index(name), table.schema.field(name), column)
    numbered = first.with_columns(again=pl.Series(keys, dtype=pl.UInt64))
    return Sample(table=table, forms=[*plan.forms, *again], keys=numbered)


def recheck(sample: Sample, store: ResponseStore, responses: pl.DataFrame, plan: StagePlan) -> str:
    """Compare the responses to a sample with the first ones, RESPONSES of its model; return the counts in words.

    Requests that are an error now or were one before are not compared; for others nothing of ``max_cost`` was left.
    """
    second = sample.keys.select(pl.col("again").alias("question_key"), PASSAGES_KEY)
    responses_again = store.lookup(second).select(
        PASSAGES_KEY,
        again=pl.col("question_key"),
        text=pl.col("output"),
        has_failed=pl.col("error").is_not_null(),
    )
    rechecked = sample.keys.join(responses_again, on=["again", PASSAGES_KEY], maintain_order="left")
    before = responses.select(*KEY_COLUMNS, "output", "error")
    both = rechecked.join(before, on=KEY_COLUMNS, maintain_order="left")
    compared = both.filter(~pl.col("has_failed"), pl.col("error").is_null())
    differ = compared.filter(~pl.col("text").eq_missing(pl.col("output")))
    # with the first question that has an output
    firsts = plan.requests.unique(KEY_COLUMNS, keep="first", maintain_order=True)
    rows = differ.join(firsts.select(*KEY_COLUMNS, "kind", "query_id"), on=KEY_COLUMNS)
    facts = plan.queries.select("query_id", "dataset", "answers", "score")
    changed = [_is_changed(row, plan.uses) for row in rows.join(facts, on="query_id").iter_rows(named=True)]
    num_judged, num_errors = changed.count(None), both.height - compared.height
    num_unsent = sample.keys.height - both.height
    counts = f"{differ.height:,} outputs and {changed.count(True):,} scores"
    sentences = {
        f"Rechecked: {both.height:,} requests; {counts} differ.": True,
        f"The judge scores {num_judged:,} of these outputs, and its scores are not compared.": num_judged,
        f"{num_errors:,} of the requests are errors, and are not compared.": num_errors,
        f"{num_unsent:,} more were not sent again: max_cost is spent.": num_unsent,
    }
    return " ".join(filter(sentences.get, sentences))


def _is_changed(row: Mapping[str, Any], uses: Uses) -> bool | None:
    """Return whether the values of two outputs differ; None if a judge would have to score them."""
    outputs, use = [row["output"], row["text"]], uses.get((row["kind"], row["dataset"]))
    if use is not None and (fold := use.kind.fold):
        answers = use.answers(row["answers"])
        before, after = (None if text is None else fold(answers, Response(text=text)) for text in outputs)
    elif row["score"] in JUDGED:
        return None
    else:
        before, after = score_outputs(outputs, [row["answers"]] * 2, score_named(row["score"]))
    return before != after
