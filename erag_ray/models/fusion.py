"""Segments -> encoder states side by side, one row for each prompt. Shared by reading and training."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from erag_ray.models.local import PromptTokens
from erag_ray.models.memory import reusable
from erag_ray.models.tokens import Ids

Encode = Callable[[Sequence[Ids]], torch.Tensor]
"""Segments of similar length -> their states, one after the other: [tokens, width], without padding."""


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """The states of some segments."""

    states: torch.Tensor
    """[tokens + 1, width]; the last row is 0, for padding."""
    starts: Mapping[Ids, int]
    """Where each segment's states begin."""

    def holds(self, prompts: Sequence[PromptTokens]) -> bool:
        """Whether every segment of these prompts is among them."""
        return all(segment in self.starts for prompt in prompts for segment in prompt.segments)

    def fused(self, prompts: Sequence[PromptTokens]) -> tuple[torch.Tensor, torch.Tensor]:
        """The states of each prompt's segments, one after the other.

        Returns:
            States [prompts, tokens, width], 0 where a prompt has ended; and [prompts, tokens], which of them count.
        """
        rows = [torch.cat([self._places(segment) for segment in prompt.segments]) for prompt in prompts]
        nothing = len(self.states) - 1
        places = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=nothing)
        places = places.to(self.states.device)
        return self.states.index_select(0, places.flatten()).view(*places.shape, -1), places < nothing

    def _places(self, segment: Ids) -> torch.Tensor:
        start = self.starts[segment]
        return torch.arange(start, start + len(segment))


def encode_all(encode: Encode, prompts: Sequence[PromptTokens], batch_tokens: int) -> Encoded:
    """The states of all segments of some prompts, each distinct one encoded once.

    Args:
        encode: the encoder.
        prompts: as their model's ``render`` gives them.
        batch_tokens: most padded tokens in one pass of the encoder; one longer segment goes alone.
    """
    segments = list(dict.fromkeys(segment for prompt in prompts for segment in prompt.segments))
    batches = list(_batches(segments, batch_tokens))
    starts: dict[Ids, int] = {}
    num_tokens = 0
    for segment in (segment for batch in batches for segment in batch):
        starts[segment] = num_tokens
        num_tokens += len(segment)
    return Encoded(states=_joined(map(encode, batches), num_tokens), starts=starts)


def _joined(parts: Iterator[torch.Tensor], num_tokens: int) -> torch.Tensor:
    """The states of so many tokens one after the other, and a row of 0."""
    first = next(parts)
    end = first.new_zeros(1, first.shape[1])
    if first.requires_grad:
        return torch.cat([first, *parts, end])
    # each part goes once it is copied, so that they never take memory twice
    states, start = reusable((num_tokens + 1, first.shape[1]), first), 0
    for part in itertools.chain([first], parts, [end]):
        states[start : start + len(part)] = part
        start += len(part)
    return states


def fuse(model: Any, prompts: Sequence[PromptTokens], batch_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`Encoded.fused` of prompts by transformers' own encoder, through which gradients flow; the mask as 0 and 1."""
    states, is_state = encode_all(functools.partial(_encode, model), prompts, batch_tokens).fused(prompts)
    return states, is_state.long()


def _batches(segments: Sequence[Ids], batch_tokens: int) -> Iterator[list[Ids]]:
    """Segments of similar length together, longest first."""
    by_length = sorted(segments, key=len, reverse=True)
    rows = max(1, batch_tokens // max(map(len, by_length)))
    for start in range(0, len(by_length), rows):
        yield by_length[start : start + rows]


def _encode(model: Any, batch: Sequence[Ids]) -> torch.Tensor:
    ids, is_token = padded(batch)
    mask = is_token.to(model.device)
    found = model.get_encoder()(input_ids=ids.to(model.device), attention_mask=mask.long())
    states: torch.Tensor = found.last_hidden_state[mask]
    return states


def padded(segments: Sequence[Ids]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids [segments, tokens], 0 behind each; and which of them count."""
    ids = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(segment, dtype=torch.long) for segment in segments], batch_first=True
    )
    lengths = torch.tensor([len(segment) for segment in segments])
    return ids, torch.arange(ids.shape[1])[None, :] < lengths[:, None]
