"""The class `Score`, and the rules that all scores share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from erag_ray.measures.scores.normalization import normalized


@dataclass(frozen=True, kw_only=True)
class Score:
    """A score: a function of one output and its gold answers.

    Attributes:
        name: in the config and in tables.
        function: (output, gold answers) -> value in [0, 1]. Raises ValueError if all gold answers are blank.
        binary: declared, not inferred from values: the values are only 0 and 1. Labels from other scores need a
            threshold for binary measures.
        normalises: texts are compared after ``normalize``; gold answers that normalise to "" are left out.
        may_match: of a binary score: (start of an output, gold answers) -> whether an output with this start may still
            score 1. It must be False only if no continuation does, since early stopping ends the output there. None:
            no early stopping.
        normalize: how texts are normalised.
        sign: 1: more is better; -1: less is better; 0: neither, such as the share of questions that the reader leaves
            unanswered. No run is best by such a score.
        needs_judge: the values come from the job's judge, not from the function.
    """

    name: str
    function: Callable[[str, Sequence[str]], float]
    binary: bool
    normalises: bool
    may_match: Callable[[str, Sequence[str]], bool] | None = None
    normalize: Callable[[str], str] = normalized
    sign: Literal[1, 0, -1] = 1
    needs_judge: bool = False


def best_over_gold_answers(
    compare: Callable[[str, str], float], output: str, answers: Sequence[str]
) -> float:
    """Return the largest value of ``compare`` over the gold answers that are not blank; 0 for an empty output.

    Raises:
        ValueError: all gold answers are blank.
    """
    gold_answers = [answer.strip() for answer in answers if answer.strip()]
    if not gold_answers:
        raise ValueError(f"no gold answer that is not blank in {list(answers)!r}")
    stripped = output.strip()
    return float(max(compare(stripped, gold) for gold in gold_answers)) if stripped else 0.0


def multiset_f1(items: Sequence[str], gold_items: Sequence[str]) -> float:
    """Return the F1 of two multisets; 0 if they have nothing in common."""
    # by way of precision and recall 1/2 may become 0.49999999999999994, which reaches no threshold of 0.5
    num_common = sum((Counter(items) & Counter(gold_items)).values())
    return 2 * num_common / (len(items) + len(gold_items)) if num_common else 0.0
