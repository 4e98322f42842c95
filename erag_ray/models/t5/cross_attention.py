"""Cross-attention of T5's decoder over a copy of the encoder states for each row.

The key projection is applied to the query instead of every state, and the value projection to the weighted mean of the
states. Scores are the same numbers, q . (W h) = (W' q) . h, with far fewer operations for outputs with fewer tokens
than a head has dimensions, and without keys and values of the encoder states, of which FiD has thousands for each
question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor
from torch.nn import functional

from erag_ray.models.t5.attention import padding_mask
from erag_ray.models.t5.encoder_cache import EncoderStates


class Projections(NamedTuple):
    """The key and value projections of the encoder states in one layer, each [heads, head, width]."""

    keys: Tensor
    values: Tensor


class CopiedStates:
    """Cross-attention of rows with a padded copy of the encoder states each."""

    def __init__(self, states: EncoderStates, layers: Sequence[Projections]) -> None:
        self.states = states.states
        self.layers = layers
        self.mask = padding_mask(states.lengths, self.states.shape[1], self.states)

    def attend(self, query: Tensor, number: int) -> Tensor:
        """Return the means of values [rows, heads * head] for the queries [rows, heads, head] of layer ``number``."""
        layer = self.layers[number]
        # [rows, heads, width]: the queries in the space of the encoder states
        projected = (query.transpose(0, 1) @ layer.keys).transpose(0, 1)
        # the encoder states are both keys and values, and read from memory once
        keys_values = self.states[:, None]
        means = functional.scaled_dot_product_attention(
            projected[:, None], keys_values, keys_values, attn_mask=self.mask, scale=1.0
        )
        values = means[:, 0].transpose(0, 1) @ layer.values.transpose(1, 2)
        return values.transpose(0, 1).reshape(len(query), -1)

    def select(self, index: Tensor) -> None:
        self.states = self.states[index]
        self.mask = None if self.mask is None else self.mask[index]
