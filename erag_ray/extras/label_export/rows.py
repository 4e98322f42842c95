"""The rows of the dataset of labels: LABELS with their texts, in splits by a hash of the question's text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import polars as pl
import xxhash

from erag_ray.extras.label_export.config import ExportConfig
from erag_ray.extras.label_export.load import LabelledJob

SPLITS = ("train", "validation", "test")
PAIR = ("query_id", "doc_id")
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
"""Column of the dataset of labels -> what it holds."""
COLUMNS = tuple(MEANING)


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


def question_form(question: str) -> str:
    """Return a question without case and with single spaces: questions of one form share a split."""
    return " ".join(question.casefold().split())


def split_of(question: str, config: ExportConfig) -> str:
    """Return the split of a question: it depends only on the question's form, the seed and the two fractions."""
    digest = xxhash.xxh3_64_intdigest(f"{config.seed}:{question_form(question)}".encode())
    position = digest / 2**64
    if position < config.test_fraction:
        return "test"
    return "validation" if position < config.test_fraction + config.validation_fraction else "train"


def with_split(queries: pl.DataFrame, config: ExportConfig) -> pl.DataFrame:
    """Add the column ``split`` to QUERIES."""
    splits = [split_of(question, config) for question in queries["question"]]
    return queries.with_columns(split=pl.Series(splits, dtype=pl.String))


def shuffled(rows: pl.DataFrame, columns: Iterable[str], seed: int) -> pl.DataFrame:
    """Order rows by a hash of the seed and some columns: the same order on any machine."""
    keys = rows.select(columns).rows()
    hashes = [xxhash.xxh3_64_intdigest(f"{seed}:{key!r}".encode()) for key in keys]
    order = pl.Series("order", hashes, dtype=pl.UInt64)
    return rows.with_columns(order).sort("order", *columns).drop("order")
