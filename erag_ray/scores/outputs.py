"""Many outputs -> their scores: gold answers that cannot match, repeats, and code of the user's own that fails."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from erag_ray.errors import InputError, JobError
from erag_ray.scores.base import Score
from erag_ray.scores.judged import needs_judgement, value_of
from erag_ray.user_code import Fault, fault_of, is_user_code, one_line

NUM_NAMED, OUTPUT_CHARACTERS = 5, 80


def usable_answers(score: Score, answers: Sequence[str]) -> list[str]:
    """The gold_answers that can match: not blank and, if the score normalises, not nothing once normalised.

    KILT lets a gold such as "The" or "*" match every output that normalises to nothing. Such a match tells
    nothing about a passage, so a job leaves these gold_answers out; with none left, every output is worth 0.
    """
    if score.normalises:
        return [answer for answer in answers if score.normalize(answer)]
    return [answer for answer in answers if answer.strip()]


@dataclass(kw_only=True)
class Scoring:
    """What a job knows for its scores, and what it collects while it scores.

    Attributes:
        judgements: (query_id, output) -> what the judge says of it, None where that is no judgement; as a whole None
            where no judge was asked: judged scores are None then.
        num_outputs: all that were scored.
        num_errors: those that a score of the user's own could not judge.
        lines: the first few of these by name.
    """

    judgements: Mapping[tuple[str, str], str | None] | None = None
    num_outputs: int = 0
    num_errors: int = 0
    lines: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        """Count an output that has no score; the line says which and why."""
        self.num_errors += 1
        if len(self.lines) < NUM_NAMED and line not in self.lines:
            self.lines.append(line)

    def judged_value(self, query_id: str, output: str) -> float | None:
        """The score of an output by the judge.

        Raises:
            ValueError: the judge was asked, but not about this output.
        """
        if self.judgements is None:
            return None
        if (query_id, output) not in self.judgements:
            raise ValueError(f"query {query_id}, output {_shown(output)}: the judge was not asked")
        return value_of(self.judgements[query_id, output])


def score_outputs(
    outputs: Sequence[str | None],
    answers: Sequence[Sequence[str]],
    score: Score,
    query_ids: Sequence[str] = (),
    scoring: Scoring | None = None,
) -> list[float | None]:
    """The score of each output against its own query's usable gold_answers; None ("not judged") stays None.

    Equal (output, answers) are scored once: a query's passages often lead to the same output.

    Args:
        outputs: what the reader said, one per row.
        answers: the gold_answers of each row, as long as ``outputs``.
        score: the score of all rows.
        query_ids: the query of each row, where there is a ``scoring``.
        scoring: knows the judgements of a judged score. It collects the outputs for which a score of the user's own
            raises or gives a value that cannot be; their scores are None. Without it that is raised.

    Raises:
        ValueError: unequal lengths; a value of the score that is no number in [0, 1] or, if it is declared binary,
            neither 0 nor 1; or a judged score of an output about which the judge was not asked.
    """
    if scoring is not None:
        scoring.num_outputs += len(outputs) - outputs.count(None)
    if score.needs_judge and scoring is not None:
        return _judged(outputs, answers, query_ids, scoring)

    @functools.cache
    def usable(gold_answers: tuple[str, ...]) -> list[str]:
        return usable_answers(score, gold_answers)

    faults: dict[tuple[str | None, tuple[str, ...]], Fault] = {}

    @functools.cache
    def value(output: str, gold_answers: tuple[str, ...]) -> float | None:
        try:
            return (
                _checked(score, score.function(output, usable(gold_answers))) if usable(gold_answers) else 0.0
            )
        except (InputError, JobError):
            raise
        except Exception as error:
            if scoring is None or not is_user_code(score.function):
                raise
            faults[output, gold_answers] = fault_of(error, score.function)
            return None

    rows = zip(outputs, answers, strict=True)
    values = [None if output is None else value(output, tuple(gold_answers)) for output, gold_answers in rows]
    if scoring is not None and faults:
        for query_id, output, gold_answers in zip(query_ids, outputs, answers, strict=True):
            if fault := faults.get((output, tuple(gold_answers))):
                scoring.add(f"score {score.name}, query {query_id}, output {_shown(output)}: {fault}")
    return values


def _judged(
    outputs: Sequence[str | None],
    answers: Sequence[Sequence[str]],
    query_ids: Sequence[str],
    scoring: Scoring,
) -> list[float | None]:
    """The scores of outputs that a judge scores."""

    def value(query_id: str, output: str | None, gold_answers: Sequence[str]) -> float | None:
        if output is None:
            return None
        return scoring.judged_value(query_id, output) if needs_judgement(output, gold_answers) else 0.0

    return [value(*row) for row in zip(query_ids, outputs, answers, strict=True)]


def _shown(output: str | None) -> str:
    return one_line(repr(output), OUTPUT_CHARACTERS)


def _checked(score: Score, value: object) -> float:
    """Outside code may be wrong; NaN fails every comparison and so is caught too."""
    if isinstance(value, (bool, int, float)) and 0 <= value <= 1 and (not score.binary or value in (0, 1)):
        return float(value)
    allowed = "0 and 1" if score.binary else "a number in [0, 1]"
    raise ValueError(f"score {score.name!r} gave {value!r}; allowed: {allowed}")
