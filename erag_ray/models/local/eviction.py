"""Greedy decoding by transformers' ``generate``, a few tokens at a time; finished sequences are evicted in between."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from erag_ray.models.local.memory import to_device

CHECK_EVERY = 8
"""Number of tokens between two evictions."""
Ids = list[int]


def generate_with_eviction(
    model: Any, ids: torch.Tensor, mask: torch.Tensor, cache: Any, decoding: Any, ends: Collection[int]
) -> list[Ids]:
    """Return the output tokens of each row, up to its end or a few tokens further.

    Args:
        model: of transformers.
        ids: [rows, tokens], prompts with padding.
        mask: [rows, tokens], 0 at padding.
        cache: plain keys and values of the first tokens, with ``batch_select_indices``.
        decoding: a GenerationConfig, with ``max_new_tokens``.
        ends: tokens that end an output.
    """
    start, max_length = ids.shape[1], ids.shape[1] + decoding.max_new_tokens
    decoding.return_dict_in_generate = True
    end = torch.tensor(sorted(ends), device=ids.device, dtype=torch.long)
    rows, outputs = list(range(len(ids))), dict[int, Ids]()
    while rows:
        num_before = ids.shape[1]
        decoding.max_new_tokens = min(CHECK_EVERY, max_length - num_before)
        ids = model.generate(
            input_ids=ids, attention_mask=mask, past_key_values=cache, generation_config=decoding
        ).sequences
        is_full = ids.shape[1] == max_length
        # each tolist() synchronises with the device once for all rows
        has_ended = (torch.isin(ids[:, num_before:], end).any(dim=1) | is_full).tolist()
        tokens = ids[:, start:].tolist()
        outputs |= {rows[i]: tokens[i] for i, is_done in enumerate(has_ended) if is_done}
        remaining = [i for i, is_done in enumerate(has_ended) if not is_done]
        rows = [rows[i] for i in remaining]
        index = to_device(torch.tensor(remaining, dtype=torch.long), ids.device)
        mask = torch.cat([mask, mask.new_ones(len(ids), ids.shape[1] - num_before)], dim=1)[index]
        ids = ids[index]
        cache.batch_select_indices(index)
    return [outputs[row] for row in range(len(outputs))]
