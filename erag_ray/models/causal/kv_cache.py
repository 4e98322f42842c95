"""Key-value caches of decoder-only models, and decoding from which finished sequences are evicted.

A prefix that prompts share (instruction and worked examples) is computed once and reused by every batch.
"""

import inspect
from collections.abc import Collection
from typing import Any

import torch
import transformers

from erag_ray.models.local.memory import reusable, to_device
from erag_ray.models.local.word_cache import Ids

MIN_TOKENS = 16
"""Shorter prefixes are not cached."""
ANY_TOKEN = (0,)
CHECK_EVERY = 8
"""Number of tokens between two evictions."""
States = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each layer: [1, heads, tokens, head]."""


class ReservedLayer(transformers.cache_utils.DynamicLayer):
    """Keys and values of one layer in preallocated memory, for rows of at most ``capacity`` tokens.

    transformers' own layer is copied for each token, which doubles its peak memory.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._capacity = capacity
        self._memory: list[torch.Tensor] = []

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True
        for states in (key_states, value_states):
            self._memory.append(reusable([*states.shape[:-2], self._capacity, states.shape[-1]], states))
        self._show(0)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        stop = start + key_states.shape[-2]
        for memory, states in zip(self._memory, (key_states, value_states), strict=True):
            memory[..., start:stop, :] = states
        return self._show(stop)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        for index, memory in enumerate(self._memory):
            self._memory[index] = memory[indices]
        if self._memory:
            self._show(self.get_seq_length())

    def _show(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = (memory[..., :length, :] for memory in self._memory)
        self.keys, self.values = keys, values
        return keys, values


class KeyValueCaches:
    """Caches for the batches of one model.

    Only for models whose state consists of plain keys and values, and that take ``position_ids``: prompts of different
    lengths have padding between the shared prefix and the rest. Models with sliding windows, recurrent states, no
    cache, or positions derived from the cache get none, and compute every prompt from its start.

    A prompt has two prefixes, with and without passages, so at most two states of each prompt stay in memory.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._states: dict[Ids, States | None] = {}

    def make(self, prefix: Ids, num_rows: int, capacity: int) -> tuple[Any | None, int]:
        """Return a cache, or None if this model gets none, and the number of prefix tokens in it."""
        cached = prefix if len(prefix) >= MIN_TOKENS else ()
        states = self._states_of(cached)
        if states is None:
            return None, 0
        cache = transformers.DynamicCache()
        cache.layers = [ReservedLayer(capacity) for _ in states]
        for layer, (keys, values) in enumerate(states if cached else ()):
            cache.update(keys.expand(num_rows, -1, -1, -1), values.expand(num_rows, -1, -1, -1), layer)
        return cache, len(cached)

    def _states_of(self, prefix: Ids) -> States | None:
        """Return the states of a prefix, or of an arbitrary token if it is empty; None if the model gets no cache."""
        if "position_ids" not in inspect.signature(self.model.forward).parameters:
            return None
        if prefix not in self._states:
            self._states[prefix] = self._computed(prefix or ANY_TOKEN)
        return self._states[prefix]

    def _computed(self, ids: Ids) -> States | None:
        tokens = torch.tensor([ids], device=self.model.device)
        outputs = self.model(input_ids=tokens, use_cache=True, logits_to_keep=1)
        # some models have no cache
        layers = getattr(getattr(outputs, "past_key_values", None), "layers", [])
        if not layers or any(type(layer) is not transformers.cache_utils.DynamicLayer for layer in layers):
            return None
        return [(layer.keys, layer.values) for layer in layers]


def generate_with_eviction(
    model: Any, ids: torch.Tensor, mask: torch.Tensor, cache: Any, decoding: Any, ends: Collection[int]
) -> list[list[int]]:
    """Decode greedily by transformers' ``generate``, a few tokens at a time, and evict finished rows in between.

    Return the output tokens of each row, up to its end or a few tokens further. ``ids`` and ``mask`` [rows, tokens] are
    prompts with padding; ``cache`` has plain keys and values of their first tokens; ``decoding`` is a GenerationConfig.
    """
    start, max_length = ids.shape[1], ids.shape[1] + decoding.max_new_tokens
    decoding.return_dict_in_generate = True
    end = torch.tensor(sorted(ends), device=ids.device, dtype=torch.long)
    rows, outputs = list(range(len(ids))), dict[int, list[int]]()
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
