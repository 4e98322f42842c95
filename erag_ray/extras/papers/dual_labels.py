"""Dual labels of the first passage: from the right document, and with the answer (Park & Lim, 2025, section 2).

``doc_label`` is 1 if the first passage of a list is from a gold page, ``word_label`` if it contains an answer. The
paper's Table 3 has their marginal, joint and conditional probabilities over questions.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from erag_ray.extras.papers.schemas import DUAL_LABELS
from erag_ray.measures.agreement import wilson_interval
from erag_ray.store.schemas import conform

PROBABILITIES = ("doc", "word", "doc_and_word", "doc_given_word", "word_given_doc")
LABEL_COLUMNS = ("dataset", "run_id", "query_id", "doc_label", "word_label")


def dual_labels(
    runs: pl.DataFrame,
    queries: pl.DataFrame,
    page_labels: pl.DataFrame,
    answer_labels: pl.DataFrame,
    names: Sequence[str],
) -> pl.DataFrame:
    """Return the labels (0, 1, or null: not judged) of every question and run, columns `LABEL_COLUMNS`.

    Both are 0 without a list.

    ``doc_label`` is null for a passage without a page.

    Args:
        runs: RUNS.
        queries: QUERIES with a gold page.
        page_labels: ``query_id, doc_id, label``: 1 if the document is from a gold page.
        answer_labels: ``query_id, doc_id, label``: 1 if the document contains an answer.
        names: names of the runs.
    """
    first = runs.filter(pl.col("rank") == 1).select("run_id", "query_id", "doc_id")
    grid = queries.select("dataset", "query_id").join(pl.DataFrame({"run_id": list(names)}), how="cross")
    labelled = grid.join(first, on=["run_id", "query_id"], how="left")
    for name, labels in (("doc_label", page_labels), ("word_label", answer_labels)):
        named = labels.select("query_id", "doc_id", pl.col("label").cast(pl.Int8).alias(name))
        label = pl.when(pl.col("doc_id").is_null()).then(0).otherwise(name)
        labelled = labelled.join(named, on=["query_id", "doc_id"], how="left").with_columns(label.alias(name))
    return labelled.select(LABEL_COLUMNS)


def dual_probabilities(labels: pl.DataFrame, confidence: float) -> pl.DataFrame:
    """Return DUAL_LABELS: each probability with its Wilson interval and number of questions.

    Questions with a null label are left out. A conditional probability is over the questions where its condition holds,
    and null if there are none.
    """
    rows = []
    for (dataset, run_id), part in labels.drop_nulls().group_by("dataset", "run_id", maintain_order=True):
        doc, word = part["doc_label"] == 1, part["word_label"] == 1
        both = int((doc & word).sum())
        counts = {
            "doc": (int(doc.sum()), part.height),
            "word": (int(word.sum()), part.height),
            "doc_and_word": (both, part.height),
            "doc_given_word": (both, int(word.sum())),
            "word_given_doc": (both, int(doc.sum())),
        }
        rows += [
            (dataset, run_id, name, *wilson_interval(*counts[name], confidence), *counts[name])
            for name in PROBABILITIES
        ]
    table = pl.DataFrame(rows, schema=pl.DataFrame(DUAL_LABELS.empty()).schema, orient="row")
    conform(table, DUAL_LABELS)
    return table
