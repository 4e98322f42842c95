"""Encoder cache: each distinct segment is encoded once, and a prompt gets the states of its segments concatenated.

Shared by inference and training. Preparing a pass (padding, indices) needs only the host, so it can overlap with the
device's work on another pass.
"""

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
from erag_ray.models.t5.attention import token_mask

Indices = npt.NDArray[np.int64]


class Padded(NamedTuple):
    """Segments of one pass of an encoder, on the host."""

    ids: torch.Tensor
    """[segments, width], padded with 0."""
    lengths: Sequence[int]
    tokens: torch.Tensor
    """Indices into the flattened ``ids`` of the tokens that are not padding."""


class EncoderStates(NamedTuple):
    """The concatenated encoder states of each prompt's segments."""

    states: torch.Tensor
    """[prompts, width, size], padded with 0."""
    lengths: Sequence[int]

    @property
    def is_state(self) -> torch.Tensor:
        """Return [prompts, width], False at padding."""
        return token_mask(self.lengths, self.states.shape[1], self.states.device)


Encode = Callable[[Padded], torch.Tensor]
"""A pass of the encoder: returns the states of all tokens, [tokens, size]."""


@dataclass(frozen=True, kw_only=True)
class Passes:
    """The distinct segments of some prompts, in batches for an encoder."""

    batches: Sequence[Padded]
    starts: Mapping[Ids, int]
    """The index of each segment's first state."""
    num_tokens: int
    multiple: int
    """The widths of batches are multiples of it."""


@dataclass(frozen=True, kw_only=True)
class EncoderCache:
    """Encoder states of distinct segments; ``starts`` and ``multiple`` as of `Passes`."""

    states: torch.Tensor
    """[tokens + 1, size]; the last row is 0, for padding."""
    starts: Mapping[Ids, int]
    multiple: int = 1

    def gather(self, prompts: Sequence[PromptTokens]) -> EncoderStates:
        """Return the concatenated states of each prompt's segments."""
        segments = [segment for prompt in prompts for segment in prompt.segments]
        starts = np.array([self.starts[segment] for segment in segments])
        lengths = np.array(list(map(len, segments)))
        totals = np.array([prompt.length for prompt in prompts])
        indices, is_state = _table(ranges(starts, lengths), totals, self.multiple, fill=len(self.states) - 1)
        index = to_device(torch.from_numpy(indices.ravel()), self.states.device)
        return EncoderStates(self.states.index_select(0, index).view(*is_state.shape, -1), totals.tolist())


def ranges(starts: Indices, lengths: Indices) -> Indices:
    """Return the concatenated ranges start, start + 1, ..., start + length - 1."""
    return np.arange(lengths.sum()) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)


def _table(
    values: Indices, lengths: Indices, multiple: int, *, fill: int
) -> tuple[Indices, npt.NDArray[np.bool_]]:
    width = -(-int(lengths.max()) // multiple) * multiple
    is_value = np.arange(width) < lengths[:, None]
    rows = np.full(is_value.shape, fill, np.int64)
    rows[is_value] = values
    return rows, is_value


def padded(segments: Sequence[Ids], multiple: int = 1) -> Padded:
    """Pad segments for one pass of an encoder, to a multiple of ``multiple`` tokens."""
    lengths = np.array(list(map(len, segments)))
    values = np.fromiter(itertools.chain.from_iterable(segments), np.int64, int(lengths.sum()))
    ids, is_token = _table(values, lengths, multiple, fill=0)
    return Padded(torch.from_numpy(ids), lengths.tolist(), torch.from_numpy(np.flatnonzero(is_token)))


def arrange(prompts: Sequence[PromptTokens], batch_tokens: int, multiple: int = 1) -> Passes:
    """Return the passes that encode each distinct segment of some prompts once.

    A pass has at most ``batch_tokens`` tokens, padding included; a longer segment is a pass by itself. Widths are
    multiples of ``multiple``.
    """
    segments = list(dict.fromkeys(segment for prompt in prompts for segment in prompt.segments))
    batches = list(_batches(segments, batch_tokens))
    ordered = list(itertools.chain.from_iterable(batches))
    ends = list(itertools.accumulate(map(len, ordered), initial=0))
    return Passes(
        batches=[padded(batch, multiple) for batch in batches],
        starts=dict(zip(ordered, ends[:-1], strict=True)),
        num_tokens=ends[-1],
        multiple=multiple,
    )


def encode_all(encode: Encode, passes: Passes) -> EncoderCache:
    states = _joined(map(encode, passes.batches), passes.num_tokens)
    return EncoderCache(states=states, starts=passes.starts, multiple=passes.multiple)


def _joined(parts: Iterator[torch.Tensor], num_tokens: int) -> torch.Tensor:
    """Concatenate the states of all tokens, and append a row of 0."""
    first = next(parts)
    end = first.new_zeros(1, first.shape[1])
    if first.requires_grad:
        return torch.cat([first, *parts, end])
    # each part is freed once it is copied, so that the states never take memory twice
    states, start = reusable((num_tokens + 1, first.shape[1]), first), 0
    for part in itertools.chain([first], parts, [end]):
        states[start : start + len(part)] = part
        start += len(part)
    return states


def encode_prompts(model: Any, prompts: Sequence[PromptTokens], batch_tokens: int) -> EncoderStates:
    """Return the encoder states of prompts by transformers' encoder, with gradients."""
    return encode_all(functools.partial(_encode, model), arrange(prompts, batch_tokens)).gather(prompts)


def _batches(segments: Sequence[Ids], batch_tokens: int) -> Iterator[list[Ids]]:
    """Yield batches of segments of similar length, longest first."""
    by_length = sorted(segments, key=len, reverse=True)
    rows = max(1, batch_tokens // max(map(len, by_length)))
    for start in range(0, len(by_length), rows):
        yield by_length[start : start + rows]


def _encode(model: Any, batch: Padded) -> torch.Tensor:
    device = model.device
    mask = token_mask(batch.lengths, batch.ids.shape[1], device)
    outputs = model.get_encoder()(input_ids=to_device(batch.ids, device), attention_mask=mask.long())
    return flat(outputs.last_hidden_state, batch)


def flat(states: torch.Tensor, batch: Padded) -> torch.Tensor:
    """Remove the states of padding from those of a pass: [segments, width, size] to [tokens, size]."""
    return states.flatten(0, 1).index_select(0, to_device(batch.tokens, states.device))
