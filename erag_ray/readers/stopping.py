"""Readers that are asked for a binary score alone: an output ends as soon as no gold answer can match it any more.

Greedy decoding as ever, so what can still match is written to its end and scored as ever; what is stopped is worth 0
however it would have gone on. The score is exactly that of the whole output, the text is not the whole output: so
these are readers of their own, and the key of what they are asked includes the golds.

What makes it certain: the text of some tokens is how the text of those and more tokens starts, up to the first
`UNFINISHED` (a character of which some bytes are not written yet, or bytes that are no character: then the whole output
has it too, and matches no gold that has none), and ``Score.may_match`` answers for every text that starts so.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import transformers

from erag_ray.config import ReaderConfig
from erag_ray.readers.base import Output, Prompt, Reader, Request
from erag_ray.readers.causal import CausalReader
from erag_ray.readers.t5 import FidReader, IpaReader
from erag_ray.readers.t5_engine import Stop, up_to_stop
from erag_ray.schemas import InputError
from erag_ray.scores import Score, score_named, usable_answers

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
NUM_KEPT = 1 << 16
"""Starts of outputs that are remembered: the documents of a question often make a reader write the same."""


def named_score(name: str) -> Score:
    """`score_named`.

    Raises:
        InputError: there is none.
    """
    try:
        return score_named(name)
    except ValueError as error:
        raise InputError([f"score: {error}"]) from error


class StoppingReader(Reader):
    """What they share: the score, the golds that can match, and when to stop."""

    sees_golds: ClassVar[bool] = True
    tokenizer: Any

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__(config)
        self.score = named_score(config.score or "")
        if self.score.may_match is None:
            raise InputError([f"reader.score: {self.score.name} cannot be told before the output is whole"])
        self._is_lost = functools.lru_cache(NUM_KEPT)(self._lost)

    def identity(self) -> dict[str, object]:
        return {**super().identity(), "score": self.score.name}

    def encode(self, requests: Sequence[Request]) -> list[Prompt]:
        prompts = super().encode(requests)  # type: ignore[safe-super]
        return [
            dataclasses.replace(prompt, answers=tuple(usable_answers(self.score, request.golds)))
            for prompt, request in zip(prompts, requests, strict=True)
        ]

    def stop(self, prompts: Sequence[Prompt]) -> Stop | None:
        """Whether no gold answer can match an output any more; None for a tokenizer that takes blanks back."""
        if getattr(self.tokenizer, "clean_up_tokenization_spaces", False):
            return None
        return lambda place, ids: self._is_lost(prompts[place].answers, tuple(ids))

    def _lost(self, answers: tuple[str, ...], ids: tuple[int, ...]) -> bool:
        assert self.score.may_match is not None, "the constructor checks this"
        if any(UNFINISHED in answer for answer in answers):
            return False
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        return not self.score.may_match(text.split(UNFINISHED, 1)[0], answers)


class FidStopping(StoppingReader, FidReader):
    """Of Fusion-in-Decoder."""


class IpaStopping(StoppingReader, IpaReader):
    """Of in-prompt augmentation."""


class CausalStopping(StoppingReader, CausalReader):
    """Of a decoder-only model. A batch goes on until its last row has ended."""

    def stopping(self, prompts: Sequence[Prompt], start: int) -> Any:
        stop = self.stop(prompts)
        if stop is None:
            return None

        def has_ended(ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
            ended = [stop(place, row) for place, row in enumerate(ids[:, start:].tolist())]
            return torch.tensor(ended, device=ids.device)

        return transformers.StoppingCriteriaList([has_ended])

    def written(self, made: Any, start: int, prompts: Sequence[Prompt]) -> list[Output]:
        stop = self.stop(prompts)
        rows = enumerate(made[:, start:].tolist())
        return [self._output(row if stop is None else up_to_stop(place, row, stop)) for place, row in rows]
