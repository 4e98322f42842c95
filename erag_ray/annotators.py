"""Evidence about (query, document) pairs -> LABELS: how useful each document is to its query. Pure.

In: an `Evidence`, the tables an annotator may look at. Out: LABELS, one row per pair of a query to which the
annotator applies; a null label means "not judged". To add an annotator, write one function from `Evidence` to
a frame of query_id, doc_id and label (with reader and score where the label depends on them) and one line in
`ANNOTATORS`; code outside the package exports an `Annotator` and is named ``package.module:name``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import polars as pl
import pyarrow as pa

from erag_ray.names import find
from erag_ray.schemas import LABELS, conform
from erag_ray.scores import normalize_answer, score_named, score_outputs

PAIR = ["query_id", "doc_id"]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What annotators may look at. Ids link the frames; extra rows in any frame but ``pairs`` do no harm."""

    pairs: pl.DataFrame
    """query_id, doc_id: the distinct pairs to label."""
    queries: pl.DataFrame
    """QUERIES; at least those of the pairs."""
    corpus: pl.DataFrame
    """CORPUS; at least the documents of the pairs, unless the annotator reads none."""
    provenance: pl.DataFrame
    """PROVENANCE: the gold pages."""
    readings: pl.DataFrame | None = None
    """query_id, doc_id, reader, output?: what each reader said with that document alone."""


@dataclass(frozen=True, kw_only=True)
class Annotator:
    """A way to label documents. Its name carries its rule, since LABELS of several rules share a table."""

    name: str
    function: Callable[[Evidence], pl.DataFrame]
    applies: Callable[[Evidence], pl.Expr]
    """A condition on the columns of QUERIES; the other queries get no rows ("not applicable")."""
    where: str = "every question"
    """In words, what it labels."""
    binary: bool | None
    """Whether labels are only 0 and 1; None: as the score of the query."""
    needs_readings: bool = False
    score_dependent: bool = False
    """The function fills the columns reader and score; otherwise both are empty strings."""


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
    answers = {query_id: tuple(golds) for query_id, golds in _rows(evidence.queries, "query_id", "answers")}
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


# --- contains_answer ---


def contains_answer_dpr(evidence: Evidence) -> pl.DataFrame:
    """1 if the tokens of an answer stand side by side in the text: the rule of DPR and FiD.

    Tokens are runs of letters, digits and marks, or single other visible characters, after NFD and in lower
    case (Karpukhin et al., EMNLP 2020; DPR ``qa_validation.py``). The title is not searched.

    Raises:
        ValueError: a document is not in the corpus.
    """
    return _contains_answer(evidence, dpr_form)


def contains_answer_kilt(evidence: Evidence) -> pl.DataFrame:
    """1 if a normalised answer is a substring of the normalised text, word boundaries or not: KILT's rule.

    So "us" is found in "house" (KILT ``eval_retrieval.py``). The title is not searched.

    Raises:
        ValueError: a document is not in the corpus.
    """
    return _contains_answer(evidence, kilt_form)


