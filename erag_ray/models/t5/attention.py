"""Attention of T5, which does not scale scores (Raffel et al., 2020, section 2.1): within segments, and over states."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from erag_ray.models.local.memory import to_device

SEGMENTWISE_TOKENS = 100
"""From this length on, a CPU is faster with one segment at a time, whose scores stay in its caches."""
KERNEL_TOKENS = 512
"""From this length on, it is faster with a kernel that never materialises all scores of a segment."""

Biases = Mapping[int, Tensor]
"""By the id of a bias table: [heads, 2 * tokens - 1], the bias for each distance, from the most negative on."""
Attend = Callable[[Tensor, int], Tensor]
"""(queries, keys and values [segments, tokens, 3, heads, head], id of a bias table) -> weighted means of values
[segments, tokens, heads * head]; undefined behind the end of a segment."""


def attention_for(biases: Biases, lengths: Sequence[int], width: int) -> Attend:
    """Return the fastest attention for the segments of one pass."""
    device = next(iter(biases.values())).device
    if device.type == "cpu" and max(lengths) >= SEGMENTWISE_TOKENS:
        return SegmentwiseAttention(biases, lengths)
    return BatchedAttention(biases, lengths, width)


class BatchedAttention:
    """Attention of all segments at once, with padding."""

    def __init__(self, biases: Biases, lengths: Sequence[int], width: int) -> None:
        padding = padding_mask(lengths, width, next(iter(biases.values())))

        def mask(table: int) -> Tensor:
            bias = bias_matrix(biases[table], width)[None]
            return bias if padding is None else bias + padding

        # one table at a time, here and below: where each layer has a table, all would take much memory
        self.mask = functools.lru_cache(1)(mask)

    def __call__(self, projected: Tensor, bias: int) -> Tensor:
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        return _by_kernel(query, key, value, self.mask(bias)).transpose(1, 2).flatten(2)


class SegmentwiseAttention:
    """Attention of one segment at a time, without padding."""

    def __init__(self, biases: Biases, lengths: Sequence[int]) -> None:
        self.biases = biases
        self.lengths = lengths
        longest = max((length for length in lengths if length < KERNEL_TOKENS), default=1)
        self.short = functools.lru_cache(1)(lambda table: bias_matrix(biases[table], longest))

    def __call__(self, projected: Tensor, bias: int) -> Tensor:
        outputs = projected.new_zeros(projected.shape[0], projected.shape[1], *projected.shape[3:])
        for row, length in enumerate(self.lengths):
            query, key, value = projected[row, :length].permute(1, 2, 0, 3)
            if length < KERNEL_TOKENS:
                scores = torch.bmm(query, key.transpose(1, 2)).add_(self.short(bias)[:, :length, :length])
                means = torch.bmm(scores.softmax(dim=-1), value)
            else:
                # reversing the queries is cheaper than reversing the far larger bias matrix
                reversed_query = query.flip(1)[None]
                mask = reversed_bias_matrix(self.biases[bias], length)[None]
                means = _by_kernel(reversed_query, key[None], value[None], mask)[0].flip(1)
            outputs[row, :length] = means.transpose(0, 1)
        return outputs.flatten(2)


class Projections(NamedTuple):
    """The key and value projections of the encoder states in one layer, each [heads, head, width]."""

    keys: Tensor
    values: Tensor


class CopiedStates:
    """Cross-attention of rows with a copy of the encoder states each: [rows, states, width], padded to ``lengths``.

    The key projection is applied to the query instead of every state, and the value projection to the weighted mean of
    the states. Scores are the same numbers, q . (W h) = (W' q) . h, with far fewer operations for outputs with fewer
    tokens than a head has dimensions, and without keys and values of the encoder states, of which FiD has thousands for
    each question.
    """

    def __init__(self, states: Tensor, lengths: Sequence[int], layers: Sequence[Projections]) -> None:
        self.states = states
        self.layers = layers
        self.mask = padding_mask(lengths, states.shape[1], states)

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


def _by_kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0)


def reversed_bias_matrix(biases: Tensor, length: int) -> Tensor:
    """Return the bias of each pair of tokens, the last query first: a view [heads, length, length]."""
    middle = biases.shape[1] // 2
    # the biases of one query are those of the next query, shifted by one
    return biases[:, middle + 1 - length : middle + length].unfold(1, length, 1)


def bias_matrix(biases: Tensor, length: int) -> Tensor:
    """Return the bias of each pair of tokens, [heads, length, length]."""
    return reversed_bias_matrix(biases, length).flip(1)


def padding_mask(lengths: Sequence[int], width: int, like: Tensor) -> Tensor | None:
    """Return an additive mask for scores: 0 at tokens, the smallest number of the dtype at padding.

    It is [rows, 1, 1, width], or None if there is no padding.
    """
    if min(lengths) == width:
        return None
    least = torch.finfo(like.dtype).min
    mask = like.new_zeros(len(lengths), width).masked_fill_(~token_mask(lengths, width, like.device), least)
    return mask[:, None, None, :]


def token_mask(lengths: Sequence[int], width: int, device: torch.device) -> Tensor:
    """Return [rows, width], True at the tokens of each row."""
    return torch.arange(width, device=device) < to_device(torch.tensor(lengths), device)[:, None]
