"""Dual labels of the first passage: from the right document, and with the answer (Park & Lim, 2025, section 2).

``doc_label`` is 1 if the first passage of a list is from a gold page, ``word_label`` if it contains an answer. The
paper's Table 3 has their marginal, joint and conditional probabilities over questions.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from erag_ray.analyses.parts.model import Format, Table
from erag_ray.analyses.parts.shapes import across, columns, estimate, names, part_name, plain
from erag_ray.extras.papers.published import published_table_3
from erag_ray.measures.agreement import wilson_interval
from erag_ray.store.schemas import conform, table_schema

DUAL_LABELS = table_schema(
    "dual_labels", "dataset* run_id* probability* value? low? high? num_positive num_queries"
)
PROBABILITIES = ("doc", "word", "doc_and_word", "doc_given_word", "word_given_doc")
HEADS = ("P(Doc)", "P(Word)", "P(Doc \u2229 Word)", "P(Doc | Word)", "P(Word | Doc)")
LABEL_COLUMNS = ("dataset", "run_id", "query_id", "doc_label", "word_label")


def dual_labels(
    runs: pl.DataFrame,
    queries: pl.DataFrame,
    page_labels: pl.DataFrame,
    answer_labels: pl.DataFrame,
    run_ids: Sequence[str],
) -> pl.DataFrame:
    """Return the labels (0, 1, or null: not judged) of every question and run, columns `LABEL_COLUMNS`.

    Both are 0 without a list.

    ``doc_label`` is null for a passage without a page.

    Args:
        runs: RUNS.
        queries: QUERIES with a gold page.
        page_labels: ``query_id, doc_id, label``: 1 if the document is from a gold page.
        answer_labels: ``query_id, doc_id, label``: 1 if the document contains an answer.
        run_ids: names of the runs.
    """
    first = runs.filter(pl.col("rank") == 1).select("run_id", "query_id", "doc_id")
    grid = queries.select("dataset", "query_id").join(pl.DataFrame({"run_id": list(run_ids)}), how="cross")
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


def dual_tables(table: pl.DataFrame, confidence: float) -> list[Table]:
    """Return a table per dataset of DUAL_LABELS in the layout of Park & Lim's Table 3, then their table."""
    measured = [
        _of_dataset(str(name[0]), part, confidence)
        for name, part in table.group_by("dataset", maintain_order=True)
    ]
    return [*measured, published_table_3(HEADS)]


def _of_dataset(dataset: str, part: pl.DataFrame, confidence: float) -> Table:
    rows = []
    for run in part["run_id"].unique(maintain_order=True).to_list():
        probabilities = part.filter(run_id=run)
        cells = {row["probability"]: estimate(row) for row in probabilities.iter_rows(named=True)}
        rows.append((*plain(run), *across(cells, PROBABILITIES)))
    count = int(part.filter(probability="doc")["num_queries"][0])
    return Table(
        name=part_name("dual_labels", dataset),
        title=f"{dataset}: the best passage of {count:,} questions, by document and by word",
        columns=(*names("model"), *columns(HEADS, Format.NUMBER_4)),
        rows=tuple(rows),
        caption=f"With {confidence:.0%} Wilson intervals. A conditional probability is over the questions where its "
        "condition holds; a dash where it never does. A question without a list has neither.",
        is_main=True,
        dataset=dataset,
    )
