"""The answer: the reader's output, from one passage (eRAG), from a list (end to end), or from none (closed-book)."""

from __future__ import annotations

from erag_ray.prompts.kinds.base import Case, Kind
from erag_ray.prompts.request import Form


def answer_form(case: Case) -> Form:
    """Return the form for greedy decoding with the reader's prompt."""
    return Form(
        method="generate",
        prompt=case.prompt(),
        max_new_tokens=case.reader.max_new_tokens or case.dataset.max_new_tokens,
        max_prompt_tokens=case.reader.max_prompt_tokens,
        keep_question_end=case.family == "dialogue",
        stop_at_newline=case.reader.stop_at_newline,
    )


ANSWER = Kind(name="answer", build=answer_form)
