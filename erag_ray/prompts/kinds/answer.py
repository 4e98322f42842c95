"""The answer: the reader's output, from one passage (eRAG), from a list (end to end), or from none (closed-book)."""

import dataclasses
import functools

from erag_ray.prompts.kinds.base import Case, Kind
from erag_ray.prompts.request import Form


def answer_form(case: Case) -> Form:
    return Form(
        method="generate",
        prompt=case.prompt(),
        max_new_tokens=case.reader.max_new_tokens or case.dataset.max_new_tokens,
        max_prompt_tokens=case.reader.max_prompt_tokens,
        keep_question_end=case.family == "dialogue",
        stop_at_newline=case.reader.stop_at_newline,
    )


ANSWER = Kind(name="answer", build=answer_form)
"""The reader's output to a question with passages."""


@functools.cache
def repeated_answer(repeat: int) -> Kind:
    """Return the kind of an answer that is asked for again; `ANSWER` is repeat 0."""
    if not repeat:
        return ANSWER
    return Kind(
        name=f"answer_{repeat + 1}", build=lambda case: dataclasses.replace(answer_form(case), repeat=repeat)
    )


AUXILIARY_ANSWER = ANSWER.by_auxiliary()
