"""Segments -> encoder states side by side, one row for each prompt. Shared by inference and training.

What the host does for a pass (padding, places) needs no device, so it can be done while the device works on another.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from erag_ray.models.local.memory import reusable, to_device
from erag_ray.models.local.model import PromptTokens
from erag_ray.models.local.word_cache import Ids
from erag_ray.models.t5.attention import within

Places = npt.NDArray[np.int64]


class Padded(NamedTuple):
    """Segments of one pass of an encoder, on the host.

    Attributes:
        ids: [segments, width], 0 behind each.
        lengths: tokens of each.
        tokens: places in the flattened ``ids`` that hold a token.
    """

    ids: torch.Tensor
    lengths: Sequence[int]
    tokens: torch.Tensor


class Fused(NamedTuple):
    """The states of each prompt's segments, one after the other.

    Attributes:
        states: [prompts, width, size], 0 behind each.
        lengths: states of each prompt.
    """

    states: torch.Tensor
    lengths: Sequence[int]

    @property
    def is_state(self) -> torch.Tensor:
        """[prompts, width], False behind each prompt's states."""
        return within(self.lengths, self.states.shape[1], self.states.device)


Encode = Callable[[Padded], torch.Tensor]
"""The states of all tokens, one after the other: [tokens, size]."""


@dataclass(frozen=True, kw_only=True)
class Passes:
    """The distinct segments of some prompts, as an encoder gets them."""

    batches: Sequence[Padded]
    starts: Mapping[Ids, int]
    """Where each segment's states will begin."""
    num_tokens: int


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """The states of some segments.

    Attributes:
        states: [tokens + 1, size]; the last row is 0, for padding.
        starts: where each segment's states begin.
        multiple: widths of batches are multiples of it.
    """

    states: torch.Tensor
    starts: Mapping[Ids, int]
    multiple: int = 1

    def holds(self, prompts: Sequence[PromptTokens]) -> bool:
        """Whether every segment of these prompts is among them."""
        return all(segment in self.starts for prompt in prompts for segment in prompt.segments)

    def fused(self, prompts: Sequence[PromptTokens]) -> Fused:
        """The states of each prompt's segments, one after the other."""
        segments = [segment for prompt in prompts for segment in prompt.segments]
        starts = np.array([self.starts[segment] for segment in segments])
        lengths = np.array(list(map(len, segments)))
        totals = np.array([prompt.length for prompt in prompts])
        places, is_state = _table(ranges(starts, lengths), totals, self.multiple, fill=len(self.states) - 1)
        index = to_device(torch.from_numpy(places.ravel()), self.states.device)
        states = self.states.index_select(0, index).view(*is_state.shape, -1)
        return Fused(states, totals.tolist())


def ranges(starts: Places, lengths: Places) -> Places:
    """start, start + 1, ... of each, so many, one after the other."""
    before = np.cumsum(lengths) - lengths
    places: Places = np.arange(lengths.sum()) + np.repeat(starts - before, lengths)
    return places


def _table(
    values: Places, lengths: Places, multiple: int, *, fill: int
) -> tuple[Places, npt.NDArray[np.bool_]]:
    """Values one after the other, as rows of so many, behind which ``fill`` stands; and where the values are."""
    width = -(-int(lengths.max()) // multiple) * multiple
    is_value = np.arange(width) < lengths[:, None]
    rows = np.full(is_value.shape, fill, np.int64)
    rows[is_value] = values
    return rows, is_value


def padded(segments: Sequence[Ids], multiple: int = 1) -> Padded:
    """Segments as an encoder gets them; the width is a multiple of a number that suits the device."""
    lengths = np.array(list(map(len, segments)))
    values = np.fromiter(itertools.chain.from_iterable(segments), np.int64, int(lengths.sum()))
    ids, is_token = _table(values, lengths, multiple, fill=0)
    tokens = np.flatnonzero(is_token)
    return Padded(torch.from_numpy(ids), lengths.tolist(), torch.from_numpy(tokens))


def arrange(prompts: Sequence[PromptTokens], batch_tokens: int, multiple: int = 1) -> Passes:
    """The passes in which all segments of some prompts are encoded, each distinct one once.

    Args:
        prompts: as their model's ``render`` gives them.
        batch_tokens: most padded tokens in one pass of the encoder; one longer segment goes alone.
        multiple: of the width of each pass.
    """
    segments = list(dict.fromkeys(segment for prompt in prompts for segment in prompt.segments))
    batches = list(_batches(segments, batch_tokens))
    ordered = list(itertools.chain.from_iterable(batches))
    ends = list(itertools.accumulate(map(len, ordered), initial=0))
    return Passes(
        batches=[padded(batch, multiple) for batch in batches],
        starts=dict(zip(ordered, ends[:-1], strict=True)),
        num_tokens=ends[-1],
    )


def encode_all(encode: Encode, passes: Passes, multiple: int = 1) -> Encoded:
    """The states of the segments of some passes."""
    states = _joined(map(encode, passes.batches), passes.num_tokens)
    return Encoded(states=states, starts=passes.starts, multiple=multiple)


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


def fuse(model: Any, prompts: Sequence[PromptTokens], batch_tokens: int) -> Fused:
    """`Encoded.fused` of prompts by transformers' own encoder, through which gradients flow."""
    passes = arrange(prompts, batch_tokens)
    return encode_all(functools.partial(_encode, model), passes).fused(prompts)


def _batches(segments: Sequence[Ids], batch_tokens: int) -> Iterator[list[Ids]]:
    """Segments of similar length together, longest first."""
    by_length = sorted(segments, key=len, reverse=True)
    rows = max(1, batch_tokens // max(map(len, by_length)))
    for start in range(0, len(by_length), rows):
        yield by_length[start : start + rows]


def _encode(model: Any, batch: Padded) -> torch.Tensor:
    device = model.device
    mask = within(batch.lengths, batch.ids.shape[1], device)
    found = model.get_encoder()(input_ids=to_device(batch.ids, device), attention_mask=mask.long())
    return flat(found.last_hidden_state, batch)


def flat(states: torch.Tensor, batch: Padded) -> torch.Tensor:
    """The states of a pass, [segments, width, size], without those of padding: [tokens, size]."""
    return states.flatten(0, 1).index_select(0, to_device(batch.tokens, states.device))
