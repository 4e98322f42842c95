"""Annotators label (query, document) pairs: how useful is each document to its query? Pure.

An annotator maps an `Evidence` (tables about the pairs) to LABELS: one row per pair of the queries to which it applies.
A null label means "not judged". To add an annotator, write a function from `Evidence` to a frame of query_id, doc_id
and label (with reader and score if the label depends on them) and add it to `ANNOTATORS`. Code outside the package
defines an `Annotator` and is named as ``package.module:name``.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import polars as pl
import pyarrow as pa

from erag_ray.annotators.base import (
    PAIR,
    SUFFICES,
    Annotator,
    Evidence,
    RequestSpec,
    every_pair,
    judged_pairs,
    no_documents,
    refuse_unknown,
    score_rows,
    with_passage,
)
from erag_ray.annotators.contains import contains_answer_dpr, contains_answer_kilt
from erag_ray.annotators.erag import closed_book_answers, erag, erag_facts, fact_labels, gain, gold_likelihood
from erag_ray.annotators.relevance import (
    distracting,
    llm_relevance,
    llm_relevance_graded,
    provenance,
    udcg,
    usable,
)
from erag_ray.measures.lists import FACT_MEASURES, MEASURES, canonical_name, default_measures
from erag_ray.measures.lists import Kind as LabelKind
from erag_ray.measures.scores import SHORT_ANSWERS, score_named, score_sign
from erag_ray.prompts.kinds.answer import ANSWER, AUXILIARY_ANSWER
from erag_ray.prompts.kinds.likelihood import AUXILIARY_LIKELIHOOD, GOLD_LIKELIHOOD
from erag_ray.prompts.kinds.no_response import NO_RESPONSE
from erag_ray.prompts.kinds.relevance import RELEVANCE
from erag_ray.store.schemas import LABELS, conform
from erag_ray.support.registry import find_instance
from erag_ray.support.user_code import running

__all__ = [
    "ANNOTATORS", "PAIR", "SUFFICES", "Annotator", "Evidence", "RequestSpec", "agreement_sign", "annotate",
    "annotator_named", "applicable_queries", "closed_book_answers", "contains_answer_dpr", "every_pair",
    "fact_labels", "judged_pairs", "kind_of_labels", "label_sign", "no_documents", "request_specs",
    "requested_measures", "score_rows", "uses", "with_passage",
]  # fmt: skip


def applicable_queries(name: str, evidence: Evidence) -> pl.DataFrame:
    """Return the rows of ``evidence.queries`` that this annotator labels; the others are "not applicable".

    Raises:
        ValueError: the annotator is unknown.
        JobError: it is user code that raises.
    """
    applies = annotator_named(name).applies
    with running(f"annotators: {name}", applies):
        return evidence.queries.filter(applies(evidence))


def annotate(name: str, evidence: Evidence) -> pa.Table:
    """Return LABELS by one annotator, sorted by key: one row per pair of the queries to which it applies.

    Raises:
        ValueError: the annotator is unknown; responses that it needs are missing; a pair has an unknown query or
            document, lacks a response or is repeated; or user code returned no valid LABELS.
        JobError: it is user code that raises.
    """
    annotator = annotator_named(name)
    missing_kinds = [spec.kind.name for spec in annotator.requests if spec.kind not in evidence.values]
    if missing_kinds:
        text = f"responses of the kind {missing_kinds[0]}, but the evidence has none"
        raise ValueError(f"annotator {name!r} needs {text}")
    unknown = evidence.pairs.join(evidence.queries, on="query_id", how="anti")
    refuse_unknown(unknown, "query_id", "the queries")
    queries = applicable_queries(name, evidence)
    pairs = evidence.pairs.join(queries, on="query_id", how="semi")
    with running(f"annotators: {name}", annotator.function):
        labels = annotator.function(replace(evidence, pairs=pairs, queries=queries))
    if not isinstance(labels, pl.DataFrame):
        raise ValueError(f"annotator {name!r} returned a {type(labels).__name__}, not a polars DataFrame")
    constant = {"annotator": name, **dict.fromkeys({"reader", "score"} - annotator.fills, "")}
    filled = labels.with_columns(pl.lit(value).alias(column) for column, value in constant.items())
    # "not judged" must be a row with a null label
    missing = pairs.join(filled, on=PAIR, how="anti")
    if missing.height:
        example = missing.row(0, named=True)
        raise ValueError(f"annotator {name!r} left out {missing.height} pairs, such as {example}")
    return conform(filled.sort(LABELS.key), LABELS)


def annotator_named(name: str) -> Annotator:
    """Return the annotator ``name``, built in or ``package.module:name``; raise ValueError if there is none."""
    return find_instance("annotator", name, ANNOTATORS, Annotator, 'kind="binary"')


def request_specs(names: Sequence[str]) -> Iterator[RequestSpec]:
    """Yield the requests that these annotators need; unknown names are skipped."""
    for annotator in _known(names):
        yield from annotator.requests


def uses(names: Sequence[str], what: Literal["facts", "threshold"]) -> bool:
    """Return whether one of these annotators uses FACTS, or the job's threshold; unknown names are skipped."""
    return any(getattr(annotator, f"uses_{what}") for annotator in _known(names))


def _known(names: Sequence[str]) -> Iterator[Annotator]:
    for name in names:
        with contextlib.suppress(ValueError):
            yield annotator_named(name)


