"""The answer for a binary score, stopped as soon as no gold answer can match it any more.

The score always equals that of the full answer; the text may be shorter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from erag_ray.prompts.kinds.answer import answer_form
from erag_ray.prompts.kinds.base import Case, Kind
from erag_ray.prompts.request import Form


def _form(case: Case) -> Form:
    return dataclasses.replace(answer_form(case), early_stop=case.dataset.score)


def _answers(case: Case, gold_answers: Sequence[str]) -> tuple[str, ...]:
    return tuple(gold_answers)


EARLY_STOPPED = Kind(name="early_stopped", build=_form, answers=_answers)
