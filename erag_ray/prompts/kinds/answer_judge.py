"""Whether an answer is right, by a judge: a language model that sees question, gold answers and the reader's output.

The gold answers and the output are the passages of the request: so text from models and users is plain text to the
judge's tokenizer, and long outputs are truncated first. Decoding is greedy. A response that is not one of `JUDGEMENTS`
counts as no judgement.
"""

import re
from collections.abc import Sequence

from erag_ray.measures.scores import JUDGEMENTS
from erag_ray.prompts.kinds.base import Case, Kind
from erag_ray.prompts.prompt import ACCEPTED, GRADED, answer_judge_prompt
from erag_ray.prompts.request import Form, Passage

JUDGEMENT_TOKENS = 16
"""Leaves room for a word or two around the judgement."""
WORDS = "|".join(JUDGEMENTS)
STARTS = re.compile(
    rf"(?:grade|answer|judgement)?[\W_]*({WORDS})[ *_]*(?=[.,;:!()\[\]{{}}<>|\"']|[\r\n]|\Z)", re.IGNORECASE
)
"""A judgement at the start, followed by the end, a line break or punctuation: "Correct answers would be" is none."""
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


def judge_passages(output: str, gold_answers: Sequence[str]) -> list[Passage]:
    """Return the passages of a request: each distinct gold answer that is not blank, then the output."""
    distinct = dict.fromkeys(answer.strip() for answer in gold_answers if answer.strip())
    return [*(Passage(ACCEPTED, answer) for answer in distinct), Passage(GRADED, output.strip())]


def judgement(text: str) -> str | None:
    """Return the judgement (CORRECT, INCORRECT or ABSTAINED) at the start of a judge's response.

    Case does not matter, and "grade", "answer" or "judgement" may come before it. None if the response starts with
    another word, if the sentence continues after the judgement ("Correct answers would be"), or if another judgement
    comes anywhere later.
    """
    start = STARTS.match(text.strip())
    names = {word.upper() for word in ANY.findall(text)}
    return start[1].upper() if start and len(names) == 1 else None


ANSWER_JUDGE = Kind(
    name="answer_judge",
    build=_form,
    fold=lambda answers, response: judgement(response.text or ""),
    role="judge",
)
