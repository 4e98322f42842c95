"""The class `Score`, the rules that all scores share, and the scores of many outputs.

Of these, gold answers that cannot match are left out, each pair is scored once, and errors of user code are counted.
The values of the score `judged` are the grades of a judge, which itself runs elsewhere.
"""

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from erag_ray.measures.scores.normalization import normalized
from erag_ray.support.errors import InputError, JobError
from erag_ray.support.user_code import Fault, fault_of, is_user_code, one_line

NUM_NAMED, OUTPUT_CHARACTERS = 5, 80
JUDGEMENTS = ("CORRECT", "INCORRECT", "ABSTAINED")
"""The grades of a judge of answers."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """A score: a function of one output and its gold answers."""

    name: str
    """In the config and in tables."""
    function: Callable[[str, Sequence[str]], float]
    """(output, gold answers) -> value in [0, 1]. Raises ValueError if all gold answers are blank."""
    binary: bool
    """Declared, not inferred from values: the values are only 0 and 1. Labels from other scores need a threshold for
    binary measures."""
    normalises: bool
    """Texts are compared after ``normalize``; gold answers that normalise to "" are left out."""
    normalize: Callable[[str], str] = normalized
    sign: Literal[1, 0, -1] = 1
    """1: more is better; -1: less is better; 0: neither, such as the share of questions that the reader leaves
    unanswered. No run is best by such a score."""
    needs_judge: bool = False
    """The values come from the job's judge, not from the function."""


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


def usable_answers(score: Score, answers: Sequence[str]) -> list[str]:
    """Return the gold answers that can match: not blank and, if the score normalises, not "" once normalised.

    In KILT a gold answer such as "The" or "*" matches every output that normalises to "". Such a match says nothing
    about a passage, so jobs leave these gold answers out; with none left, every output scores 0.
    """
    if score.normalises:
        return [answer for answer in answers if score.normalize(answer)]
    return [answer for answer in answers if answer.strip()]


@dataclass(kw_only=True)
class Scoring:
    """A judge's grades as input for scoring, and counts and errors as its results."""

    judgements: Mapping[tuple[str, str], str | None] | None = None
    """(query_id, output) -> the judge's grade, None if its response is not one. None instead of the mapping if no judge
    ran: then judged scores are None."""
    num_outputs: int = 0
    num_errors: int = 0
    """The number of outputs for which user code raised or returned an invalid value."""
    lines: list[str] = field(default_factory=list)
    """Messages about the first few of these."""

    def judged_value(self, query_id: str, output: str | None, gold_answers: Sequence[str]) -> float | None:
        """Return the score of an output by the judge; raise ValueError if a judge ran, but not on this output."""
        if output is not None and not needs_judgement(output, gold_answers):
            return 0.0
        if output is None or self.judgements is None:
            return None
        if (query_id, output) not in self.judgements:
            raise ValueError(f"query {query_id}, output {_quoted(output)}: the judge did not grade it")
        judgement = self.judgements[query_id, output]
        return None if judgement is None else float(judgement == "CORRECT")


def score_outputs(
    outputs: Sequence[str | None],
    answers: Sequence[Sequence[str]],
    score: Score,
    query_ids: Sequence[str] = (),
    scoring: Scoring | None = None,
) -> list[float | None]:
    """Return the score of each output against the usable gold answers of its query; None ("not judged") stays None.

    Equal pairs of output and answers are scored once, since a query's passages often lead to the same output.
    ``scoring``, which needs ``query_ids``, has the grades for judged scores, and collects outputs for which user code
    raises or returns an invalid value: their scores are None. Without it such errors are raised.

    Raises:
        ValueError: unequal lengths; a value that is not a number in [0, 1] or, of a binary score, neither 0 nor 1; or a
            judged score of an output that the judge did not grade.
    """
    if scoring is not None:
        scoring.num_outputs += len(outputs) - outputs.count(None)
    if score.needs_judge and scoring is not None:
        return [scoring.judged_value(*row) for row in zip(query_ids, outputs, answers, strict=True)]

    @functools.cache
    def usable(gold_answers: tuple[str, ...]) -> list[str]:
        return usable_answers(score, gold_answers)

    faults: dict[tuple[str | None, tuple[str, ...]], Fault] = {}

    @functools.cache
    def value(output: str, gold_answers: tuple[str, ...]) -> float | None:
        try:
            answers = usable(gold_answers)
            return _checked(score, score.function(output, answers)) if answers else 0.0
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
                scoring.num_errors += 1
                line = f"score {score.name}, query {query_id}, output {_quoted(output)}: {fault}"
                if len(scoring.lines) < NUM_NAMED and line not in scoring.lines:
                    scoring.lines.append(line)
    return values


def _quoted(output: str | None) -> str:
    return one_line(repr(output), OUTPUT_CHARACTERS)


def _checked(score: Score, value: object) -> float:
    """Return a valid value of a score as a float; NaN fails the comparisons and is refused too."""
    if isinstance(value, (bool, int, float)) and 0 <= value <= 1 and (not score.binary or value in (0, 1)):
        return float(value)
    allowed = "0 and 1" if score.binary else "a number in [0, 1]"
    raise ValueError(f"score {score.name!r} returned {value!r}; allowed: {allowed}")
