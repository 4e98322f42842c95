"""Greedy decoding by transformers' ``generate``, a few tokens at a time: what has ended leaves the batch in between."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from erag_ray.models.local.memory import to_device

CHECK_EVERY = 8
"""Tokens between two looks at which rows have ended."""
Ids = list[int]


def generate_leaving(
    model: Any, ids: torch.Tensor, mask: torch.Tensor, cache: Any, decoding: Any, ends: Collection[int]
) -> list[Ids]:
    """What each row writes, up to its end or a few tokens further.

    Args:
        model: transformers' own.
        ids: [rows, tokens], prompts with padding.
        mask: [rows, tokens], 0 at padding.
        cache: of plain keys and values for the first tokens; rows can be taken out of it.
        decoding: a GenerationConfig, with ``max_new_tokens``.
        ends: tokens that end an output.
    """
    start, most = ids.shape[1], decoding.max_new_tokens
    decoding.return_dict_in_generate = True
    end = torch.tensor(sorted(ends), device=ids.device, dtype=torch.long)
    places, done = list(range(len(ids))), dict[int, Ids]()
    while places:
        num_before = ids.shape[1]
        decoding.max_new_tokens = min(CHECK_EVERY, start + most - num_before)
        ids = model.generate(
            input_ids=ids, attention_mask=mask, past_key_values=cache, generation_config=decoding
        ).sequences
        is_whole = ids.shape[1] == start + most
        # each is one wait for the device, however many rows there are
        has_ended = (torch.isin(ids[:, num_before:], end).any(dim=1) | is_whole).tolist()
        written = ids[:, start:].tolist()
        done |= {places[row]: written[row] for row, is_done in enumerate(has_ended) if is_done}
        rows = [row for row, is_done in enumerate(has_ended) if not is_done]
        places = [places[row] for row in rows]
        left = to_device(torch.tensor(rows, dtype=torch.long), ids.device)
        mask = torch.cat([mask, mask.new_ones(len(ids), ids.shape[1] - num_before)], dim=1)[left]
        ids = ids[left]
        cache.batch_select_indices(left)
    return [done[place] for place in range(len(done))]
