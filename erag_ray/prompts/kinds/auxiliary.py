"""Kinds of request to the auxiliary reader: the same as those to the reader."""

from __future__ import annotations

from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.likelihood import GOLD_LIKELIHOOD

AUXILIARY_ANSWER = ANSWER.by_auxiliary()
AUXILIARY_LIKELIHOOD = GOLD_LIKELIHOOD.by_auxiliary()