def dpr_form(texts: pl.Series) -> pl.Series:
    """Texts as tokens between single spaces, with one at either end; "" for a text without tokens.

    No token holds a space, so an answer's tokens follow each other in a passage exactly when the answer's
    form is a substring of the passage's form.
    """
    tokens = texts.str.normalize("NFD").str.extract_all(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")
    joined = tokens.list.join(" ").str.to_lowercase().alias("joined")
    form = pl.when(pl.col("joined") == "").then(pl.lit("")).otherwise(" " + pl.col("joined") + " ")
    return joined.to_frame().select(form.alias(texts.name)).to_series()


def kilt_form(texts: pl.Series) -> pl.Series:
    """Texts after `normalize_answer`."""
    return pl.Series(texts.name, [normalize_answer(text) for text in texts], dtype=pl.String)


Form = Callable[[pl.Series], pl.Series]

# Passages are brought into form this many at a time: enough to keep all cores busy, little to hold in memory.
_PASSAGES_AT_A_TIME = 20_000


def _contains_answer(evidence: Evidence, form: Form) -> pl.DataFrame:
    """Goes document by document, so that each distinct passage is brought into form once."""
    forms = _answer_forms(evidence.queries, form).filter(pl.col("form") != "")
    needles = dict(_rows(forms.group_by("query_id").agg(pl.col("form").unique()), "query_id", "form"))
    documents = evidence.pairs.group_by("doc_id", maintain_order=True).agg("query_id")
    documents = _with_passage(documents, evidence.corpus, "text")
    parts = [_contains_part(part, needles, form) for part in documents.iter_slices(_PASSAGES_AT_A_TIME)]
    schema = {"query_id": pl.String, "doc_id": pl.String, "label": pl.Float64}
    return pl.concat([pl.DataFrame(schema=schema), *parts])


def _contains_part(documents: pl.DataFrame, needles: dict[str, list[str]], form: Form) -> pl.DataFrame:
    passages = form(documents["text"])
    labels = [
        float(any(needle in passage for needle in needles.get(query_id, ())))
        for query_ids, passage in zip(documents["query_id"].to_list(), passages, strict=True)
        for query_id in query_ids
    ]
    pairs = documents.select("query_id", "doc_id").explode("query_id")
    return pairs.with_columns(pl.Series("label", labels, dtype=pl.Float64))


def _answer_forms(queries: pl.DataFrame, form: Form) -> pl.DataFrame:
    """query_id, answer, form: one row per gold answer."""
    answers = queries.select("query_id", pl.col("answers").alias("answer")).explode("answer")
    return answers.with_columns(form(answers["answer"]).alias("form"))


def unmatchable_answers(name: str, queries: pl.DataFrame) -> pl.DataFrame:
    """query_id, answer of the golds that this contains_answer rule cannot match, to be counted and named.

    They have no tokens, or normalise to nothing ("The", "!"). The published scripts find such an answer in
    every passage; here it is found in none.
    """
    form = find("contains_answer rule", name, _FORMS)
    return _answer_forms(queries, form).filter(pl.col("form") == "").drop("form")


_FORMS: dict[str, Form] = {"contains_answer_dpr": dpr_form, "contains_answer_kilt": kilt_form}


# --- provenance ---


def provenance(evidence: Evidence) -> pl.DataFrame:
    """1 if the document's page is any gold page of the query, whichever answer it belongs to.

    A document without a page_id gets a null label. Not KILT's page-level R-precision, which takes one
    answer's pages at a time.

    Raises:
        ValueError: a document is not in the corpus.
    """
    gold = evidence.provenance.select("query_id", "page_id", pl.lit(1.0).alias("gold"))
    pages = _with_passage(evidence.pairs, evidence.corpus, "page_id")
    label = pl.when(pl.col("page_id").is_not_null()).then(pl.col("gold").fill_null(0.0))
    joined = pages.join(gold, on=["query_id", "page_id"], how="left")
    return joined.select(*PAIR, label.alias("label"))


# --- what they share ---


def _with_passage(frame: pl.DataFrame, corpus: pl.DataFrame, column: str) -> pl.DataFrame:
    """``frame`` with a column of CORPUS, row for row."""
    passages = corpus.select("doc_id", column, pl.lit(True).alias("known"))
    joined = frame.join(passages, on="doc_id", how="left", maintain_order="left")
    _refuse_unknown(joined.filter(pl.col("known").is_null()), "doc_id", "the corpus")
    return joined.drop("known")


def _refuse_unknown(rows: pl.DataFrame, column: str, place: str) -> None:
    if rows.height:
        raise ValueError(f"{rows.height} rows name a {column} not in {place}, such as {rows[column][0]!r}")


def _rows(frame: pl.DataFrame, *columns: str) -> list[tuple[str, list[str]]]:
    return frame.select(columns).rows()


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
    unknown = evidence.pairs.join(evidence.queries, on="query_id", how="anti")
    _refuse_unknown(unknown, "query_id", "the queries")
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
    )
}
