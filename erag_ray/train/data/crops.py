"""A passage -> a window of its words that keeps what shows the answer, or what looks like it. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

WORD = re.compile(r"\S+")
LETTERS = re.compile(r"\w+")


def crop(
    text: str,
    evidence: Sequence[str],
    answers: Sequence[str],
    question: str,
    num_words: int,
    rng: np.random.Generator,
) -> str:
    """A window of ``num_words`` whole words.

    It holds one of the evidence spans that the text has, else one of the answers that it has (letter case aside, as
    whole words), at a random place; a longer span is kept whole. Without either it is the window that shares most
    letters with the question's words (of equal ones a random one).
    """
    words = [match.span() for match in WORD.finditer(text)]
    if len(words) <= num_words:
        return text
    span = _find(text, evidence, rng) or _find(text, answers, rng)
    if span is None:
        start = _most_like(question, [text[a:b] for a, b in words], num_words, rng)
        return text[words[start][0] : words[start + num_words - 1][1]]
    first, last = _held_words(words, span)
    low, high = max(0, last + 1 - num_words), min(first, len(words) - num_words)
    start = first if low > high else int(rng.integers(low, high + 1))
    return text[words[start][0] : words[max(start + num_words - 1, last)][1]]


def _most_like(question: str, words: Sequence[str], num_words: int, rng: np.random.Generator) -> int:
    """The first word of the window; a long word weighs more than a short one, which says less."""
    asked = set(LETTERS.findall(question.casefold()))
    shared = [sum(map(len, asked.intersection(LETTERS.findall(word.casefold())))) for word in words]
    sums = np.convolve(shared, np.ones(num_words, int), "valid")
    return int(rng.choice(np.flatnonzero(sums == sums.max())))


def _find(text: str, spans: Sequence[str], rng: np.random.Generator) -> tuple[int, int] | None:
    """Where one of the spans stands in the text: of several places one is drawn."""
    found = []
    for span in spans:
        pattern = re.escape(span.strip())
        if pattern:
            whole = rf"(?<!\w){pattern}(?!\w)"
            found += [match.span() for match in re.finditer(whole, text, re.IGNORECASE)]
    return found[int(rng.integers(len(found)))] if found else None


def _held_words(words: Sequence[tuple[int, int]], span: tuple[int, int]) -> tuple[int, int]:
    """The first and last word that a span touches."""
    touched = [index for index, (start, end) in enumerate(words) if start < span[1] and end > span[0]]
    return touched[0], touched[-1]
