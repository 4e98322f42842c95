"""The scores of KILT's official evaluation that compare words: exact match, F1, accuracy. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from erag_ray.measures.scores.base import best_over_gold_answers, multiset_f1
from erag_ray.measures.scores.normalization import ARTICLES, normalized, without_punctuation

_ARTICLE_STARTS = ("", "a", "an", "t", "th", "the")


def exact_match(output: str, answers: Sequence[str]) -> float:
    """Return 1 if the normalised output equals a normalised gold answer, else 0: KILT's and SQuAD's EM.

    As in KILT, "." and "The" both normalise to "" and match each other here; `score_outputs` leaves such gold answers
    out.
    """
    return best_over_gold_answers(lambda text, gold: normalized(text) == normalized(gold), output, answers)


def may_match_exactly(start: str, answers: Sequence[str]) -> bool:
    """Return whether an output that starts with ``start`` may still be an `exact_match`.

    Lower-casing and removing punctuation work character by character (except for the final sigma, which is treated as
    a sigma). Articles are whole runs of word characters, and every run but the last is complete. So the text before the
    last run is final, and the last run too unless it is, or may become, an article. A normalised gold answer must start
    with this final text; if the text ends in a blank, the gold answer must have a word boundary there.
    """
    prefix = _final_prefix(_fold_sigma(without_punctuation(start)))
    return any(f"{_fold_sigma(normalized(gold))} ".startswith(prefix) for gold in answers)


def _final_prefix(start: str) -> str:
    """Return the prefix that all texts starting with ``start`` (lower case, no punctuation) have when normalised."""
    run = re.search(r"\w*\Z", start)
    assert run is not None, "the pattern matches the empty string"
    if run[0] in _ARTICLE_STARTS:
        start = start[: run.start()]
    text = ARTICLES.sub(" ", start)
    words = " ".join(text.split())
    return f"{words} " if words and text[-1].isspace() else words


def _fold_sigma(text: str) -> str:
    return text.replace("\N{GREEK SMALL LETTER FINAL SIGMA}", "\N{GREEK SMALL LETTER SIGMA}")


def token_f1(output: str, answers: Sequence[str]) -> float:
    """Return the F1 of the normalised words as multisets: a repeated word counts as often as it occurs in both.

    Without a common word it is 0, so a gold answer such as "The The" has an exact match and yet an F1 of 0.
    """
    return best_over_gold_answers(
        lambda text, gold: multiset_f1(normalized(text).split(), normalized(gold).split()), output, answers
    )


def accuracy(output: str, answers: Sequence[str]) -> float:
    """Return 1 if the output equals a gold answer exactly, case included, else 0: KILT's accuracy, for FEVER."""
    return best_over_gold_answers(lambda text, gold: text == gold, output, answers)


def may_be_accurate(start: str, answers: Sequence[str]) -> bool:
    """Return whether an output that starts with ``start`` may still have an `accuracy` of 1, up to blanks around it."""
    prefix, gold_answers = start.lstrip(), [answer.strip() for answer in answers]
    return any(gold.startswith(prefix) or gold == prefix.rstrip() for gold in gold_answers)
