"""Whether an answer is right, by a judge: a language model that sees question, gold answers and the reader's output.

The gold answers and the output stand in the request as its passages, so that what a model or a user wrote is plain text
to the judge's tokenizer, and long outputs are cut before anything else is. Greedily written; a text that is not one of
`JUDGEMENTS` is no judgement, and nothing is made of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from erag_ray.kinds.base import Case, Kind
from erag_ray.requests import ACCEPTED, GRADED, Form, Passage, Response, answer_judge_prompt
from erag_ray.scores import JUDGEMENTS

JUDGEMENT_TOKENS = 16
"""Room for a word or two around the judgement."""
WORDS = "|".join(JUDGEMENTS)
STARTS = re.compile(
    rf"(?:grade|answer|judgement)?[\W_]*({WORDS})[ *_]*(?=[.,;:!()\[\]{{}}<>|\"']|[\r\n]|\Z)", re.IGNORECASE
)
"""A judgement at the start, and then an end, a line break or punctuation: "Correct answers would be" is none."""
ANY = re.compile(rf"(?<![^\W\d_])(?:{WORDS})(?![^\W\d_])", re.IGNORECASE)


def _form(case: Case) -> Form:
    judge = case.judge
    return Form(
        method="generate",
        prompt=answer_judge_prompt(is_chat=judge.is_chat, num_examples=judge.num_examples),
        max_new_tokens=JUDGEMENT_TOKENS,
        max_prompt_tokens=judge.max_prompt_tokens,
        keep_question_end=case.dataset.family == "dialogue",
    )


def shown_to_judge(output: str, gold_answers: Sequence[str]) -> list[Passage]:
    """The passages of a request: each distinct gold answer that is not blank, then the output."""
    distinct = dict.fromkeys(answer.strip() for answer in gold_answers if answer.strip())
    return [*(Passage(ACCEPTED, answer) for answer in distinct), Passage(GRADED, output.strip())]


def judgement(text: str) -> str | None:
    """The one of `JUDGEMENTS` that a judge wrote; None where it wrote something else, or several."""
    found = STARTS.match(text.strip())
    names = {word.upper() for word in ANY.findall(text)}
    return found[1].upper() if found and len(names) == 1 else None


def _judgement(answers: Sequence[str], response: Response) -> str | None:
    return judgement(response.text or "")


ANSWER_JUDGE = Kind(name="answer_judge", build=_form, fold=_judgement, asks="judge")
