"""A score by an LLM: a judge grades whether an output is right. Pure: the judge itself runs elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

JUDGEMENTS = ("CORRECT", "INCORRECT", "ABSTAINED")
"""The grades of a judge of answers."""


def judged(output: str, answers: Sequence[str]) -> float:
    """Score 1 if the judge grades the output CORRECT by the gold answers, 0 if INCORRECT or ABSTAINED (no answer).

    Null if the judge's response is not a judgement. In a job the judge runs after the reader (`judge:` in its config).

    Raises:
        ValueError: always: the value is not a function of output and gold answers.
    """
    raise ValueError(
        "score 'judged': only jobs with a judge compute it (erag-ray compare, annotate, end_to_end, settle). "
        "Choose another score here, such as match"
    )


def needs_judgement(output: str, answers: Sequence[str]) -> bool:
    """Return whether an output needs a judge; an empty one, or one without a usable gold answer, scores 0."""
    return bool(output.strip() and any(answer.strip() for answer in answers))


def judged_score(judgement: str | None) -> float | None:
    """Return the score for a judgement."""
    return None if judgement is None else float(judgement == "CORRECT")
