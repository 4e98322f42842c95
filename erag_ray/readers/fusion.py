"""Segments -> encoder states side by side, one row for each prompt. Shared by reading and training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from erag_ray.readers.base import Prompt
from erag_ray.readers.tokens import Ids


def fuse(model: Any, prompts: Sequence[Prompt], batch_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The states of every prompt's segments, one after the other; each distinct segment is encoded once.

    Args:
        model: an encoder-decoder.
        prompts: as its reader's ``encode`` gives them.
        batch_tokens: most padded tokens in one pass of the encoder; one longer segment goes alone.

    Returns:
        States [prompts, tokens, width], 0 where a prompt has ended; and the mask [prompts, tokens] of those that count.
    """
    segments = list(dict.fromkeys(segment for prompt in prompts for segment in prompt.segments))
    batches = list(_batches(segments, batch_tokens))
    starts: dict[Ids, int] = {}
    num_tokens = 0
    for segment in (segment for batch in batches for segment in batch):
        starts[segment] = num_tokens
        num_tokens += len(segment)
    states = torch.cat([_encode(model, batch) for batch in batches])
    # one more row, of zeros, for the padding
    states = torch.cat([states, states.new_zeros(1, states.shape[1])])
    rows = [
        torch.cat(
            [torch.arange(starts[segment], starts[segment] + len(segment)) for segment in prompt.segments]
        )
        for prompt in prompts
    ]
    places = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=num_tokens)
    fused = states.index_select(0, places.flatten().to(states.device)).view(*places.shape, -1)
    return fused, (places < num_tokens).long().to(states.device)


def _batches(segments: Sequence[Ids], batch_tokens: int) -> Iterator[list[Ids]]:
    """Segments of similar length together, longest first."""
    by_length = sorted(segments, key=len, reverse=True)
    rows = max(1, batch_tokens // max(map(len, by_length)))
    for start in range(0, len(by_length), rows):
        yield by_length[start : start + rows]


def _encode(model: Any, batch: Sequence[Ids]) -> torch.Tensor:
    """Encoder states [tokens of all segments, width], without padding."""
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(segment) for segment in batch], batch_first=True)
    lengths = torch.tensor([len(segment) for segment in batch])
    mask = (torch.arange(ids.shape[1])[None, :] < lengths[:, None]).to(model.device)
    found = model.get_encoder()(input_ids=ids.to(model.device), attention_mask=mask.long())
    states: torch.Tensor = found.last_hidden_state[mask]
    return states
