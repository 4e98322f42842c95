"""Evidence about (query, document) pairs -> LABELS: how useful each document is to its query. Pure.

In: an `Evidence`, the tables an annotator may look at. Out: LABELS, one row per pair of a query to which the
annotator applies; a null label means "not judged". To add an annotator, write one function from `Evidence` to
a frame of query_id, doc_id and label (with reader and score where the label depends on them) and one line in
`ANNOTATORS`; code outside the package exports an `Annotator` and is named ``package.module:name``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pyarrow as pa

from erag_ray.annotators.base import PAIR, Annotator, Evidence, refuse_unknown, rows_of, with_passage
from erag_ray.annotators.contains import contains_answer_dpr, contains_answer_kilt, unmatchable_answers
from erag_ray.annotators.judged import SCALES, llm_relevance, llm_relevance_graded
from erag_ray.names import find
from erag_ray.schemas import LABELS, conform
from erag_ray.scores import score_named, score_outputs

__all__ = [
    "ANNOTATORS",
    "SCALES",
    "Annotator",
    "Evidence",
    "annotate",
    "annotator_named",
    "applicable_queries",
    "needs_judge",
    "unmatchable_answers",
]


# --- erag ---


def erag(evidence: Evidence) -> pl.DataFrame:
    """The score of what the reader said with this document alone (Salemi & Zamani, SIGIR 2024, section 3).

    The score is the query's own (QUERIES.score). A null output gives a null label.

    Raises:
        ValueError: a pair lacks a reading by one of the readers; or a score is unknown or out of range.
    """
    read = _readings_of_pairs(evidence)
    distinct = read.select("query_id", "output").drop_nulls("output").unique(maintain_order=True)
    queries = evidence.queries.select("query_id", "score")
    by_score = distinct.join(queries, on="query_id").partition_by("score", include_key=True)
    answers = {query_id: tuple(golds) for query_id, golds in rows_of(evidence.queries, "query_id", "answers")}
    schema = {"query_id": pl.String, "output": pl.String, "label": pl.Float64}
    labels = pl.concat([pl.DataFrame(schema=schema), *(_score_part(part, answers) for part in by_score)])
    scored = read.join(labels, on=["query_id", "output"], how="left").join(queries, on="query_id")
    return scored.select("reader", "score", *PAIR, "label")


def _readings_of_pairs(evidence: Evidence) -> pl.DataFrame:
    """One row per pair and reader. A failed reading is a row with a null output; a missing row is a fault."""
    assert evidence.readings is not None, "annotate() checks this"
    readings = evidence.readings.select(*PAIR, "reader", "output", pl.lit(True).alias("found"))
    wanted = evidence.pairs.join(readings.select(pl.col("reader").unique()), how="cross")
    if wanted.is_empty() and not evidence.pairs.is_empty():
        raise ValueError(f"there are no readings for {evidence.pairs.height} pairs")
    read = wanted.join(readings, on=[*PAIR, "reader"], how="left")
    missing = read.filter(pl.col("found").is_null())
    if missing.height:
        example = missing.select(*PAIR, "reader").row(0, named=True)
        raise ValueError(f"{missing.height} pairs lack a reading, such as {example}")
    return read


def _score_part(part: pl.DataFrame, answers: dict[str, tuple[str, ...]]) -> pl.DataFrame:
    """The labels of distinct (query_id, output) rows that share one score."""
    golds = [answers[query_id] for query_id in part["query_id"]]
    labels = score_outputs(part["output"].to_list(), golds, score_named(part["score"][0]))
    return part.select("query_id", "output", pl.Series("label", labels, dtype=pl.Float64))


# --- provenance ---


def provenance(evidence: Evidence) -> pl.DataFrame:
    """1 if the document's page is any gold page of the query, whichever answer it belongs to.

    A document without a page_id gets a null label. Not KILT's page-level R-precision, which takes one
    answer's pages at a time.

    Raises:
        ValueError: a document is not in the corpus.
    """
    gold = evidence.provenance.select("query_id", "page_id", pl.lit(1.0).alias("gold"))
    pages = with_passage(evidence.pairs, evidence.corpus, "page_id")
    label = pl.when(pl.col("page_id").is_not_null()).then(pl.col("gold").fill_null(0.0))
    joined = pages.join(gold, on=["query_id", "page_id"], how="left")
    return joined.select(*PAIR, label.alias("label"))


def _every_query(evidence: Evidence) -> pl.Expr:
    return pl.lit(True)


def _asks_exact_match(evidence: Evidence) -> pl.Expr:
    # Long answers and verdicts are not looked for in passages: the paper leaves out FEVER and WoW (Table 1).
    return pl.col("score") == "exact_match"


def _has_gold_pages(evidence: Evidence) -> pl.Expr:
    return pl.col("query_id").is_in(evidence.provenance["query_id"].unique().implode())


def applicable_queries(name: str, evidence: Evidence) -> pl.DataFrame:
    """The rows of ``evidence.queries`` that this annotator labels; the rest count as "not applicable".

    Raises:
        ValueError: no annotator has this name.
    """
    return evidence.queries.filter(annotator_named(name).applies(evidence))


def annotate(name: str, evidence: Evidence) -> pa.Table:
    """LABELS by one annotator, sorted by key: a row per pair of the queries to which it applies.

    Raises:
        ValueError: no annotator has this name; it needs readings and there are none; a pair names an unknown
            query or document, lacks a reading or comes twice; or outside code returned no LABELS table.
    """
    annotator = annotator_named(name)
    if annotator.needs_readings and evidence.readings is None:
        raise ValueError(f"annotator {name!r} needs readings, and the evidence has none")
    if annotator.needs_judge and evidence.judgements is None:
        raise ValueError(f"annotator {name!r} needs judgements, and the evidence has none")
    unknown = evidence.pairs.join(evidence.queries, on="query_id", how="anti")
    refuse_unknown(unknown, "query_id", "the queries")
    queries = applicable_queries(name, evidence)
    pairs = evidence.pairs.join(queries, on="query_id", how="semi")
    labels = annotator.function(replace(evidence, pairs=pairs, queries=queries))
    unused = {} if annotator.score_dependent else {"reader": "", "score": ""}
    constant = {"annotator": name, **unused}
    filled = labels.with_columns(pl.lit(value).alias(column) for column, value in constant.items())
    _refuse_missing(pairs, filled, name)
    return conform(filled.sort(LABELS.key), LABELS)


def _refuse_missing(pairs: pl.DataFrame, labels: pl.DataFrame, name: str) -> None:
    """A pair without a row would be taken for one that was not asked for; "not judged" is a row with a null."""
    missing = pairs.join(labels, on=PAIR, how="anti")
    if missing.height:
        raise ValueError(
            f"annotator {name!r} left out {missing.height} pairs, such as {missing.row(0, named=True)}"
        )


def annotator_named(name: str) -> Annotator:
    """The annotator called ``name``, here or as ``package.module:name``.

    Raises:
        ValueError: there is none, or the outside object is not an `Annotator`.
    """
    found = find("annotator", name, ANNOTATORS)
    if not isinstance(found, Annotator):
        raise ValueError(
            f"annotator {name!r} is a {type(found).__name__}, not an erag_ray.annotators.Annotator"
        )
    return found


def needs_judge(names: Sequence[str]) -> bool:
    """Whether one of these annotators looks at judgements; a name that there is not needs nothing."""
    found = []
    for name in names:
        with contextlib.suppress(ValueError):
            found.append(annotator_named(name).needs_judge)
    return any(found)


SPANS = "short answers, scored by exact_match: verdicts and dialogue are not looked for in passages"

ANNOTATORS: dict[str, Annotator] = {
    annotator.name: annotator
    for annotator in (
        Annotator(
            name="erag",
            function=erag,
            applies=_every_query,
            binary=None,
            needs_readings=True,
            score_dependent=True,
        ),
        Annotator(
            name="contains_answer_dpr",
            function=contains_answer_dpr,
            applies=_asks_exact_match,
            where=SPANS,
            binary=True,
        ),
        Annotator(
            name="contains_answer_kilt",
            function=contains_answer_kilt,
            applies=_asks_exact_match,
            where=SPANS,
            binary=True,
        ),
        Annotator(
            name="provenance",
            function=provenance,
            applies=_has_gold_pages,
            where="questions with gold pages",
            binary=True,
        ),
        Annotator(
            name="llm_relevance", function=llm_relevance, applies=_every_query, binary=True, needs_judge=True
        ),
        Annotator(
            name="llm_relevance_graded",
            function=llm_relevance_graded,
            applies=_every_query,
            binary=False,
            needs_judge=True,
        ),
    )
}
