"""Abstention: how likely the reader is to begin its output with the first token of NO-RESPONSE (arXiv 2510.21440).

A served model shows its most likely first tokens as texts, and its tokenizer is unknown: the texts that begin
NO-RESPONSE, of at least two characters, count together. One that is not shown counts 0; its probability is at most the
smallest shown.
"""

import dataclasses
import math
from collections.abc import Sequence

from erag_ray.prompts.kinds.answer import answer_form
from erag_ray.prompts.kinds.base import Case, Kind
from erag_ray.prompts.kinds.likelihood import DIGITS, continuations
from erag_ray.prompts.request import Form, Prompt, Response

ABSTAINS = "NO-RESPONSE"
INSTRUCTION = f"Respond with {ABSTAINS} if none of the passages contains the answer."


def instructed(prompt: Prompt) -> Prompt:
    """Return the reader's prompt with the instruction: in its system text, or before a chat message without one."""
    if prompt.is_chat and not prompt.system:
        return dataclasses.replace(prompt, template=f"{INSTRUCTION}\n\n{prompt.template}")
    return dataclasses.replace(prompt, system=f"{prompt.system} {INSTRUCTION}".strip())


def _form(case: Case) -> Form:
    form = answer_form(case)
    return dataclasses.replace(
        form,
        method="loglikelihood",
        prompt=instructed(form.prompt) if case.reader.ask_to_abstain else form.prompt,
        max_new_tokens=1,
        with_end=False,
        next_token=not case.scores_texts,
    )


def _answers(case: Case, gold_answers: Sequence[str]) -> tuple[str, ...]:
    """Return the text whose first token is scored; where only next tokens are scored, the texts that may be it."""
    if case.scores_texts:
        return continuations(case, [ABSTAINS])
    starts = [ABSTAINS[:length] for length in range(2, len(ABSTAINS) + 1)]
    return tuple(blank + start for start in starts for blank in ("", " "))


def _probability(answers: Sequence[str], response: Response) -> float:
    total = math.fsum(math.exp(logprob) for logprob in response.logprobs)
    return float(f"{min(total, 1.0):.{DIGITS}g}")


NO_RESPONSE = Kind(name="no_response", build=_form, answers=_answers, fold=_probability, value=float)
