"""Initialisation with which a small encoder-decoder learns to copy in hundreds of steps instead of thousands.

A reader's answers are spans of its passages: it must locate the entity, and copy. From random weights each of the two
has to be learned before the other pays off; here attention starts close to both (on initialising attention like that
of trained models: Trockman & Kolter, ICML 2023; on previous-token heads as the start of copying: Olsson et al., 2022):

- attention writes back what it reads (output projection = transposed value projection, orthogonal);
- a quarter of the encoder's heads attends to equal tokens at other positions (query projection = scaled key projection,
  and a position bias against the token itself: otherwise the output is the same with and without an equal token);
- the next quarter attends to neighbours: one token back, one ahead, two back, ...;
- if the words of the prompt template (question, title, context) are single tokens, `note_matches` adds features of what
  a passage has in common with its question.

The other heads keep their random weights: if all were set, the reader would learn to copy as fast, but would be worse
at finding what the question is about.
"""

from collections.abc import Sequence
from typing import Any

import torch

from erag_ray.extras.train.scratch.matching import note_matches

ENCODER_GAIN = 0.5
MATCH_LOGIT = 4.8
"""Mean logit of an equal token above other tokens."""
NEIGHBOUR_BIAS = 4.0
OTHER_BIAS = 0.1
SELF_BIAS = -8.0


@torch.no_grad()
def start_near_copying(model: Any, marks: Sequence[int] = ()) -> None:
    """Set the attention weights of a new T5 as described above, in place; its other weights are unchanged.

    ``marks`` open question, title and text in a prompt; without any, `note_matches` is skipped.
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
    """Set the position bias, which is the first layer's and shared by all."""
    bias = attention.relative_attention_bias.weight
    bias.mul_(OTHER_BIAS)
    for number, head in enumerate(range(attention.n_heads // 4, attention.n_heads // 2)):
        distance = number // 2 + 1
        bias[_bucket(attention, distance if number % 2 else -distance), head] = NEIGHBOUR_BIAS
    bias[_bucket(attention, 0), : attention.n_heads // 4] = SELF_BIAS


def _bucket(attention: Any, offset: int) -> Any:
    """Return the row of the position bias for tokens at an offset (positive: ahead)."""
    return attention._relative_position_bucket(
        torch.tensor(offset),
        bidirectional=True,
        num_buckets=attention.relative_attention_num_buckets,
        max_distance=attention.relative_attention_max_distance,
    )
