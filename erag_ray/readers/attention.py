"""Attention of an encoder's tokens to each other, without the scaling that T5 leaves out (Raffel et al., 2020, 2.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

ONE_BY_ONE = 100
"""From so many tokens on, a CPU is faster with one segment after the other, whose scores stay in its caches."""


class Attending:
    """Attention within the segments of one pass.

    Args:
        biases: [1, heads, tokens, tokens], of the position of each token to each, by a name.
        is_token: [segments, tokens], False behind the end of each.
        lengths: of each segment; the same again, which would have to be waited for on a GPU.
    """

    def __init__(self, biases: Mapping[int, Tensor], is_token: Tensor, lengths: Sequence[int]) -> None:
        self.biases = biases
        self.is_token = is_token
        is_one_by_one = is_token.device.type == "cpu" and max(lengths) >= ONE_BY_ONE
        self.lengths = lengths if is_one_by_one else None
        hidden = None if is_one_by_one or min(lengths) == max(lengths) else self._hidden(biases)
        self.masks = biases if hidden is None else {key: bias + hidden for key, bias in biases.items()}

    def _hidden(self, biases: Mapping[int, Tensor]) -> Tensor:
        dtype = next(iter(biases.values())).dtype
        return hidden(self.is_token, dtype)[:, None, None, :]

    def __call__(self, projected: Tensor, bias: int) -> Tensor:
        """Weighted means of values.

        Args:
            projected: [segments, tokens, 3, heads, head]: queries, keys and values.
            bias: the name of one.

        Returns:
            [segments, tokens, heads * head]; behind the end of a segment whatever numbers.
        """
        if self.lengths is not None:
            return _one_by_one(projected, self.lengths, self.biases[bias][0])
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=self.masks[bias], scale=1.0
        )
        return found.transpose(1, 2).flatten(2)


def _one_by_one(projected: Tensor, lengths: Sequence[int], bias: Tensor) -> Tensor:
    found = projected.new_zeros(projected.shape[0], projected.shape[1], *projected.shape[3:])
    for row, length in enumerate(lengths):
        query, key, value = projected[row, :length].permute(1, 2, 0, 3)
        scores = torch.bmm(query, key.transpose(1, 2)).add_(bias[:, :length, :length])
        found[row, :length] = torch.bmm(scores.softmax(dim=-1), value).transpose(0, 1)
    return found.flatten(2)


def hidden(is_token: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where there is a token, and the least number elsewhere: what is added to scores."""
    least = torch.finfo(dtype).min
    return torch.zeros(is_token.shape, dtype=dtype, device=is_token.device).masked_fill(~is_token, least)
