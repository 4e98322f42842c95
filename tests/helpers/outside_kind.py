"""A kind of question from outside the package, and the annotator that asks it: ``outside_kind:ANSWERABLE``."""

import math

import polars as pl

from erag_ray.annotators import Annotator, Evidence, RequestSpec, every_pair
from erag_ray.prompts.kinds.base import Kind
from erag_ray.prompts.kinds.likelihood import continuations, likelihood_form

ABSTENTION = Kind(
    name="abstention",
    build=likelihood_form,
    answers=lambda case, gold_answers: continuations(case, ["I do not know"]),
    fold=lambda answers, response: math.exp(response.logprobs[0]),
    value=float,
)


def answerable(evidence: Evidence) -> pl.DataFrame:
    abstained = evidence.of(ABSTENTION).select("query_id", "doc_id", label=1 - pl.col("value"))
    return evidence.pairs.join(abstained, on=["query_id", "doc_id"])


ANSWERABLE = Annotator(
    name="answerable",
    function=answerable,
    applies=lambda evidence: pl.lit(True),
    kind="graded",
    requests=(RequestSpec(ABSTENTION, every_pair),),
)
