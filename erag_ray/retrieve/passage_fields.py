"""Searched fields of a passage. A new choice is one function and one line in `SEARCHED`."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

FIRST_SENTENCE = r"(?s)^(.*?\w{2,}\p{Pe}?[.!?][\p{Pe}\p{Pf}'\"]*)(?:\s|$)"


def title_and_text(corpus: pl.DataFrame) -> pl.Series:
    return corpus.select(pl.concat_str("title", "text", separator=" ")).to_series()


def title_and_first_sentence(corpus: pl.DataFrame) -> pl.Series:
    """Return title and first sentence of each passage.

    The sentence ends at the first mark after a word of at least two letters (so not after an initial); without one it
    is the whole passage. An abbreviation ("Dr. ") ends the sentence too early.
    """
    first = pl.col("text").str.strip_chars().str.extract(FIRST_SENTENCE).fill_null(pl.col("text"))
    return corpus.select(pl.concat_str("title", first, separator=" ")).to_series()


SEARCHED: dict[str, Callable[[pl.DataFrame], pl.Series]] = {
    "title_and_text": title_and_text,
    "title_and_first_sentence": title_and_first_sentence,
}
