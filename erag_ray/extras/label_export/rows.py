"""LABELS with their texts: the rows of the dataset of labels."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from erag_ray.extras.label_export.config import ExportConfig
from erag_ray.extras.label_export.load import LabelledJob
from erag_ray.extras.label_export.splits import with_split

PAIR = ("query_id", "doc_id")
COLUMNS = (
    "dataset",
    "query_id",
    "question",
    "answers",
    "doc_id",
    "title",
    "text",
    "best_rank",
    "annotator",
    "reader",
    "score",
    "label",
    "output",
)
"""Columns of the dataset of labels, in order."""
MEANING = {
    "dataset": "dataset of the question",
    "query_id": "id of the question",
    "question": "its text",
    "answers": "its gold answers",
    "doc_id": "id of a document that a retriever returned for it",
    "title": "title of the document",
    "text": "text of the document",
    "best_rank": "smallest rank of the document in the lists of all retrievers, from 1",
    "annotator": "rule that gave the label",
    "reader": "fingerprint of the reader, if the label depends on one",
    "score": "score that compared outputs with gold answers, if the label depends on one",
    "label": "usefulness of the document to the question; null if not judged",
    "output": "output of the reader with this document alone; null if the label depends on no reader",
}


def best_ranks(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the smallest rank of each document over all runs: query_id, doc_id, best_rank."""
    return runs.group_by(PAIR).agg(best_rank=pl.col("rank").min())


def label_rows(job: LabelledJob, config: ExportConfig, split: str, num_rows: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of one split in parts of at most ``num_rows`` rows, by `COLUMNS`; nothing for an empty split."""
    queries = with_split(job.queries, config).filter(split=split)
    labels = job.labels.join(queries, on="query_id", how="semi").join(
        best_ranks(job.runs), on=PAIR, how="left"
    )
    for part in labels.sort("query_id", "annotator", "best_rank", "doc_id").iter_slices(num_rows):
        yield _with_texts(part, job)


def _with_texts(labels: pl.DataFrame, job: LabelledJob) -> pl.DataFrame:
    questions = job.queries.select("query_id", "dataset", "question", "answers")
    joined = (
        labels.join(questions, on="query_id", how="left", maintain_order="left")
        .join(job.corpus.select("doc_id", "title", "text"), on="doc_id", how="left", maintain_order="left")
        .join(job.document_outputs, on=["reader", *PAIR], how="left", maintain_order="left")
    )
    return joined.select(COLUMNS)
