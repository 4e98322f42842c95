"""The likelier verdict: of the few answers that a claim may have, the one that is most likely after the prompt.

Rank classification (Brown et al., NeurIPS 2020; Sanh et al., ICLR 2022): the log-probabilities of each answer's tokens
and its end are added up, and the answer with the largest sum is the output; of equals the first. Greedy decoding takes
the likeliest token at each step instead, and may write something else altogether.
"""

from __future__ import annotations

from collections.abc import Sequence

from erag_ray.kinds.base import Case, Kind
from erag_ray.kinds.likelihood import following, likelihood_form
from erag_ray.requests import VERDICTS, Response


def _answers(case: Case, gold_answers: Sequence[str]) -> tuple[str, ...]:
    return following(case, VERDICTS[case.family])


def _likeliest(answers: Sequence[str], response: Response) -> str:
    values = response.logprobs
    return answers[max(range(len(values)), key=values.__getitem__)].strip()


def _same_tokens(answers: Sequence[str], answer_ids: Sequence[Sequence[int]]) -> str:
    if len(set(map(tuple, answer_ids))) == len(answers):
        return ""
    longest = max(map(len, answer_ids))
    return f"reader.max_new_tokens: {longest} are too few to tell answers apart ({', '.join(answers)})"


VERDICT = Kind(name="verdict", build=likelihood_form, answers=_answers, fold=_likeliest, check=_same_tokens)
