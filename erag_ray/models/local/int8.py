"""Products of 8-bit integers: weights rounded once, inputs as they come, a scale for each output and each token.

Zeroes of both lie at 0, so a product is the sum of integer products, exactly, times two scales (as in Dettmers et al.,
LLM.int8(), NeurIPS 2022, section 2.1, "vector-wise", without its outliers in higher precision). A token's result is
independent of the others in its batch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from erag_ray.errors import JobError
from erag_ray.models.local.quantize import MIDDLE, MOST, into_bytes, normed_into_bytes, relu_into_bytes


class Int8(NamedTuple):
    """The weights of one linear layer."""

    packed: Tensor
    """[outputs, inputs] in the product's own order."""
    scales: Tensor
    """[outputs]: a weight is its integer times this."""
    zeros: Tensor
    """[outputs], 0."""


class Inputs(NamedTuple):
    """What a linear layer takes: a number is its byte, less ``zero``, times its row's scale."""

    bytes_: Tensor
    """[rows, inputs]."""
    scales: Tensor
    """[rows, 1]."""
    zero: int


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


def inputs_of(states: Tensor) -> Inputs:
    """States [..., width], rounded."""
    return Inputs(*into_bytes(_flat(states)), MIDDLE)


def normed_inputs(states: Tensor, weight: Tensor, epsilon: float) -> Inputs:
    """States [..., width], normed by the root of their mean square (Zhang & Sennrich, NeurIPS 2019), rounded."""
    return Inputs(*normed_into_bytes(_flat(states), weight, epsilon), MIDDLE)


def relu_inputs(given: Inputs, weights: Int8) -> Inputs:
    """What is above 0 of a product, rounded."""
    return Inputs(*relu_into_bytes(product(given, weights), given.scales), 0)


def product(given: Inputs, weights: Int8) -> Tensor:
    """[rows, outputs], but for the rows' scales."""
    found: Tensor = torch.ops.onednn.qlinear_pointwise(
        *(given.bytes_, 1.0, given.zero),
        *(weights.packed, weights.scales, weights.zeros),
        None,  # bias
        *(1.0, 0, torch.float32),
        *("none", [], ""),
    )
    return found


def _flat(states: Tensor) -> Tensor:
    return states.reshape(-1, states.shape[-1])
