"""Cropping of a passage to a window of words around evidence, an answer, or words of the question. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from erag_ray.measures.scores import has_word, whole_words

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
    """Return a window of ``num_words`` whole words.

    It contains, at a random position, one of the evidence spans in the text, else one of the answers in it (case
    insensitive, whole words); a longer span is not cut. Without either it is the window that shares the most letters
    with the question's words (ties are random).
    """
    words = [match.span() for match in WORD.finditer(text)]
    if len(words) <= num_words:
        return text
    span = _find(text, evidence, rng) or _find(text, answers, rng)
    if span is None:
        start = _most_like(question, [text[a:b] for a, b in words], num_words, rng)
        return text[words[start][0] : words[start + num_words - 1][1]]
    first, last = _words_of_span(words, span)
    low, high = max(0, last + 1 - num_words), min(first, len(words) - num_words)
    start = first if low > high else int(rng.integers(low, high + 1))
    return text[words[start][0] : words[max(start + num_words - 1, last)][1]]


def _most_like(question: str, words: Sequence[str], num_words: int, rng: np.random.Generator) -> int:
    """Return the first word of the window; words weigh by their length, as long ones are more specific."""
    question_words = set(LETTERS.findall(question.casefold()))
    shared = [sum(map(len, question_words.intersection(LETTERS.findall(word.casefold())))) for word in words]
    sums = np.convolve(shared, np.ones(num_words, int), "valid")
    return int(rng.choice(np.flatnonzero(sums == sums.max())))


def _find(text: str, spans: Sequence[str], rng: np.random.Generator) -> tuple[int, int] | None:
    """Return a random occurrence of one of the spans in the text; None without any."""
    matches = []
    for span in spans:
        if has_word(span):
            whole = whole_words(re.escape(span.strip()))
            matches += [match.span() for match in re.finditer(whole, text, re.IGNORECASE)]
    return matches[int(rng.integers(len(matches)))] if matches else None


def _words_of_span(words: Sequence[tuple[int, int]], span: tuple[int, int]) -> tuple[int, int]:
    """Return the first and last word that a span overlaps."""
    touched = [index for index, (start, end) in enumerate(words) if start < span[1] and end > span[0]]
    return touched[0], touched[-1]
