"""Relevance by gold documents, gold pages or a judge; and UDCG and distractors (arXiv 2510.21440), which use it."""

from collections.abc import Callable

import polars as pl

from erag_ray.annotators.base import PAIR, SUFFICES, Evidence, values_of_pairs, with_passage
from erag_ray.prompts.kinds.no_response import NO_RESPONSE
from erag_ray.prompts.kinds.relevance import RELEVANCE

SMALL = 1e-9
IRRELEVANT_WEIGHT = -1 / 3
"""Weight of a document that is not relevant in UDCG; that of a relevant one is 1."""
DISTRACTS = 0.8
"""A document without use that is more usable than this is a distractor."""


def provenance(evidence: Evidence) -> pl.DataFrame:
    """Return 1 if the document is a gold document of the query, or its page a gold page, for any answer, else 0.

    Null (not judged) if the query names gold pages only and the document has no page_id. A gold document matches a
    doc_id and never a page_id. This is not KILT's page-level R-precision, which takes one answer's pages at a time.
    """
    documents = evidence.provenance.drop_nulls("doc_id").select(PAIR)
    pages = evidence.provenance.drop_nulls("page_id").select("query_id", "page_id")
    paged = with_passage(evidence.pairs, evidence.corpus, "page_id")
    joined = paged.join(documents.with_columns(is_document=True), on=PAIR, how="left")
    joined = joined.join(pages.with_columns(is_page=True), on=["query_id", "page_id"], how="left")
    is_gold = pl.col("is_document").fill_null(False) | pl.col("is_page").fill_null(False)
    names_documents = pl.col("query_id").is_in(documents["query_id"].implode())
    is_judged = is_gold | names_documents | pl.col("page_id").is_not_null()
    return joined.select(*PAIR, label=pl.when(is_judged).then(is_gold.cast(pl.Float64)))


def llm_relevance(evidence: Evidence) -> pl.DataFrame:
    """Return 1 if the judge finds the document relevant, else 0: the LLM baseline of Salemi & Zamani, section 3.

    Yes/no scale: yes is at least as likely as no. Graded scale: the grade reaches the threshold. Null for pairs that
    were not judged or got no grade.
    """
    relevant = pl.col("value") >= evidence.relevant_from - SMALL
    return _relevance(evidence).select(*PAIR, label=relevant.cast(pl.Float64))


def llm_relevance_graded(evidence: Evidence) -> pl.DataFrame:
    """Return the judged relevance, 0 to 1: the probability of yes against no, or the grade (0 to 3) divided by 3."""
    return _relevance(evidence).select(*PAIR, label="value")


def _relevance(evidence: Evidence) -> pl.DataFrame:
    judged = evidence.of(RELEVANCE).select(*PAIR, "value").unique(PAIR)
    return evidence.pairs.join(judged, on=PAIR, how="left")


def usable(evidence: Evidence) -> pl.DataFrame:
    """Return 1 minus the probability that the reader abstains with this single document, in [0, 1].

    Null where the request failed.
    """
    return values_of_pairs(evidence, NO_RESPONSE).select(pl.exclude("value"), label=1 - pl.col("value"))


def udcg(evidence: Evidence, relevance: Callable[[Evidence], pl.DataFrame]) -> pl.DataFrame:
    """Return the signed term of UDCG: `usable`, times 1 if the document is relevant, else -1/3; in [-1/3, 1].

    Relevant are ``relevance`` labels of at least the job's threshold (none: `SUFFICES`); null there gives null.
    """
    relevant = _relevant(evidence, relevance)
    weight = pl.when("relevant").then(1.0).when(pl.col("relevant").not_()).then(IRRELEVANT_WEIGHT)
    return relevant.with_columns(label=pl.col("label") * weight).drop("relevant")


def distracting(evidence: Evidence, relevance: Callable[[Evidence], pl.DataFrame]) -> pl.DataFrame:
    """Return 1 if a document is not relevant but more usable than `DISTRACTS`, else 0; as `udcg`."""
    relevant = _relevant(evidence, relevance)
    is_judged = pl.col("relevant").is_not_null()
    distracts = pl.col("relevant").not_() & (pl.col("label") > DISTRACTS)
    return relevant.with_columns(label=pl.when(is_judged).then(distracts.cast(pl.Float64))).drop("relevant")


def _relevant(evidence: Evidence, relevance: Callable[[Evidence], pl.DataFrame]) -> pl.DataFrame:
    """Return `usable` as column label, whether each document is relevant, and the columns that both fill."""
    least = SUFFICES if evidence.threshold is None else evidence.threshold
    labels = relevance(evidence)
    on = [name for name in (*PAIR, "reader") if name in labels.columns]
    return (
        usable(evidence)
        .join(labels.rename({"label": "relevant"}), on=on, how="left")
        .with_columns(relevant=pl.col("relevant") >= least)
    )
