"""What a score is, and the rules that all of them share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from erag_ray.scores.normalization import normalized


@dataclass(frozen=True, kw_only=True)
class Score:
    """A way to judge one output.

    ``binary`` is declared, not guessed from values: a binary score is only ever 0 or 1, a graded one needs a
    threshold before a binary measure may use it. ``normalises`` says that the texts are compared after
    ``normalize``, so that a gold which normalises to nothing cannot be matched in earnest. ``may_match`` says
    of a binary score whether an output that starts with a text may still be worth 1, however it goes on: False only
    where that is certain. A reader that is asked for the score alone stops there; without ``may_match`` it never does.
    ``needs_judge`` says that a job's judge gives the values, and not the function.
    """

    name: str
    function: Callable[[str, Sequence[str]], float]
    binary: bool
    normalises: bool
    may_match: Callable[[str, Sequence[str]], bool] | None = None
    normalize: Callable[[str], str] = normalized
    needs_judge: bool = False


def _stripped_golds(answers: Sequence[str]) -> list[str]:
    gold_answers = [answer.strip() for answer in answers if answer.strip()]
    if not gold_answers:
        raise ValueError(f"no gold answer that is not blank in {list(answers)!r}")
    return gold_answers


def best_over_golds(compare: Callable[[str, str], float], output: str, answers: Sequence[str]) -> float:
    """Compare a stripped output with each gold that is not blank; an empty output is worth 0.

    Raises:
        ValueError: no gold that is not blank.
    """
    gold_answers = _stripped_golds(answers)
    stripped = output.strip()
    return float(max(compare(stripped, gold) for gold in gold_answers)) if stripped else 0.0


def multiset_f1(items: Sequence[str], gold_items: Sequence[str]) -> float:
    """F1 of two multisets; 0 where they have nothing in common."""
    num_common = sum((Counter(items) & Counter(gold_items)).values())
    if not num_common:
        return 0.0
    precision, recall = num_common / len(items), num_common / len(gold_items)
    return 2 * precision * recall / (precision + recall)
