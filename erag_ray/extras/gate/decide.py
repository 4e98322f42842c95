"""Decide by paired differences: passed, failed, or not settled and how many questions that would take. Pure.

A non-inferiority test by one-sided bounds of the mean difference, candidate minus baseline. Both bounds are ends of the
interval that a comparison gives (`agreement.PairedTest`), so the gate and the verdict of a comparison cannot
name opposite runs. Where no question differs the interval is that of the share of questions that may differ.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from erag_ray.extras.gate.config import GateConfig
from erag_ray.measures.agreement import TIE_DIGITS, Clusters, PairedTest, holm, paired_test, round_up

Floats = npt.NDArray[np.float64]
Tested = tuple[Floats, Clusters | None]
"""Differences, and the clusters of their questions."""
Verdict = Literal["passed", "failed", "not settled"]
MIN_QUESTIONS = 10
"""With fewer there is no verdict."""
LEAST_P = 1e-12
"""`p_above` looks no further."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The mean difference of one dataset, its one-sided bounds, the p-values of both tests, and what follows."""

    num_questions: int
    difference: float
    low: float | None
    """The mean is above this with the config's confidence; None: too few questions."""
    high: float | None
    """The mean is below this with the config's confidence."""
    p_passed: float
    """Of "the true difference is above -margin"."""
    p_failed: float
    """Of "the true difference is below -margin"."""
    num_needed: int | None
    """Questions that would settle it with a power of 80 % if the difference stays; None: no number does."""
    verdict: Verdict = "not settled"
    """Corrected for the number of datasets."""


def bounds(values: Floats, config: GateConfig, tested: Tested | None = None) -> Decision:
    """Return the mean of paired differences, without NaN and at least one, with its bounds, before any verdict.

    ``tested`` has estimates of all questions, if the values [num_questions] are a sample's, or the questions' clusters.
    """
    column, clusters = tested or (values, None)
    test = paired_test(column, clusters)
    # the ends of a 90 % interval are one-sided bounds of 95 %
    low, high = test.interval(2 * (1 - config.confidence))
    is_enough = len(values) >= MIN_QUESTIONS
    return Decision(
        num_questions=len(values),
        difference=test.mean,
        low=low if is_enough else None,
        high=high if is_enough else None,
        p_passed=p_above(test, -config.margin) if is_enough else 1.0,
        p_failed=p_above(paired_test(-column, clusters), config.margin) if is_enough else 1.0,
        num_needed=_needed(len(values), test, config),
    )


def p_above(test: PairedTest, value: float) -> float:
    """Return the one-sided p-value of "the true mean is above ``value``": the least at which the bound is above."""
    if not test.interval(1.0)[0] > value:
        return 1.0
    low, high = math.log(LEAST_P), math.log(0.5)
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if test.interval(2 * math.exp(middle))[0] > value else (middle, high)
    return math.exp(high)


def _needed(num_questions: int, test: PairedTest, config: GateConfig) -> int | None:
    """Return the number of questions that tells the mean from -margin, one-sided; None if it is -margin.

    Of a sample, it is the number to be answered, of as many more questions in all.

    To pass where none differs so far, it is the number that shows by itself that the share of losses is below the
    margin.
    """
    share = num_questions / test.count
    needed = test.num_needed(2 * (1 - config.confidence), -config.margin)
    if not len(test.values) and config.margin:
        needed = math.ceil(math.log(1 - config.confidence) / math.log1p(-config.margin))
        share = max(1.0, share)
    return needed and max(round_up(needed * share), MIN_QUESTIONS, num_questions + 1)


def decide(
    differences: Mapping[str, Floats], config: GateConfig, tested: Mapping[str, Tested] | None = None
) -> dict[str, Decision]:
    """Decide each of several datasets.

    With several datasets each p-value, adjusted by Holm over the datasets, must also be at most 1 - confidence: none
    of the verdicts on datasets is wrong with at least that confidence, in each direction. The arguments are those of
    `bounds`, by dataset.
    """
    known = tested or {}
    by_dataset = {name: bounds(values, config, known.get(name)) for name, values in differences.items()}
    passed = holm(np.array([one.p_passed for one in by_dataset.values()]))
    failed = holm(np.array([one.p_failed for one in by_dataset.values()]))
    return {
        name: replace(one, verdict=_verdict(one, config, len(by_dataset), p_passed, p_failed))
        for (name, one), p_passed, p_failed in zip(by_dataset.items(), passed, failed, strict=True)
    }


def _verdict(
    one: Decision, config: GateConfig, num_datasets: int, p_passed: float, p_failed: float
) -> Verdict:
    # one dataset is decided by its bounds
    alpha = 1.0 if num_datasets == 1 else 1 - config.confidence
    if one.low is not None and _above(one.low, -config.margin) and p_passed <= alpha:
        return "passed"
    if one.high is not None and _above(-config.margin, one.high) and p_failed <= alpha:
        return "failed"
    return "not settled"


def _above(value: float, other: float) -> bool:
    """Return whether a value is above another by more than rounding."""
    return round(value - other, TIE_DIGITS) > 0


def overall(decisions: Sequence[Decision]) -> Verdict:
    """Return the verdict over all datasets: failed if one failed, passed if all passed, else not settled.

    Without any decision it is not settled.
    """
    verdicts = {one.verdict for one in decisions}
    if "failed" in verdicts:
        return "failed"
    return "passed" if verdicts == {"passed"} else "not settled"
