"""Splits of questions into train, validation and test, by a hash of their texts."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
import xxhash

from erag_ray.extras.label_export.config import ExportConfig

SPLITS = ("train", "validation", "test")


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
