"""A passage -> a window of its words that keeps what shows the answer. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

WORD = re.compile(r"\S+")


def crop(
    text: str, evidence: Sequence[str], answers: Sequence[str], num_words: int, rng: np.random.Generator
) -> str:
    """A random window of ``num_words`` whole words.

    It holds one of the evidence spans that the text has, else one of the answers that it has (letter case aside, as
    whole words); a longer span is kept whole. Without either the window lies anywhere.
    """
    words = [match.span() for match in WORD.finditer(text)]
    if len(words) <= num_words:
        return text
    first, last = _held_words(words, _find(text, evidence, rng) or _find(text, answers, rng))
    low = max(0, last + 1 - num_words)
    high = min(first, len(words) - num_words) if last >= 0 else len(words) - num_words
    start = first if low > high else int(rng.integers(low, high + 1))
    end = max(start + num_words - 1, last)
    return text[words[start][0] : words[end][1]]


def _find(text: str, spans: Sequence[str], rng: np.random.Generator) -> tuple[int, int] | None:
    """Where one of the spans stands in the text: of several places one is drawn."""
    found = []
    for span in spans:
        pattern = re.escape(span.strip())
        if pattern:
            whole = rf"(?<!\w){pattern}(?!\w)"
            found += [match.span() for match in re.finditer(whole, text, re.IGNORECASE)]
    return found[int(rng.integers(len(found)))] if found else None


def _held_words(words: Sequence[tuple[int, int]], span: tuple[int, int] | None) -> tuple[int, int]:
    """The first and last word that a span touches; (0, -1) for no span."""
    if span is None:
        return 0, -1
    touched = [index for index, (start, end) in enumerate(words) if start < span[1] and end > span[0]]
    return touched[0], touched[-1]
