"""The verdict on a claim by rank classification: of a closed set of answers, the most likely one after the prompt.

The log-probabilities of each answer's tokens and its end are summed, and the answer with the largest sum is the output;
ties go to the first (Brown et al., NeurIPS 2020; Sanh et al., ICLR 2022). Greedy decoding picks the most likely token
at each step instead, and may write something outside the set.
"""

from __future__ import annotations

from collections.abc import Sequence

from erag_ray.prompts.kinds.base import Kind
from erag_ray.prompts.kinds.likelihood import continuations, likelihood_form
from erag_ray.prompts.prompt import VERDICTS
from erag_ray.prompts.request import Response


def _likeliest(answers: Sequence[str], response: Response) -> str:
    logprobs = response.logprobs
    return answers[max(range(len(logprobs)), key=logprobs.__getitem__)].strip()


def _same_tokens(answers: Sequence[str], answer_ids: Sequence[Sequence[int]]) -> str:
    if len(set(map(tuple, answer_ids))) == len(answers):
        return ""
    longest = max(map(len, answer_ids))
    return f"reader.max_new_tokens: {longest} are too few to tell the answers apart: {', '.join(answers)}"


VERDICT = Kind(
    name="verdict",
    build=likelihood_form,
    answers=lambda case, gold_answers: continuations(case, VERDICTS[case.family]),
    fold=_likeliest,
    check=_same_tokens,
)
