"""One output of a reader against its gold answers -> a number in [0, 1]. Pure.

In: an output and the gold answers of its query. Out: the value of a `Score`. The rules are those of KILT's
official evaluation (Petroni et al., NAACL 2021; ``kilt/eval_downstream.py``): output and golds are stripped,
blank golds are left out, an empty output is worth 0, and the best gold counts. To add a score, write one
function ``(output, answers) -> float`` and one line in `SCORES`; code outside the package exports a `Score`
and is named ``package.module:name``.
"""

from __future__ import annotations

from erag_ray.names import find_instance
from erag_ray.scores.base import Score
from erag_ray.scores.kilt import accuracy, exact_match, may_be_accurate, may_match_exactly, token_f1
from erag_ray.scores.normalization import normalize_answer
from erag_ray.scores.outputs import ScoreErrors, score_outputs, usable_answers
from erag_ray.scores.rouge_l import rouge_l_google, rouge_l_kilt
from erag_ray.user_code import with_guards

__all__ = [
    "SCORES",
    "Score",
    "ScoreErrors",
    "accuracy",
    "exact_match",
    "may_be_accurate",
    "may_match_exactly",
    "normalize_answer",
    "rouge_l_google",
    "rouge_l_kilt",
    "score_named",
    "score_outputs",
    "token_f1",
    "usable_answers",
]


def score_named(name: str) -> Score:
    """The score called ``name``, here or as ``package.module:name``.

    Raises:
        ValueError: there is none, or the outside object is not a `Score`.
    """
    score = find_instance("score", name, SCORES, Score, "binary=True, normalises=False")
    return with_guards(score, f"score {name}", "may_match")


SCORES: dict[str, Score] = {
    score.name: score
    for score in (
        Score(
            name="exact_match",
            function=exact_match,
            binary=True,
            normalises=True,
            may_match=may_match_exactly,
        ),
        Score(name="token_f1", function=token_f1, binary=False, normalises=True),
        Score(name="accuracy", function=accuracy, binary=True, normalises=False, may_match=may_be_accurate),
        Score(name="rouge_l_kilt", function=rouge_l_kilt, binary=False, normalises=False),
        Score(name="rouge_l_google", function=rouge_l_google, binary=False, normalises=False),
    )
}
