"""Rows of an export, in splits by a hash of the question's text: LABELS with their texts, and training data.

Training data for retrievers are in the form of sentence-transformers: columns ``anchor, positive, negative_1, ...,
negative_n``, all texts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
import xxhash

from erag_ray.annotators import PAIR, label_sign
from erag_ray.extras.label_export.config import ExportConfig
from erag_ray.retrieve.lists import SEARCHED
from erag_ray.support.errors import InputError

SPLITS = ("train", "validation", "test")
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


@dataclass(frozen=True, kw_only=True)
class LabelledJob:
    """Tables of a finished job by their names, with the settings behind its labels."""

    queries: pl.DataFrame
    corpus: pl.DataFrame
    runs: pl.DataFrame
    labels: pl.DataFrame
    document_outputs: pl.DataFrame
    manifest: Mapping[str, Any]
    """Of LABELS."""
    languages: tuple[str, ...]
    """Of the datasets, ISO 639-1."""
    threshold: float
    """Labels of at least this count as useful."""


def best_ranks(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the smallest rank of each document over all runs: query_id, doc_id, best_rank."""
    return runs.group_by(PAIR).agg(best_rank=pl.col("rank").min())


def label_rows(job: LabelledJob, queries: pl.DataFrame, num_rows: int) -> Iterator[pl.DataFrame]:
    """Yield the labels of some QUERIES with their texts, by `COLUMNS`, in parts of at most ``num_rows`` rows."""
    labels = job.labels.join(queries, on="query_id", how="semi")
    ranked = labels.join(best_ranks(job.runs), on=PAIR, how="left")
    questions = queries.select("query_id", "dataset", "question", "answers")
    documents = job.corpus.select("doc_id", "title", "text")
    for part in ranked.sort("query_id", "annotator", "best_rank", "doc_id").iter_slices(num_rows):
        joined = (
            part.join(questions, on="query_id", how="left", maintain_order="left")
            .join(documents, on="doc_id", how="left", maintain_order="left")
            .join(job.document_outputs, on=["reader", *PAIR], how="left", maintain_order="left")
        )
        yield joined.select(COLUMNS)


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


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """Training rows, and the number of questions behind them."""

    rows: pl.DataFrame
    """``split, anchor, positive, negative_1, ...``."""
    num_without_positive: int
    """Questions without a useful document, left out."""
    num_with_few_negatives: int
    """Questions with a useful document and too few negatives, left out."""
    num_harmful: int
    """Distinct (question, negative) that do harm, among those in the rows."""

    @property
    def negatives(self) -> list[str]:
        """Names of the columns of negatives."""
        return [name for name in self.rows.columns if name.startswith("negative_")]


def training_rows(job: LabelledJob, config: ExportConfig) -> TrainingData:
    """Make one row for each useful document of a question, with the question's ``num_negatives`` hardest negatives.

    A document is useful if its label reaches the threshold. It is a negative if its label is 0 or below, or if it does
    harm, and it is not useful. Documents of one text are one document, and questions of one text are one question.

    Raises:
        InputError: the job lacks the annotator's labels or gains, no document is useful, or no question has enough
            negatives.
    """
    documents = _documents(job, config)
    positives = documents.filter("is_useful").select("anchor", positive="passage")
    if positives.is_empty():
        text = f"no document has a label of at least {job.threshold:g} by {config.annotator}"
        raise InputError([f"job: {config.job}: {text}: there is no positive. Set a lower threshold"])
    candidates = _negatives(documents, config)
    chosen = candidates.filter(pl.col("number") <= config.num_negatives)
    lists = chosen.group_by("anchor").agg("passage", "is_harmful")
    whole = lists.filter(pl.col("passage").list.len() == config.num_negatives)
    rows = positives.join(whole, on="anchor")
    if rows.is_empty():
        raise InputError([_too_few(candidates.join(positives, on="anchor", how="semi"), config)])
    used = whole.join(positives, on="anchor", how="semi")
    num_questions, num_useful = documents["anchor"].n_unique(), positives["anchor"].n_unique()
    return TrainingData(
        rows=_as_tuples(rows, config),
        num_without_positive=num_questions - num_useful,
        num_with_few_negatives=num_useful - used.height,
        num_harmful=used.select(pl.col("is_harmful").list.sum().sum()).item(),
    )


