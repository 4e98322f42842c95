"""How likely the reader finds the gold answers: a label that hardly ties.

For each gold answer the mean log-probability of its tokens and its end, given question and passages; the largest over
the gold answers; its exponential, the geometric mean probability of a token, in [0, 1]. An answer longer than the
reader may write is cut there, and then has no end.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from erag_ray.kinds.answer import answer_form
from erag_ray.kinds.base import Case, Kind
from erag_ray.requests import Form, Response

DIGITS = 9
"""Of a probability: what float32 can tell."""


def likelihood_form(case: Case) -> Form:
    """The log-likelihood of answers under the reader's prompt."""
    return dataclasses.replace(answer_form(case), method="loglikelihood")


def following(case: Case, answers: Iterable[str]) -> tuple[str, ...]:
    """Answers as they follow the prompt: a chat template ends with a line break, a plain prompt with "Answer:"."""
    blank = "" if case.prompt().is_chat else " "
    return tuple(blank + answer for answer in answers)


def _likelihood(answers: Sequence[str], response: Response) -> float:
    counts = response.num_answer_tokens or [1] * len(response.logprobs)
    pairs = zip(response.logprobs, counts, strict=True)
    # in float32, as the log-probabilities are
    means = [float(np.float32(total) / np.float32(max(count, 1))) for total, count in pairs]
    return float(f"{math.exp(max(means, default=-math.inf)):.{DIGITS}g}")


GOLD_LIKELIHOOD = Kind(
    name="gold_likelihood", build=likelihood_form, answers=following, fold=_likelihood, value=float
)
