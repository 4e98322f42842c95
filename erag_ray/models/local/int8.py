"""Int8 linear layers: weights quantized once per output, inputs quantized per token at run time.

Quantization is symmetric (0 maps to 0), so a product is an exact sum of integer products times two scales (vector-wise
quantization of Dettmers et al., LLM.int8(), NeurIPS 2022, section 2.1, without its outliers in higher precision). A
token's result is independent of the others in its batch.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from erag_ray.models.local.quantize import (
    MIDDLE,
    MOST,
    MOST_POSITIVE,
    quantize,
    quantize_normed,
    quantize_relu,
)
from erag_ray.support.errors import JobError


class Int8(NamedTuple):
    """The quantized weights of one linear layer."""

    packed: Tensor
    """[outputs, inputs] in the memory layout of the kernel."""
    scales: Tensor
    """[outputs]: a weight is its integer times this."""
    zeros: Tensor
    """[outputs], 0."""


class Inputs(NamedTuple):
    """Quantized inputs of a linear layer: a value is (byte - ``zero``) times its row's scale."""

    bytes_: Tensor
    """[rows, inputs]."""
    scales: Tensor
    """[rows, 1]."""
    zero: int


@functools.cache
def is_supported() -> bool:
    """Return whether this process accumulates int8 products without overflow: the largest product comes out exactly.

    It needs AVX-512 VNNI, which DNNL_MAX_CPU_ISA can turn off. Without it, oneDNN saturates at 16 bits.
    """
    largest = Inputs(torch.full((1, 2), MOST_POSITIVE, dtype=torch.uint8), torch.ones(1, 1), 0)
    try:
        return product(largest, quantize_weights(torch.ones(1, 2))).item() == 2 * MOST_POSITIVE
    except (AttributeError, RuntimeError):
        # a build of torch without this kernel
        return False


def check_supported(device: torch.device) -> None:
    """Check that the device supports int8.

    Raises:
        JobError: it is a GPU, or a CPU without AVX-512 VNNI (see `is_supported`).
    """
    if device.type != "cpu":
        raise JobError("reader.dtype: int8 is for CPUs; on a GPU use bfloat16")
    if not is_supported():
        raise JobError(
            "reader.dtype: int8 needs a CPU with AVX-512 VNNI, and no DNNL_MAX_CPU_ISA that turns it off; use float32"
        )


def quantize_weights(weights: Tensor) -> Int8:
    """Quantize float weights [outputs, inputs] to integers of -127 to 127."""
    scales = weights.abs().amax(dim=1).clamp(min=torch.finfo(weights.dtype).tiny) / MOST
    integers = (weights / scales[:, None]).round().to(torch.int8)
    packed = torch.ops.onednn.qlinear_prepack(integers, None)
    return Int8(packed, scales, torch.zeros(len(scales), dtype=torch.int))


def inputs_of(states: Tensor) -> Inputs:
    """Quantize states [..., width]."""
    return Inputs(*quantize(_flat(states)), MIDDLE)


def normed_inputs(states: Tensor, weight: Tensor, epsilon: float) -> Inputs:
    """Quantize the RMS norm (Zhang & Sennrich, NeurIPS 2019) of states [..., width]."""
    return Inputs(*quantize_normed(_flat(states), weight, epsilon), MIDDLE)


def relu_inputs(inputs: Inputs, weights: Int8) -> Inputs:
    """Quantize the ReLU of a product."""
    return Inputs(*quantize_relu(product(inputs, weights), inputs.scales), 0)


def product(inputs: Inputs, weights: Int8) -> Tensor:
    """Return [rows, outputs], not yet multiplied by the rows' scales."""
    outputs: Tensor = torch.ops.onednn.qlinear_pointwise(
        *(inputs.bytes_, 1.0, inputs.zero),
        *(weights.packed, weights.scales, weights.zeros),
        None,  # bias
        *(1.0, 0, torch.float32),
        *("none", [], ""),
    )
    return outputs


def _flat(states: Tensor) -> Tensor:
    return states.reshape(-1, states.shape[-1])
