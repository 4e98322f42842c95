"""Scores: one output of a reader against the gold answers of its query, in [0, 1]. Pure.

Output and gold answers are stripped, blank gold answers are left out, an empty output scores 0, and the best gold
answer counts, as in KILT's official evaluation (Petroni et al., NAACL 2021; ``kilt/eval_downstream.py``). `kilt`
has KILT's scores, `chat` those for readers that answer in sentences and for other languages: ``match:ko`` is
`match` in Korean. To add a score, write one function ``(output, answers) -> float`` and one line in `SCORES`; code
outside the package exports a `Score` and is named ``package.module:name``.
"""

import contextlib

from erag_ray.measures.scores.abstention import abstained
from erag_ray.measures.scores.base import (
    JUDGEMENTS,
    Score,
    Scoring,
    judged,
    needs_judgement,
    score_outputs,
    usable_answers,
)
from erag_ray.measures.scores.chat import (
    COMPARISONS,
    SHORT_ANSWERS,
    in_language,
    is_language_score,
    language_score,
)
from erag_ray.measures.scores.kilt import accuracy, exact_match, rouge_l_google, rouge_l_kilt, token_f1
from erag_ray.measures.scores.normalization import (
    ENGLISH,
    MARKUP,
    UNREAD,
    UNSPACED,
    check_language,
    has_word,
    normalize_answer,
    whole_words,
)
from erag_ray.support.registry import find_instance

__all__ = [
    "COMPARISONS", "ENGLISH", "JUDGED", "JUDGEMENTS", "MARKUP", "SCORES", "SHORT_ANSWERS", "UNREAD", "UNSPACED",
    "Score", "Scoring", "check_language", "has_word", "in_language", "is_language_score", "needs_judgement",
    "normalize_answer", "score_named", "score_outputs", "score_sign", "usable_answers", "whole_words",
]  # fmt: skip


def score_named(name: str) -> Score:
    """Return the score called ``name``: an entry of `SCORES`, one in a language (``match:ko``), or user code.

    Raises:
        ValueError: there is none, the language is unknown, or the object outside the package is not a `Score`.
    """
    base, _, language = name.partition(":")
    if base in COMPARISONS and language:
        return language_score(name)
    return find_instance("score", name, SCORES, Score, "binary=True, normalises=False")


def score_sign(name: str) -> int:
    """Return 1 if more of a score is better, -1 if less is, 0 for neither; 1 for user code that is not installed."""
    with contextlib.suppress(ValueError):
        return score_named(name).sign
    return 1


SCORES: dict[str, Score] = {
    score.name: score
    for score in (
        Score(name="exact_match", function=exact_match, binary=True, normalises=True),
        Score(name="token_f1", function=token_f1, binary=False, normalises=True),
        Score(name="accuracy", function=accuracy, binary=True, normalises=False),
        Score(name="rouge_l_kilt", function=rouge_l_kilt, binary=False, normalises=False),
        Score(name="rouge_l_google", function=rouge_l_google, binary=False, normalises=False),
        language_score("match"),
        language_score("char_f1"),
        Score(name="abstained", function=abstained, binary=True, normalises=False, sign=0),
        Score(
            name="judged",
            function=judged,
            binary=True,
            normalises=True,
            normalize=str.strip,
            needs_judge=True,
        ),
    )
}
JUDGED = tuple(name for name, score in SCORES.items() if score.needs_judge)
"""The scores whose values a judge gives."""
