"""The likelihood of the gold answers under the reader: a label with hardly any ties.

The mean log-probability of a gold answer's tokens and its end, given question and passages; the largest over the gold
answers; its exponential, which is the geometric mean probability of a token, in [0, 1]. An answer longer than
``max_new_tokens`` is truncated, and then has no end.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from erag_ray.prompts.kinds.answer import answer_form
from erag_ray.prompts.kinds.base import Case, Kind
from erag_ray.prompts.request import Form, Response

DIGITS = 9
"""Significant digits of a probability: the precision of float32."""


def likelihood_form(case: Case) -> Form:
    return dataclasses.replace(answer_form(case), method="loglikelihood")


def continuations(case: Case, answers: Iterable[str]) -> tuple[str, ...]:
    """Return answers as they continue the prompt: after "Answer:" in a plain prompt they begin with a blank."""
    blank = "" if case.prompt().is_chat else " "
    return tuple(blank + answer for answer in answers)


def _likelihood(answers: Sequence[str], response: Response) -> float:
    counts = response.num_answer_tokens or [1] * len(response.logprobs)
    pairs = zip(response.logprobs, counts, strict=True)
    # in float32, as the log-probabilities are
    means = [float(np.float32(total) / np.float32(max(count, 1))) for total, count in pairs]
    return float(f"{math.exp(max(means, default=-math.inf)):.{DIGITS}g}")


GOLD_LIKELIHOOD = Kind(
    name="gold_likelihood", build=likelihood_form, answers=continuations, fold=_likelihood, value=float
)
AUXILIARY_LIKELIHOOD = GOLD_LIKELIHOOD.by_auxiliary()
