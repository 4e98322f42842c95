"""The start that many prompts share (instruction and worked examples), read once and reused by every batch."""

from __future__ import annotations

import inspect
from typing import Any

import torch
import transformers

from erag_ray.models.word_cache import Ids

MIN_TOKENS = 16


class SharedPrefix:
    """Keys and values of prompt prefixes of one model.

    Only for models whose whole state is plain keys and values and which are told each token's position; others
    (sliding windows, recurrent states, no cache at all, positions counted in it) get none, and read the prefix with
    every prompt: in a batch, prompts of different lengths have padding between the cached prefix and their rest.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._states: dict[Ids, list[tuple[torch.Tensor, torch.Tensor]] | None] = {}

    def cache(self, prefix: Ids, num_rows: int) -> Any | None:
        """A fresh cache that holds the prefix for each of ``num_rows`` prompts; None if it does not pay or work."""
        if len(prefix) < MIN_TOKENS or "position_ids" not in inspect.signature(self.model.forward).parameters:
            return None
        if prefix not in self._states:
            self._states[prefix] = self._read(prefix)
        states = self._states[prefix]
        if states is None:
            return None
        cache = transformers.DynamicCache()
        for layer, (keys, values) in enumerate(states):
            cache.update(keys.expand(num_rows, -1, -1, -1), values.expand(num_rows, -1, -1, -1), layer)
        return cache

    def _read(self, prefix: Ids) -> list[tuple[torch.Tensor, torch.Tensor]] | None:
        ids = torch.tensor([prefix], device=self.model.device)
        found = self.model(input_ids=ids, use_cache=True, logits_to_keep=1)
        # some models keep none at all
        layers = getattr(getattr(found, "past_key_values", None), "layers", [])
        if not layers or any(type(layer) is not transformers.cache_utils.DynamicLayer for layer in layers):
            return None
        return [(layer.keys, layer.values) for layer in layers]
