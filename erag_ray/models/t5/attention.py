"""Attention of an encoder's tokens to each other, without the scaling that T5 leaves out (Raffel et al., 2020, 2.1)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from erag_ray.models.local.memory import to_device

ONE_BY_ONE = 100
"""From so many tokens on, a CPU is faster with one segment after the other, whose scores stay in its caches."""
LONG = 512
"""From so many on, there, with a kernel that never has all scores of a segment at once."""

Biases = Mapping[int, Tensor]
"""[heads, 2 * tokens - 1]: the bias of a token to each distance, from the max_distance behind it on; by a name."""
Attend = Callable[[Tensor, int], Tensor]
"""Queries, keys and values, [segments, tokens, 3, heads, head], and the name of their biases -> weighted means of
values, [segments, tokens, heads * head]; behind the end of a segment whatever numbers."""


def attending(biases: Biases, lengths: Sequence[int], width: int) -> Attend:
    """Attention within the segments of one pass, in the way that is fast for them.

    Args:
        biases: of its tables.
        lengths: of each segment.
        width: of the pass: tokens of each segment with padding.
    """
    device = next(iter(biases.values())).device
    if device.type == "cpu" and max(lengths) >= ONE_BY_ONE:
        return OneByOne(biases, lengths)
    return Together(biases, lengths, width)


class Together:
    """All segments at once, as wide as the pass."""

    def __init__(self, biases: Biases, lengths: Sequence[int], width: int) -> None:
        behind = hidden(lengths, width, next(iter(biases.values())))

        def mask(name: int) -> Tensor:
            all_pairs = in_order(biases[name], width)[None]
            return all_pairs if behind is None else all_pairs + behind

        # of one table at a time, here and below: where each layer has its own, all would take much memory
        self.mask = functools.lru_cache(1)(mask)

    def __call__(self, projected: Tensor, bias: int) -> Tensor:
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        found = _by_kernel(query, key, value, self.mask(bias))
        return found.transpose(1, 2).flatten(2)


class OneByOne:
    """One segment after the other, without its padding."""

    def __init__(self, biases: Biases, lengths: Sequence[int]) -> None:
        self.biases = biases
        self.lengths = lengths
        longest = max((length for length in lengths if length < LONG), default=1)
        self.short = functools.lru_cache(1)(lambda name: in_order(biases[name], longest))

    def __call__(self, projected: Tensor, bias: int) -> Tensor:
        found = projected.new_zeros(projected.shape[0], projected.shape[1], *projected.shape[3:])
        for row, length in enumerate(self.lengths):
            query, key, value = projected[row, :length].permute(1, 2, 0, 3)
            if length < LONG:
                scores = torch.bmm(query, key.transpose(1, 2)).add_(self.short(bias)[:, :length, :length])
                means = torch.bmm(scores.softmax(dim=-1), value)
            else:
                # the query is turned round, and not a bias for each pair of tokens, of which there are far more
                turned, mask = query.flip(1)[None], last_first(self.biases[bias], length)[None]
                means = _by_kernel(turned, key[None], value[None], mask)[0].flip(1)
            found[row, :length] = means.transpose(0, 1)
        return found.flatten(2)


def _by_kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0)


def last_first(biases: Tensor, length: int) -> Tensor:
    """The bias of each of so many tokens to each, the last token first: [heads, length, length], without a copy."""
    middle = biases.shape[1] // 2
    # what one token is to all is what the one after it is to all, a step on
    return biases[:, middle + 1 - length : middle + length].unfold(1, length, 1)


def in_order(biases: Tensor, length: int) -> Tensor:
    """The bias of each of so many tokens to each, [heads, length, length]."""
    return last_first(biases, length).flip(1)


def hidden(lengths: Sequence[int], width: int, like: Tensor) -> Tensor | None:
    """What is added to scores: 0 for the first so many of each row, behind them the least number.

    Args:
        lengths: of each row.
        width: of all rows.
        like: has the device and the dtype.

    Returns:
        [rows, 1, 1, width]; None where nothing stands behind any row.
    """
    if min(lengths) == width:
        return None
    least = torch.finfo(like.dtype).min
    mask = like.new_zeros(len(lengths), width).masked_fill_(~within(lengths, width, like.device), least)
    return mask[:, None, None, :]


def within(lengths: Sequence[int], width: int, device: torch.device) -> Tensor:
    """[rows, width], True in the first so many places of each row."""
    return torch.arange(width, device=device) < to_device(torch.tensor(lengths), device)[:, None]