def requested_measures(
    annotator: str, names: Sequence[str] | None, kind: LabelKind, threshold: float | None
) -> list[str]:
    """Return the canonical names of the requested measures, or the default ones of labels of this kind.

    An annotator that has measures of its own gets these instead, without those of facts.
    """
    if measures := annotator_named(annotator).measures:
        return [name for name in measures if name not in FACT_MEASURES]
    return default_measures(kind, threshold) if names is None else [canonical_name(name) for name in names]


def kind_of_labels(annotator: str, score: str) -> LabelKind:
    """Return the declared kind of an annotator's labels, for queries with this score."""
    return annotator_named(annotator).kind or ("binary" if score_named(score).binary else "graded")


def label_sign(annotator: str, score: str) -> int:
    """Return 1 if larger labels are better, -1 if smaller ones are, 0 for neither; of questions with this score.

    It is 1 for user code that is not installed.
    """
    with contextlib.suppress(ValueError):
        declared = annotator_named(annotator)
        return score_sign(score) if declared.kind is None else declared.sign
    return 1


def agreement_sign(annotator: str, measure: str, score: str) -> int:
    """Return -1 where a good measure of labels agrees negatively with the score, else 1."""
    of_measure = MEASURES[measure].sign if measure in MEASURES else 1
    return (label_sign(annotator, score) or 1) * of_measure * (score_sign(score) or 1)


READER: frozenset[Literal["reader", "score"]] = frozenset({"reader"})
SCORE: frozenset[Literal["reader", "score"]] = frozenset({"score"})
ANSWERS = RequestSpec(ANSWER)
ABSTENTIONS = RequestSpec(NO_RESPONSE)
JUDGEMENTS = RequestSpec(RELEVANCE, judged_pairs)
_by_reader = functools.partial(Annotator, fills=READER)
_by_score = functools.partial(Annotator, fills=READER | SCORE)
_of_short_answers = functools.partial(
    Annotator,
    # passages are not searched for long answers and verdicts: the paper leaves out FEVER and WoW (Table 1)
    applies=lambda _: pl.col("score").str.split(":").list.first().is_in(SHORT_ANSWERS),
    applies_to="short answers, scored by exact_match or match: verdicts and dialogue are not looked for in passages",
    kind="binary",
)
_of_gold = functools.partial(
    Annotator,
    applies=lambda evidence: pl.col("query_id").is_in(evidence.provenance["query_id"].unique().implode()),
    applies_to="questions with gold pages or passages",
)

ANNOTATORS: dict[str, Annotator] = {
    annotator.name: annotator
    for annotator in (
        _by_score(name="erag", function=erag, kind=None, requests=(ANSWERS,), is_utility_of_one=True),
        _by_score(
            name="erag_facts",
            function=erag_facts,
            applies=lambda evidence: pl.col("query_id").is_in(evidence.facts["query_id"].unique().implode()),
            applies_to="questions with several facts (answers_all)",
            kind="graded",
            requests=(ANSWERS,),
            measures=tuple(FACT_MEASURES),
            uses_facts=True,
        ),
        _of_short_answers(name="contains_answer_dpr", function=contains_answer_dpr),
        _of_short_answers(name="contains_answer_kilt", function=contains_answer_kilt),
        _of_gold(name="provenance", function=provenance, kind="binary"),
        Annotator(name="llm_relevance", function=llm_relevance, kind="binary", requests=(JUDGEMENTS,)),
        Annotator(
            name="llm_relevance_graded", function=llm_relevance_graded, kind="graded", requests=(JUDGEMENTS,)
        ),
        _by_reader(
            name="gold_likelihood",
            function=gold_likelihood,
            kind="graded",
            requests=(RequestSpec(GOLD_LIKELIHOOD),),
        ),
        Annotator(
            name="erag_auxiliary",
            function=functools.partial(erag, kind=AUXILIARY_ANSWER),
            kind=None,
            requests=(RequestSpec(AUXILIARY_ANSWER),),
            fills=SCORE,
        ),
        Annotator(
            name="gold_likelihood_auxiliary",
            function=functools.partial(gold_likelihood, kind=AUXILIARY_LIKELIHOOD),
            kind="graded",
            requests=(RequestSpec(AUXILIARY_LIKELIHOOD),),
        ),
        _by_score(
            name="gain", function=gain, kind="signed", requests=(ANSWERS, RequestSpec(ANSWER, no_documents))
        ),
        _by_reader(name="usable", function=usable, kind="graded", requests=(ABSTENTIONS,)),
        _by_score(
            name="udcg",
            function=functools.partial(udcg, relevance=erag),
            kind="signed",
            requests=(ABSTENTIONS, ANSWERS),
            measures=("UDCG",),
            uses_threshold=True,
        ),
        _of_gold(
            name="udcg_provenance",
            function=functools.partial(udcg, relevance=provenance),
            kind="signed",
            requests=(ABSTENTIONS,),
            fills=READER,
            measures=("UDCG",),
        ),
        _by_score(
            name="distracting",
            function=functools.partial(distracting, relevance=erag),
            kind="binary",
            requests=(ABSTENTIONS, ANSWERS),
            measures=("P",),
            uses_threshold=True,
            sign=-1,
        ),
    )
}
