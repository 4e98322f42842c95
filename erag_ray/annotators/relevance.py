"""Relevance labels: by gold documents and pages, and by an LLM judge without gold answers (the paper's baseline)."""

from __future__ import annotations

import polars as pl

from erag_ray.annotators.base import PAIR, Evidence, with_passage
from erag_ray.prompts.kinds.relevance import RELEVANCE

SMALL = 1e-9


def provenance(evidence: Evidence) -> pl.DataFrame:
    """Return 1 if the document is a gold document of the query, or its page a gold page, for any answer, else 0.

    Null (not judged) if the query names gold pages only and the document has no page_id. A gold document matches a
    doc_id and never a page_id. This is not KILT's page-level R-precision, which takes one answer's pages at a time.
    """
    documents = evidence.provenance.drop_nulls("doc_id").select(PAIR)
    pages = evidence.provenance.drop_nulls("page_id").select("query_id", "page_id")
    paged = with_passage(evidence.pairs, evidence.corpus, "page_id")
    joined = paged.join(documents.with_columns(is_document=True), on=PAIR, how="left").join(
        pages.with_columns(is_page=True), on=["query_id", "page_id"], how="left"
    )
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
