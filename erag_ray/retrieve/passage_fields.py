"""What of a passage is searched. A new one is one function and one line in `SEARCHED`."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

FIRST_SENTENCE = r"(?s)^(.*?\w{2,}\p{Pe}?[.!?][\p{Pe}\p{Pf}'\"]*)(?:\s|$)"


def title_and_text(corpus: pl.DataFrame) -> pl.Series:
    """The title and the whole passage."""
    return corpus.select(pl.concat_str("title", "text", separator=" ")).to_series()


def title_and_first_sentence(corpus: pl.DataFrame) -> pl.Series:
    """The title and the passage up to its first sentence mark after a word of two letters (so not after an initial).

    Without such a mark it is the whole passage. An abbreviation ("Dr. ") ends the sentence too early.
    """
    first = pl.col("text").str.strip_chars().str.extract(FIRST_SENTENCE).fill_null(pl.col("text"))
    return corpus.select(pl.concat_str("title", first, separator=" ")).to_series()


SEARCHED: dict[str, Callable[[pl.DataFrame], pl.Series]] = {
    "title_and_text": title_and_text,
    "title_and_first_sentence": title_and_first_sentence,
}
