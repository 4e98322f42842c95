"""Linear layers with the operations around them in T5, in floats, or in int8 if the weights are `Int8`.

For int8, weights are quantized once per output, and inputs per token at run time. Quantization is symmetric (0 maps to
0), so a product is an exact sum of integer products times two scales (vector-wise quantization of Dettmers et al.,
LLM.int8(), NeurIPS 2022, section 2.1, without its outliers in higher precision). A token's result is independent of the
others in its batch.
"""

import functools
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from erag_ray.models.local import quantize
from erag_ray.support.errors import JobError


class Int8(NamedTuple):
    """The quantized weights of one linear layer."""

    packed: Tensor
    """[outputs, inputs] in the memory layout of the kernel."""
    scales: Tensor
    """[outputs]: a weight is its integer times this."""
    zeros: Tensor
    """[outputs], 0."""


Weights = Tensor | Int8
"""[outputs, inputs] of one linear layer."""


@functools.cache
def is_supported() -> bool:
    """Return whether this process accumulates int8 products without overflow: the largest product comes out exactly.

    It needs AVX-512 VNNI, which DNNL_MAX_CPU_ISA can turn off. Without it, oneDNN saturates at 16 bits.
    """
    largest = quantize.Inputs(
        torch.full((1, 2), quantize.MOST_POSITIVE, dtype=torch.uint8), torch.ones(1, 1), 0
    )
    try:
        return product(largest, quantize_weights(torch.ones(1, 2))).item() == 2 * quantize.MOST_POSITIVE
    except (AttributeError, RuntimeError):
        # a build of torch without this kernel
        return False


def check_supported(device: torch.device) -> None:
    """Raise JobError for a GPU, or a CPU without AVX-512 VNNI (see `is_supported`): they do not support int8."""
    if device.type != "cpu":
        raise JobError("reader.dtype: int8 is for CPUs; on a GPU use bfloat16")
    if not is_supported():
        raise JobError(
            "reader.dtype: int8 needs a CPU with AVX-512 VNNI, and no DNNL_MAX_CPU_ISA that turns it off; use float32"
        )


def quantize_weights(weights: Tensor) -> Int8:
    """Quantize float weights [outputs, inputs] to integers of -127 to 127."""
    scales = weights.abs().amax(dim=1).clamp(min=torch.finfo(weights.dtype).tiny) / quantize.MOST
    packed = torch.ops.onednn.qlinear_prepack((weights / scales[:, None]).round().to(torch.int8), None)
    return Int8(packed, scales, torch.zeros(len(scales), dtype=torch.int))


def product(inputs: quantize.Inputs, weights: Int8) -> Tensor:
    """Return [rows, outputs], not yet multiplied by the rows' scales."""
    outputs: Tensor = torch.ops.onednn.qlinear_pointwise(
        *(inputs.bytes_, 1.0, inputs.zero),
        *(weights.packed, weights.scales, weights.zeros),
        None,  # bias
        *(1.0, 0, torch.float32),
        *("none", [], ""),
    )
    return outputs


def linear(states: Tensor, weights: Weights) -> Tensor:
    """Multiply states [..., inputs] by the transposed weights: [..., outputs]."""
    if isinstance(weights, Int8):
        return _scaled(states, quantize.quantize(states), weights)
    return functional.linear(states.to(weights.dtype), weights)


def normed_linear(states: Tensor, norm: Tensor, epsilon: float, weights: Weights) -> Tensor:
    """Return `linear` of the RMS norm of states."""
    if isinstance(weights, Int8):
        return _scaled(states, quantize.quantize_normed(states, norm, epsilon), weights)
    return linear(normed(states, norm, epsilon), weights)


def normed_order(states: Tensor, norm: Tensor, epsilon: float, weights: Weights) -> Tensor:
    """Return `normed_linear` up to a positive factor per row, which keeps the order of a row's outputs."""
    if isinstance(weights, Int8):
        return product(quantize.quantize_normed(states, norm, epsilon), weights)
    return normed_linear(states, norm, epsilon, weights)


def normed_relu_linear(
    states: Tensor, norm: Tensor, epsilon: float, weights: Weights
) -> Tensor | quantize.Inputs:
    """Return the ReLU of `normed_linear`, as input for `add_linear`."""
    if isinstance(weights, Int8):
        inputs = quantize.quantize_normed(states, norm, epsilon)
        return quantize.quantize_relu(product(inputs, weights), inputs.scales)
    return normed_linear(states, norm, epsilon, weights).relu_()


def add_linear(sums: Tensor, states: Tensor | quantize.Inputs, weights: Weights) -> None:
    """Add `linear` to [..., outputs] in place; allocating a new tensor would cost as much as the sum itself."""
    if isinstance(weights, Int8):
        inputs = states if isinstance(states, quantize.Inputs) else quantize.quantize(states)
        sums.view(-1, sums.shape[-1]).addcmul_(product(inputs, weights), inputs.scales)
    else:
        assert isinstance(states, Tensor)
        sums += linear(states, weights).to(sums.dtype)


def normed(states: Tensor, norm: Tensor, epsilon: float) -> Tensor:
    """Return the RMS norm of states [..., width], times ``norm`` [width]."""
    return functional.rms_norm(states, norm.shape, norm, epsilon)


def _scaled(states: Tensor, inputs: quantize.Inputs, weights: Int8) -> Tensor:
    return product(inputs, weights).mul_(inputs.scales).view(*states.shape[:-1], -1)
