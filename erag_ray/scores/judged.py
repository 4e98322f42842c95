"""A score that a model gives: the judge says whether an output is right. Pure: its judgements are asked elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

JUDGEMENTS = ("CORRECT", "INCORRECT", "ABSTAINED")
"""What the judge can say of an output."""


def judged(output: str, answers: Sequence[str]) -> float:
    """1 if the judge finds the output CORRECT by the gold answers, 0 if INCORRECT or ABSTAINED (it gives no answer).

    Null where the judge's words are no judgement. A job asks the judge after the reader (`judge:` in its config).

    Raises:
        ValueError: always: no function of output and gold answers knows it.
    """
    raise ValueError(
        "score 'judged': only a job's judge knows it (jobs/compare.py, annotate.py, end_to_end.py, settle.py); choose "
        "another score here, such as match"
    )


def needs_judgement(output: str, answers: Sequence[str]) -> bool:
    """Whether a judge is asked about an output: an empty one, or one without a usable gold answer, is worth 0."""
    return bool(output.strip() and any(answer.strip() for answer in answers))


def value_of(judgement: str | None) -> float | None:
    """The score of a judged output."""
    return None if judgement is None else float(judgement == "CORRECT")
