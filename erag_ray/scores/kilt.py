"""The scores of KILT's official evaluation that compare words: exact match, F1, accuracy. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from erag_ray.scores.base import best_over_golds, multiset_f1
from erag_ray.scores.normalization import ARTICLES, normalized, without_punctuation

_ARTICLE_STARTS = ("", "a", "an", "t", "th", "the")


def exact_match(output: str, answers: Sequence[str]) -> float:
    """1 if the normalised output equals a normalised gold. KILT's and SQuAD's EM.

    As in KILT, "." and "The" normalise to the same nothing and match each other here; `score_outputs` leaves
    such gold_answers out.

    Raises:
        ValueError: no gold that is not blank.
    """
    return best_over_golds(lambda text, gold: normalized(text) == normalized(gold), output, answers)


def may_match_exactly(start: str, answers: Sequence[str]) -> bool:
    """Whether an output that starts with ``start`` may still be an `exact_match`.

    Lower case and the loss of punctuation go character by character (but for the final sigma, which is taken for any
    other). Articles are whole runs of word characters, and every run but the last is complete: so what stands before
    the last run is settled, and the last run too unless it is, or may become, an article. What is settled must be
    how a normalised gold starts; where it ends in a blank, its last word must end there too.
    """
    settled = _settled(_one_sigma(without_punctuation(start)))
    return any(f"{_one_sigma(normalized(gold))} ".startswith(settled) for gold in answers)


def _settled(bare: str) -> str:
    """How the normalised form of every text starts whose bare form starts with ``bare``."""
    run = re.search(r"\w*\Z", bare)
    assert run is not None, "it may be empty"
    if run[0] in _ARTICLE_STARTS:
        bare = bare[: run.start()]
    text = ARTICLES.sub(" ", bare)
    words = " ".join(text.split())
    return f"{words} " if words and text[-1].isspace() else words


def _one_sigma(text: str) -> str:
    return text.replace("\N{GREEK SMALL LETTER FINAL SIGMA}", "\N{GREEK SMALL LETTER SIGMA}")


def token_f1(output: str, answers: Sequence[str]) -> float:
    """F1 of the normalised words as multisets, so a repeated word counts as often as both have it.

    Without a common word it is 0, so a gold such as "The The" has an exact match and yet an F1 of 0.

    Raises:
        ValueError: no gold that is not blank.
    """
    return best_over_golds(
        lambda text, gold: multiset_f1(normalized(text).split(), normalized(gold).split()), output, answers
    )


def accuracy(output: str, answers: Sequence[str]) -> float:
    """1 if the output is one of the gold_answers, letter for letter: case counts (KILT's accuracy, for FEVER).

    Raises:
        ValueError: no gold that is not blank.
    """
    return best_over_golds(lambda text, gold: text == gold, output, answers)


def may_be_accurate(start: str, answers: Sequence[str]) -> bool:
    """Whether an output that starts with ``start`` may still be worth 1 by `accuracy`: blanks around it are free."""
    begun, gold_answers = start.lstrip(), [answer.strip() for answer in answers]
    return any(gold.startswith(begun) or gold == begun.rstrip() for gold in gold_answers)