def _documents(job: LabelledJob, config: ExportConfig) -> pl.DataFrame:
    """Return the judged documents of each question: anchor, passage, is_useful, is_negative, is_harmful, best_rank."""
    labels = job.labels.filter(annotator=config.annotator)
    if labels.is_empty():
        annotators = ", ".join(job.labels["annotator"].unique().sort())
        text = f"{config.job} has no labels by {config.annotator}, but by {annotators}"
        raise InputError([f"annotator: {text}. Choose one of these, or add it to the job's annotators"])
    if min(label_sign(config.annotator, score) for score in job.queries["score"].unique()) < 1:
        raise InputError([f"annotator: a larger label by {config.annotator} is not better. Choose another"])
    gains = job.labels.filter(annotator="gain")
    if config.harmful_only and gains.is_empty():
        text = f"{config.job} has no labels by gain, which show what does harm"
        raise InputError([f"harmful_only: {text}. Add gain to the job's annotators and start it again"])
    harmful = gains.filter(pl.col("label") < 0).select(PAIR).unique().with_columns(is_harmful=True)
    texts = job.corpus.select("doc_id", passage=SEARCHED["title_and_text"](job.corpus).str.strip_chars())
    joined = (
        labels.drop_nulls("label")
        .select(*PAIR, "label")
        .join(job.queries.select("query_id", anchor="question"), on="query_id")
        .join(texts, on="doc_id")
        .join(best_ranks(job.runs), on=PAIR)
        .join(harmful, on=PAIR, how="left")
        .with_columns(pl.col("is_harmful").fill_null(False))
    )
    return joined.group_by("anchor", "passage").agg(
        is_useful=(pl.col("label") >= job.threshold).any(),
        is_negative=((pl.col("label") <= 0) | pl.col("is_harmful")).all(),
        is_harmful=pl.col("is_harmful").any(),
        best_rank=pl.col("best_rank").min(),
    )


def _negatives(documents: pl.DataFrame, config: ExportConfig) -> pl.DataFrame:
    """Return the negatives of each question, hardest first: anchor, passage, is_harmful, number (from 1)."""
    is_negative = pl.col("is_negative") & pl.col("is_useful").not_()
    if config.harmful_only:
        is_negative &= pl.col("is_harmful")
    ordered = documents.filter(is_negative).sort(
        "anchor", pl.col("is_harmful").not_(), "best_rank", "passage"
    )
    number = pl.int_range(1, pl.len() + 1).over("anchor")
    return ordered.select("anchor", "passage", "is_harmful", number=number)


def _too_few(candidates: pl.DataFrame, config: ExportConfig) -> str:
    most = max(candidates["number"], default=0)
    kind = "do harm" if config.harmful_only else "are useless or do harm"
    text = f"no question with a useful document has {config.num_negatives} documents that {kind} (at most {most})"
    advice = (
        f"Set num_negatives to at most {most}" if most else "Compare at a greater depth, or more retrievers"
    )
    return f"num_negatives: {config.job}: {text}. {advice}"


def _as_tuples(rows: pl.DataFrame, config: ExportConfig) -> pl.DataFrame:
    """Return the rows with a column for each negative and their split, in an order by the seed alone."""
    splits = pl.Series("split", [split_of(anchor, config) for anchor in rows["anchor"]], dtype=pl.String)
    negatives = [
        pl.col("passage").list.get(index).alias(f"negative_{index + 1}")
        for index in range(config.num_negatives)
    ]
    tuples = rows.select(splits, "anchor", "positive", *negatives)
    # hashes, not a generator: the same order on any machine
    keys = [f"{config.seed}:{key!r}".encode() for key in tuples.select("anchor", "positive").iter_rows()]
    order = pl.Series("order", map(xxhash.xxh3_64_intdigest, keys), dtype=pl.UInt64)
    return tuples.with_columns(order).sort("order", "anchor", "positive").drop("order")
