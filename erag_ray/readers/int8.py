"""Products of 8-bit integers: weights rounded once, inputs as they come, a scale for each output and each token.

Zeroes of both lie at 0, so a product is the sum of integer products, exactly, times two scales (as in Dettmers et al.,
LLM.int8(), NeurIPS 2022, section 2.1, "vector-wise", without its outliers in higher precision). A token's result is
independent of the others in its batch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from erag_ray.schemas import JobError

MOST = 127
MIDDLE = 128
"""Where 0 lies in the unsigned bytes that the product takes its inputs in."""


class Int8(NamedTuple):
    """The weights of one linear layer."""

    packed: Tensor
    """[outputs, inputs] in the product's own order."""
    scales: Tensor
    """[outputs]: a weight is its integer times this."""
    zeros: Tensor
    """[outputs], 0."""


Weights = Tensor | Int8
"""[outputs, inputs] of one linear layer."""


def is_supported() -> bool:
    """Whether this CPU adds up products of bytes without overflow (AVX-512 VNNI; older ones saturate at 16 bits)."""
    return torch.cpu._is_vnni_supported()


def check_supported(device: torch.device) -> None:
    """Refuse a machine that cannot.

    Raises:
        JobError: it is a GPU, or a CPU without these products.
    """
    if device.type != "cpu":
        raise JobError("reader.dtype: int8 is for CPUs; on a GPU bfloat16 is fast")
    if not is_supported():
        raise JobError("reader.dtype: this CPU does not multiply bytes (AVX-512 VNNI); use float32")


def rounded(weights: Tensor) -> Int8:
    """Float weights [outputs, inputs] as integers of -127 to 127."""
    scales = weights.abs().amax(dim=1).clamp(min=torch.finfo(weights.dtype).tiny) / MOST
    integers = (weights / scales[:, None]).round().to(torch.int8)
    packed = torch.ops.onednn.qlinear_prepack(integers, None)
    return Int8(packed, scales, torch.zeros(len(scales), dtype=torch.int))


def linear(states: Tensor, weights: Weights) -> Tensor:
    """States [..., inputs] times the transposed weights: [..., outputs]."""
    if not isinstance(weights, Int8):
        return functional.linear(states.to(weights.dtype), weights)
    flat = states.reshape(-1, states.shape[-1])
    # two steps: in one, a norm, torch takes ten times as long
    scales = flat.abs().amax(dim=1, keepdim=True).clamp_(min=torch.finfo(flat.dtype).tiny * MOST).div_(MOST)
    # .5 makes of cutting off what follows the point a rounding
    bytes_ = (flat / scales).add_(MIDDLE + 0.5).to(torch.uint8)
    products: Tensor = torch.ops.onednn.qlinear_pointwise(
        *(bytes_, 1.0, MIDDLE),
        *(weights.packed, weights.scales, weights.zeros),
        None,  # bias
        *(1.0, 0, torch.float32),
        *("none", [], ""),
    )
    return products.mul_(scales).view(*states.shape[:-1], -1)
