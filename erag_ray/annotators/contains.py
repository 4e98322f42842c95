"""Whether a passage holds an answer, by two published rules."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from erag_ray.annotators.base import Evidence, rows_of, with_passage
from erag_ray.scores import normalize_answer


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
    answers = evidence.queries.select("query_id", form="answers").explode("form")
    forms = answers.with_columns(form(answers["form"])).filter(pl.col("form") != "")
    needles = dict(rows_of(forms.group_by("query_id").agg(pl.col("form").unique()), "query_id", "form"))
    documents = evidence.pairs.group_by("doc_id", maintain_order=True).agg("query_id")
    documents = with_passage(documents, evidence.corpus, "text")
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
