"""Readers that choose: of the few answers that a claim may have, the one that is most likely after the prompt.

Rank classification (Brown et al., NeurIPS 2020; Sanh et al., ICLR 2022): the log-probabilities of each answer's tokens
and its end are added up, in one pass of the decoder, and the answer with the largest sum is the output. Greedy decoding
takes the likeliest token at each step instead, and may write something else altogether: the outputs mostly agree, and
need not. So these are readers of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from erag_ray.config import ReaderConfig
from erag_ray.prompts import VERDICTS
from erag_ray.readers.base import Prompt, Request
from erag_ray.readers.likelihood import CausalLikelihood, FidLikelihood, IpaLikelihood, LikelihoodReader
from erag_ray.schemas import InputError


class ClassifyingReader(LikelihoodReader):
    """What they share: the answers there are, for every request the same, and the likeliest."""

    sees_golds: ClassVar[bool] = False
    is_mean: ClassVar[bool] = False

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__(config)
        self.verdicts = VERDICTS.get(config.family or "", ())
        if not self.verdicts:
            able = ", ".join(VERDICTS)
            raise InputError(
                [f"reader.kind: {config.kind} is for questions of family {able}, not {config.family}"]
            )
        if len(self.encode([Request("", ())])[0].golds) < len(self.verdicts):
            raise InputError(
                [f"reader.max_new_tokens: {self.max_new_tokens} are too few to tell answers apart"]
            )

    def identity(self) -> dict[str, object]:
        return {**super().identity(), "decoding": "likeliest", "verdicts": self.verdicts}

    def encode(self, requests: Sequence[Request]) -> list[Prompt]:
        return super().encode([request._replace(golds=self.verdicts) for request in requests])

    def text(self, values: Sequence[float]) -> str:
        """The likeliest; of equals the first."""
        return self.verdicts[max(range(len(values)), key=values.__getitem__)]


class FidClassifying(ClassifyingReader, FidLikelihood):
    """By Fusion-in-Decoder."""


class IpaClassifying(ClassifyingReader, IpaLikelihood):
    """By in-prompt augmentation."""


class CausalClassifying(ClassifyingReader, CausalLikelihood):
    """By a decoder-only model."""
