"""Key-value caches of decoder-only models: preallocated memory for a batch, and a cache of shared prompt prefixes.

A prefix (instruction and worked examples) is computed once and reused by every batch.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import transformers

from erag_ray.models.local.memory import reusable
from erag_ray.models.local.word_cache import Ids

MIN_TOKENS = 16
"""Shorter prefixes are not cached."""
ANY_TOKEN = (0,)
States = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each layer: [1, heads, tokens, head]."""


class ReservedLayer(transformers.cache_utils.DynamicLayer):
    """Keys and values of one layer in preallocated memory.

    transformers' own layer is copied for each token, which doubles its peak memory.

    Args:
        capacity: the largest number of tokens in a row.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._capacity = capacity
        self._memory: list[torch.Tensor] = []

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True
        for states in (key_states, value_states):
            shape = [*states.shape[:-2], self._capacity, states.shape[-1]]
            self._memory.append(reusable(shape, states))
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

    def reset(self) -> None:
        raise NotImplementedError("this cache serves a single batch")

    def crop(self, tokens_to_remove: int) -> None:
        raise NotImplementedError("this cache supports greedy decoding only")

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        raise NotImplementedError("this cache supports greedy decoding only")

    def batch_repeat_interleave(self, repeats: int) -> None:
        raise NotImplementedError("this cache supports greedy decoding only")

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

    def __len__(self) -> int:
        """Return the number of prefixes whose states are in memory."""
        return len(self._states)

    def make(self, prefix: Ids, num_rows: int, capacity: int) -> tuple[Any | None, int]:
        """Return a cache, or None if this model gets none, and the number of prefix tokens in it.

        Args:
            prefix: the tokens with which all rows start.
            num_rows: of the batch.
            capacity: the largest number of tokens in a row, including the prefix.
        """
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
