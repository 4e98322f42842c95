"""The scores of KILT's official evaluation: exact match, F1, accuracy, ROUGE-L, also by another package. Pure."""

import functools
import sys
from collections.abc import Sequence
from typing import Any

from rouge import Rouge

from erag_ray.measures.scores.base import best_over_gold_answers, multiset_f1
from erag_ray.measures.scores.normalization import normalized

_ROUGE = Rouge(metrics=["rouge-l"], stats=["f"])


def exact_match(output: str, answers: Sequence[str]) -> float:
    """Return 1 if the normalised output equals a normalised gold answer, else 0: KILT's and SQuAD's EM.

    As in KILT, "." and "The" both normalise to "" and match each other here; `score_outputs` leaves such gold answers
    out.
    """
    return best_over_gold_answers(lambda text, gold: normalized(text) == normalized(gold), output, answers)


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


def rouge_l_kilt(output: str, answers: Sequence[str]) -> float:
    """Return KILT's ROUGE-L: the PyPI package ``rouge`` on the raw texts, sentences split at ".".

    Case and punctuation count, repeated words do not, and a perfect match is 0.999999995 (the package adds 1e-8 to a
    denominator), so it is never binary. A text without a sentence ("." or "...") scores 0 against anything, where KILT
    stops with an error. The package recurses once for each word, so that the recursion limit grows with long texts.
    """
    return best_over_gold_answers(_summary_rouge_l, output, answers)


def _summary_rouge_l(output: str, gold: str) -> float:
    limit = sys.getrecursionlimit()
    # calls of Python take no room of the C stack
    sys.setrecursionlimit(limit + len(output.split()) + len(gold.split()))
    try:
        return float(_ROUGE.get_scores(output, gold)[0]["rouge-l"]["f"])
    except ValueError:  # raised by the package for a text without a sentence
        return 0.0
    finally:
        sys.setrecursionlimit(limit)


def rouge_l_google(output: str, answers: Sequence[str]) -> float:
    """Return ROUGE-L of Google's package ``rouge_score``, sentence level, without the stemmer.

    It lower-cases and keeps only runs of a-z and 0-9, so text in another script scores 0 even against itself: a
    different score from `rouge_l_kilt`, for English.
    """
    return best_over_gold_answers(
        lambda text, gold: float(_google_scorer().score(gold, text)["rougeL"].fmeasure), output, answers
    )


@functools.cache
def _google_scorer() -> Any:
    # imported here because the package loads nltk, which takes seconds
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], use_stemmer=False)
