"""Notes and warnings on where gains can show that a document does harm, and on their noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from erag_ray.analyses.contract import Analysis, Results
from erag_ray.analyses.parts.model import Note
from erag_ray.annotators import TAIL
from erag_ray.store.schemas import LABELS

MIN_SHARE, MIN_QUESTIONS = 0.1, 20
"""Minimum share and number of questions answered closed-book. Below the share, `gain` misses nine of ten harmful
documents; below the number, the 95 % Wilson interval of a share is wider than 20 points either way."""
Rows = Sequence[Mapping[str, Any]]


def harm_notes(closed_book: Rows, noise: Rows) -> Iterator[str]:
    """Yield a line for each dataset and kind of gain.

    Args:
        closed_book: rows of `closed_book_answers`, if `gain` is among the annotators.
        noise: rows of `likelihood_noise`, if `gain_likelihood` is.
    """
    for row in closed_book:
        text = "gain can fall below 0 only on the questions that the reader answers without documents"
        yield f"{row['dataset']}: {text}, {_share(row)}"
    for row in (row for row in noise if row["num_pairs"]):
        yield (
            f"{row['dataset']}: gain_likelihood is 0 where the gold answers are {_factor(row['low'])} to "
            f"{_factor(row['high'])} times as likely as is usual with documents unrelated to the question: "
            f"the noise of {row['num_pairs']:,} such documents"
        )


def harm_warnings(closed_book: Rows, noise: Rows) -> Iterator[str]:
    """Yield warnings about datasets with too little data to detect harm; arguments as in `harm_notes`."""
    for row in closed_book:
        answered = row["num_answered"]
        if answered < MIN_QUESTIONS or answered < MIN_SHARE * row["num_questions"]:
            yield (
                f"{row['dataset']}: gain can show harm on {_share(row)} only: the reader answers no others without "
                "documents, and there gain is never below 0. gain_likelihood does not need such answers"
            )
    for row in noise:
        start, pairs = f"{row['dataset']}: gain_likelihood:", row["num_pairs"]
        if not pairs:
            yield f"{start} there are no documents unrelated to a question, so every label is null. Use more questions"
        elif pairs < TAIL - 1:
            yield (
                f"{start} the noise is estimated from {pairs} unrelated documents, fewer than {TAIL - 1}, so more than "
                "5 % of them exceed it. Use more questions"
            )


def _share(row: Mapping[str, Any]) -> str:
    answered, questions = row["num_answered"], row["num_questions"]
    return f"{answered:,} of {questions:,} questions ({answered / questions:.1%})"


def _factor(bound: float) -> str:
    return f"{math.exp(bound):#.3g}"


def show_all(results: Results) -> Iterator[Note]:
    """Yield notes and warnings about the annotators ``gain`` and ``gain_likelihood``, if the job has them."""
    closed_book, noise = (results.config(LABELS).get(name, []) for name in ("closed_book", "noise"))
    yield from (Note(text=text) for text in harm_notes(closed_book, noise))
    yield from (Note(text=text, is_warning=True) for text in harm_warnings(closed_book, noise))


ANALYSIS = Analysis(shows=(LABELS,), show_all=show_all)
