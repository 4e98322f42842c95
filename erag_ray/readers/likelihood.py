"""How likely a reader finds the gold answers: teacher-forced, in one forward pass, without decoding.

A label that hardly ties: for each gold answer the mean log-probability of its tokens and its end, given question and
passages; the largest over the golds; its exponential, the geometric mean probability of a token, in [0, 1]. An answer
longer than the reader may write is cut there, and then has no end. What was asked includes the golds, so its key does
too, and the fingerprint is another than that of the reader which writes.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import ClassVar, NamedTuple

import torch
from transformers.modeling_outputs import BaseModelOutput

from erag_ray.prompts import Piece
from erag_ray.readers.base import Output, Prompt, Reader, Request
from erag_ray.readers.causal import CausalReader, by_prefix
from erag_ray.readers.memory import Needs
from erag_ray.readers.shapes import causal_needs, t5_needs
from erag_ray.readers.t5 import FidReader, IpaReader, T5Reader
from erag_ray.readers.tokens import Ids, PieceTokenizer
from erag_ray.schemas import JobError


class Asked(NamedTuple):
    """One gold answer after one prompt."""

    place: int
    gold: Ids


class LikelihoodReader(Reader):
    """What all of them share: gold answers in tokens, and the best of each prompt's."""

    sees_golds: ClassVar[bool] = True
    is_mean: ClassVar[bool] = True
    """Whether log-probabilities are divided by how many tokens they are of."""
    dtypes: ClassVar[tuple[str, ...]] = Reader.dtypes
    pieces: PieceTokenizer

    @property
    def blank(self) -> str:
        """What parts an answer from the end of its prompt."""
        return " "

    def encode(self, requests: Sequence[Request]) -> list[Prompt]:
        distinct = list(dict.fromkeys(gold for request in requests for gold in request.golds))
        pieces = [[Piece("passage", self.blank + gold)] for gold in distinct]
        tokens = (made[0][: self.max_new_tokens] for made in self.pieces.tokenise(pieces))
        ids = dict(zip(distinct, tokens, strict=True))
        golds = [tuple(dict.fromkeys(ids[gold] for gold in request.golds)) for request in requests]
        prompts = super().encode(requests)  # type: ignore[safe-super]
        return [dataclasses.replace(prompt, golds=own) for prompt, own in zip(prompts, golds, strict=True)]

    @torch.inference_mode()
    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        asked = [Asked(place, gold) for place, prompt in enumerate(prompts) for gold in prompt.golds]
        found: list[list[float]] = [[] for _ in prompts]
        for (place, _), value in zip(asked, self.likelihoods(prompts, asked), strict=True):
            found[place].append(value)
        if any(math.isnan(value) for values in found for value in values):
            text = f"the reader {self.config.model} gives no probability in {self.config.dtype}"
            raise JobError(f"{text}; choose another reader.dtype")
        return [
            Output(self.text(values), sum(map(len, prompt.golds)))
            for values, prompt in zip(found, prompts, strict=True)
        ]

    def text(self, values: Sequence[float]) -> str:
        """What is said of the log-probabilities of one prompt's gold answers."""
        return f"{math.exp(max(values, default=-math.inf)):.9g}"

    @abstractmethod
    def likelihoods(self, prompts: Sequence[Prompt], asked: Sequence[Asked]) -> list[float]:
        """The log-probability of each gold answer's tokens and its end, `is_mean` or the sum."""

    def batched(self, asked: Sequence[Asked], prompts: Sequence[Prompt]) -> Iterator[Sequence[Asked]]:
        """As many as one batch may have; each is a row of its own, with its prompt."""
        longest = max(prompt.num_tokens + max(map(len, prompt.golds), default=0) for prompt in prompts)
        size = max(1, min(self.limits.rows, self.limits.tokens // longest))
        return (asked[start : start + size] for start in range(0, len(asked), size))

    def likelihood(self, logits: torch.Tensor, gold: Ids, ends: Collection[int]) -> torch.Tensor:
        """The log-probability of one gold answer's tokens and its end, `is_mean` or the sum: a scalar.

        Args:
            logits: [len(gold) + 1, vocabulary], after the prompt and after each token of the gold answer.
            gold: its tokens.
            ends: the tokens that end an output; together they have the probability that it ends.
        """
        chances = logits.float().log_softmax(dim=-1)
        total = chances[torch.arange(len(gold)), torch.tensor(gold, dtype=torch.long)].sum()
        # what is as long as an output may be ends by itself
        if not ends or (gold and len(gold) >= self.max_new_tokens):
            return total / len(gold) if gold and self.is_mean else total
        total = total + chances[-1, sorted(ends)].logsumexp(dim=0)
        return total / (len(gold) + 1) if self.is_mean else total


class T5Likelihood(LikelihoodReader, T5Reader):
    """By an encoder-decoder: every prompt is encoded once, every gold answer is a row of the decoder."""

    revision: ClassVar[int] = 3

    def needs(self) -> Needs:
        size = self.max_new_tokens + 1
        return t5_needs(self.settings, self.model.dtype, self.max_new_tokens, at_once=size, keeps_keys=True)

    def likelihoods(self, prompts: Sequence[Prompt], asked: Sequence[Asked]) -> list[float]:
        hidden, mask = self.fused(prompts)
        start = self.first
        found: list[torch.Tensor] = []
        for rows in self.batched(asked, prompts):
            places = torch.tensor([row.place for row in rows], device=hidden.device)
            inputs = torch.nn.utils.rnn.pad_sequence(
                [torch.tensor([start, *row.gold]) for row in rows], batch_first=True
            )
            logits = self.model(
                encoder_outputs=BaseModelOutput(last_hidden_state=hidden[places]),
                attention_mask=mask[places].long(),
                decoder_input_ids=inputs.to(hidden.device),
            ).logits
            found += [
                self.likelihood(own[: len(row.gold) + 1], row.gold, self.end)
                for own, row in zip(logits, rows, strict=True)
            ]
        return torch.stack(found).tolist() if found else []


class FidLikelihood(T5Likelihood, FidReader):
    """Of Fusion-in-Decoder."""


class IpaLikelihood(T5Likelihood, IpaReader):
    """Of in-prompt augmentation."""


class CausalLikelihood(LikelihoodReader, CausalReader):
    """By a decoder-only model: every gold answer is a row with its prompt; the template before them is read once."""

    revision: ClassVar[int] = 2

    @property
    def blank(self) -> str:
        # a chat template ends with a line break, a plain prompt with "Answer:"
        return "" if self.config.prompt == "chat" else super().blank

    def needs(self) -> Needs:
        return causal_needs(self.model, self.max_new_tokens, self.limit, at_once=self.max_new_tokens + 1)

    def likelihoods(self, prompts: Sequence[Prompt], asked: Sequence[Asked]) -> list[float]:
        found: dict[Asked, torch.Tensor] = {}
        for prefix, places in by_prefix(prompts).items():
            here = set(places)
            own = [row for row in asked if row.place in here]
            for rows in self.batched(own, prompts):
                found |= zip(rows, self._likelihoods(prefix, prompts, rows), strict=True)
        return torch.stack([found[row] for row in asked]).tolist() if asked else []

    def _likelihoods(
        self, prefix: Ids, prompts: Sequence[Prompt], rows: Sequence[Asked]
    ) -> list[torch.Tensor]:
        rests = [(*prompts[row.place].segments[0][len(prefix) :], *row.gold) for row in rows]
        ids, mask, cache = self.padded(prefix, rests)
        num_known = len(prefix) if cache is not None else 0
        longest = max(len(row.gold) for row in rows) + 1
        wanted = {
            "position_ids": (mask.cumsum(dim=1) - 1).clamp(min=0)[:, num_known:],
            "logits_to_keep": longest,
        }
        taken = inspect.signature(self.model.forward).parameters
        logits = self.model(
            input_ids=ids[:, num_known:],
            attention_mask=mask,
            past_key_values=cache,
            **{name: value for name, value in wanted.items() if name in taken},
        ).logits
        return [
            self.likelihood(own[logits.shape[1] - len(row.gold) - 1 :], row.gold, self._ends)
            for own, row in zip(logits, rows, strict=True)
        ]
