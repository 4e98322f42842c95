"""Annotators that check whether a passage contains an answer, by two published rules."""

from collections.abc import Callable

import polars as pl

from erag_ray.annotators.base import Evidence, with_passage
from erag_ray.measures.scores import UNSPACED, has_word, normalize_answer


def contains_answer_dpr(evidence: Evidence) -> pl.DataFrame:
    """Return 1 if the tokens of an answer are consecutive in the text, else 0: the rule of DPR and FiD.

    Tokens are runs of letters, digits and marks, or single other visible characters, after NFD and in lower
    case (Karpukhin et al., EMNLP 2020; DPR ``qa_validation.py``). Unlike there, characters of scripts without spaces
    and of Hangul (`UNSPACED`) are tokens of their own, and an answer that is only signs matches nothing. The title is
    not searched.
    """
    return _contains_answer(evidence, dpr_form)


def contains_answer_kilt(evidence: Evidence) -> pl.DataFrame:
    """Return 1 if a normalised answer is a substring of the normalised text, else 0: KILT's rule.

    Word boundaries are ignored: "us" matches "house" (KILT ``eval_retrieval.py``). The title is not searched.
    """
    return _contains_answer(evidence, kilt_form)


# a syllable of Hangul, which NFD takes apart; another character of `UNSPACED` with its marks; DPR's two alternatives
_DPR_TOKENS = (
    rf"[\u1100-\u115f][\u1160-\u11a7]*[\u11a8-\u11ff]*|[{UNSPACED}]\p{{M}}*|[[\p{{L}}\p{{N}}\p{{M}}]--[{UNSPACED}]]+"
    r"|[^\p{Z}\p{C}]"
)


def dpr_form(texts: pl.Series) -> pl.Series:
    """Return texts as tokens separated and surrounded by single spaces; "" for a text without tokens.

    No token contains a space, so the tokens of an answer are consecutive in a passage exactly if the answer's form is a
    substring of the passage's form.
    """
    tokens = texts.str.normalize("NFD").str.extract_all(_DPR_TOKENS)
    joined = tokens.list.join(" ").str.to_lowercase().alias("joined")
    form = pl.when(pl.col("joined") == "").then(pl.lit("")).otherwise(" " + pl.col("joined") + " ")
    return joined.to_frame().select(form.alias(texts.name)).to_series()


def kilt_form(texts: pl.Series) -> pl.Series:
    """Return texts normalised by `normalize_answer`."""
    return pl.Series(texts.name, [normalize_answer(text) for text in texts], dtype=pl.String)


# Passages are normalised in batches of this size: enough to keep all cores busy, with little memory.
_PASSAGES_AT_A_TIME = 20_000


def _contains_answer(evidence: Evidence, form: Callable[[pl.Series], pl.Series]) -> pl.DataFrame:
    """Label by document, so that each distinct passage is normalised once."""
    answers = evidence.queries.select("query_id", form="answers").explode("form").drop_nulls()
    answers = answers.filter(pl.Series(map(has_word, answers["form"]), dtype=pl.Boolean))
    forms = answers.with_columns(form(answers["form"])).filter(pl.col("form") != "")
    needles = dict(forms.group_by("query_id").agg(pl.col("form").unique()).iter_rows())
    documents = evidence.pairs.group_by("doc_id", maintain_order=True).agg("query_id")
    documents = with_passage(documents, evidence.corpus, "text")
    labels = [
        float(any(needle in passage for needle in needles.get(query_id, ())))
        for part in documents.iter_slices(_PASSAGES_AT_A_TIME)
        for query_ids, passage in zip(part["query_id"].to_list(), form(part["text"]), strict=True)
        for query_id in query_ids
    ]
    pairs = documents.select("query_id", "doc_id").explode("query_id")
    return pairs.with_columns(pl.Series("label", labels, dtype=pl.Float64))
