"""Weights from which a small encoder-decoder learns to copy in hundreds of steps instead of thousands.

A reader's answers stand in its passages: it must find who is meant, and copy. From random weights both wait for each
other; here attention starts close to what both need (on initialising attention like that of trained models: Trockman
& Kolter, ICML 2023; on heads that look one token back as the start of copying: Olsson et al., 2022):

- what attention reads it writes back as it was (output projection = transposed value projection, orthogonal);
- a quarter of the encoder's heads attends to equal tokens elsewhere (query projection = scaled key projection, and a
  position bias against a token's own place: else what a head reads is the same with and without an equal token);
- the next quarter looks at neighbours: one token back, one ahead, two back, ...;
- where the prompt's own words are tokens (question, title, context), `note_matches` adds what a passage has in common
  with its question.

The others stay as drawn: with all heads set so, a reader copies as soon, but finds less what a question asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from erag_ray.train.scratch.matching import note_matches

ENCODER_GAIN = 0.5
MATCH_LOGIT = 4.8
"""How much more than others an equal token gets before the softmax, on average."""
NEIGHBOUR_BIAS = 4.0
OTHER_BIAS = 0.1
OWN_PLACE_BIAS = -8.0


@torch.no_grad()
def start_near_copying(model: Any, marks: Sequence[int] = ()) -> None:
    """Set the attention weights of a new T5 as described above; its other weights stay as drawn.

    Args:
        model: a new T5, changed in place.
        marks: the tokens that open question, title and text in a prompt; none: nothing is noted of matches.
    """
    for block in model.decoder.block:
        _write_back(block.layer[1].EncDecAttention, 1.0)
    for block in model.encoder.block:
        attention = block.layer[0].SelfAttention
        _write_back(attention, ENCODER_GAIN)
        _match(attention, attention.n_heads // 4)
    _look_elsewhere(model.encoder.block[0].layer[0].SelfAttention)
    if marks:
        note_matches(model, marks)


def _write_back(attention: Any, gain: float) -> None:
    torch.nn.init.orthogonal_(attention.v.weight)
    attention.o.weight.copy_(gain * attention.v.weight.T)


def _match(attention: Any, num_heads: int) -> None:
    size = attention.key_value_proj_dim
    for head in range(num_heads):
        rows = slice(head * size, (head + 1) * size)
        keys = torch.nn.init.orthogonal_(torch.empty_like(attention.k.weight[rows]))
        attention.k.weight[rows] = keys
        attention.q.weight[rows] = MATCH_LOGIT / size * keys


def _look_elsewhere(attention: Any) -> None:
    """The position bias is the first layer's, and shared by all."""
    bias = attention.relative_attention_bias.weight
    bias.mul_(OTHER_BIAS)
    for number, head in enumerate(range(attention.n_heads // 4, attention.n_heads // 2)):
        distance = number // 2 + 1
        bias[_bucket(attention, distance if number % 2 else -distance), head] = NEIGHBOUR_BIAS
    bias[_bucket(attention, 0), : attention.n_heads // 4] = OWN_PLACE_BIAS


def _bucket(attention: Any, offset: int) -> Any:
    """The row of the position bias for tokens so many places ahead."""
    return attention._relative_position_bucket(
        torch.tensor(offset),
        bidirectional=True,
        num_buckets=attention.relative_attention_num_buckets,
        max_distance=attention.relative_attention_max_distance,
    )
