"""Relevance by a judge: a language model that sees question and passage but no gold answer.

Scale ``yes_no``: the probability of yes against no as the next token, without sampling or parsing. Scale ``grades``: a
grade of 0 to 3, decoded greedily.
"""

import math
import re
from collections.abc import Sequence

import numpy as np

from erag_ray.prompts.kinds.base import Case, Kind
from erag_ray.prompts.prompt import JUDGE_FAMILIES, family_prompt
from erag_ray.prompts.request import Form, Response

WORDS = ("yes", "no")
MAX_GRADE = 3
GRADE = re.compile(r"\D*([0-3])(?!\d|[.,]\d)")
GRADE_TOKENS = 4
DIGITS = 9


def _form(case: Case) -> Form:
    judge = case.judge
    is_yes_no = judge.scale == "yes_no"
    family, is_chat = JUDGE_FAMILIES[judge.scale], judge.is_chat
    return Form(
        method="loglikelihood" if is_yes_no else "generate",
        prompt=family_prompt(family, is_chat=is_chat, num_examples=judge.num_examples),
        max_new_tokens=1 if is_yes_no else GRADE_TOKENS,
        max_prompt_tokens=judge.max_prompt_tokens,
        keep_question_end=case.dataset.family == "dialogue",
        with_end=not is_yes_no,
        next_token=is_yes_no,
    )


def _answers(case: Case, gold_answers: Sequence[str]) -> tuple[str, ...]:
    """Return the spellings of yes, then those of no: lower, title and upper case, with and without a blank before."""
    if case.judge.scale != "yes_no":
        return ()
    spellings = [spelling for word in WORDS for spelling in (word, word.capitalize(), word.upper())]
    return tuple(blank + spelling for spelling in spellings for blank in ("", " "))


def _relevance(answers: Sequence[str], response: Response) -> float | None:
    if response.text is not None:
        return grade(response.text)
    half = len(response.logprobs) // 2
    yes, no = map(np.logaddexp.reduce, (response.logprobs[:half], response.logprobs[half:]))
    if yes == no == -math.inf:
        return None
    return float(f"{1 / (1 + math.exp(min(no - yes, 700.0))):.{DIGITS}f}")


def grade(text: str) -> float | None:
    """Return the first number in a response divided by the highest grade; None if it is not a grade of 0 to 3."""
    match = GRADE.match(text)
    return int(match[1]) / MAX_GRADE if match else None


def _split_words(answer_ids: Sequence[Sequence[int]]) -> str:
    half = len(answer_ids) // 2
    halves = zip(WORDS, (answer_ids[:half], answer_ids[half:]), strict=True)
    split = [word for word, spellings in halves if half and all(len(ids) != 1 for ids in spellings)]
    return (
        f"judge.model: its tokenizer splits {' and '.join(split)}; use judge.scale: grades" if split else ""
    )


RELEVANCE = Kind(
    name="relevance",
    build=_form,
    answers=_answers,
    fold=_relevance,
    value=float,
    role="judge",
    check=_split_words,
)
