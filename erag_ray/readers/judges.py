"""Judges of relevance: any causal LM that says of a question and one passage whether the passage helps.

A judgement is a reading like any other: the same pool, cache and resume, under a fingerprint that covers the judge's
prompt. Its text is the probability of yes, or the grade as it was written.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import transformers

from erag_ray.config import ReaderConfig
from erag_ray.prompts import JUDGEMENTS, Family
from erag_ray.readers.base import Output, Prompt
from erag_ray.readers.causal import CausalReader
from erag_ray.schemas import InputError, JobError


class Judge(CausalReader):
    """What both scales share: one prompt for all families of questions, which differ in where a long one is cut."""

    scale: ClassVar[str]

    @classmethod
    def family_of(cls, config: ReaderConfig) -> Family:
        return JUDGEMENTS[cls.scale]

    def identity(self) -> dict[str, object]:
        keeps = "end" if self.config.family == "dialogue" else "start"
        return {**super().identity(), "family": self.scale, "cut_question_keeps": keeps}


class YesNoJudge(Judge):
    """The probability of yes against no as the first token; nothing is drawn, and no text is parsed."""

    scale: ClassVar[str] = "yes_no"
    words: ClassVar[tuple[str, str]] = ("yes", "no")

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__(config)
        # needs the tokenizer alone: a judge that cannot answer is found before any work
        self.answer_ids  # noqa: B018

    @functools.cached_property
    def answer_ids(self) -> tuple[list[int], list[int]]:
        """The tokens that are yes, and those that are no: in small and capital letters, with a blank before or without.

        Raises:
            InputError: a word is no single token in any of these forms.
        """
        found = tuple(sorted(self._tokens_of(word)) for word in self.words)
        missing = [word for word, ids in zip(self.words, found, strict=True) if not ids]
        if missing:
            split = f"the tokenizer of {self.config.model} splits {' and '.join(missing)}"
            raise InputError([f"judge.model: {split}; use judge.scale: grades"])
        return found[0], found[1]

    def _tokens_of(self, word: str) -> set[int]:
        forms = (word, word.capitalize(), word.upper())
        lists = [
            self.tokenizer(f"{blank}{form}", add_special_tokens=False)["input_ids"]
            for form in forms
            for blank in ("", " ")
        ]
        return {ids[0] for ids in lists if len(ids) == 1} - {self.tokenizer.unk_token_id}

    def decoding(self) -> Any:
        decoding: Any = transformers.GenerationConfig(
            max_new_tokens=1,
            do_sample=False,
            num_beams=1,
            pad_token_id=self._pad,
            return_dict_in_generate=True,
            output_logits=True,
        )
        return decoding

    def written(self, made: Any, start: int, prompts: Sequence[Prompt]) -> list[Output]:
        yes, no = (made.logits[0].float()[:, ids].logsumexp(dim=1) for ids in self.answer_ids)
        shares = torch.sigmoid(yes - no)
        if not shares.isfinite().all():
            text = f"the judge {self.config.model} gives no probability in {self.config.dtype}"
            raise JobError(f"{text}; choose another judge.dtype")
        return [Output(f"{share:.9f}", 1) for share in shares.tolist()]


class GradesJudge(Judge):
    """A grade from 0 to 3, greedily decoded."""

    scale: ClassVar[str] = "grades"
