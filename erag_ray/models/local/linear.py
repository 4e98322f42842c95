"""Linear layers with the operations around them in T5, in floats, or in int8 if the weights are `Int8`."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from erag_ray.models.local.int8 import Inputs, Int8, inputs_of, normed_inputs, product, relu_inputs

Weights = Tensor | Int8
"""[outputs, inputs] of one linear layer."""


def linear(states: Tensor, weights: Weights) -> Tensor:
    """Multiply states [..., inputs] by the transposed weights: [..., outputs]."""
    if isinstance(weights, Int8):
        return _scaled(states, inputs_of(states), weights)
    return functional.linear(states.to(weights.dtype), weights)


def normed_linear(states: Tensor, norm: Tensor, epsilon: float, weights: Weights) -> Tensor:
    """Return `linear` of the RMS norm of states."""
    if isinstance(weights, Int8):
        return _scaled(states, normed_inputs(states, norm, epsilon), weights)
    return linear(normed(states, norm, epsilon), weights)


def normed_order(states: Tensor, norm: Tensor, epsilon: float, weights: Weights) -> Tensor:
    """Return `normed_linear` up to a positive factor per row, which keeps the order of a row's outputs."""
    if isinstance(weights, Int8):
        return product(normed_inputs(states, norm, epsilon), weights)
    return normed_linear(states, norm, epsilon, weights)


def normed_relu_linear(states: Tensor, norm: Tensor, epsilon: float, weights: Weights) -> Tensor | Inputs:
    """Return the ReLU of `normed_linear`, as input for `add_linear`."""
    if isinstance(weights, Int8):
        return relu_inputs(normed_inputs(states, norm, epsilon), weights)
    return normed_linear(states, norm, epsilon, weights).relu_()


def add_linear(sums: Tensor, states: Tensor | Inputs, weights: Weights) -> None:
    """Add `linear` to [..., outputs] in place; allocating a new tensor would cost as much as the sum itself."""
    if isinstance(weights, Int8):
        inputs = states if isinstance(states, Inputs) else inputs_of(states)
        sums.view(-1, sums.shape[-1]).addcmul_(product(inputs, weights), inputs.scales)
    else:
        assert isinstance(states, Tensor)
        sums += linear(states, weights).to(sums.dtype)


def normed(states: Tensor, norm: Tensor, epsilon: float) -> Tensor:
    """Return the RMS norm of states [..., width], times ``norm`` [width]."""
    return functional.rms_norm(states, norm.shape, norm, epsilon)


def _scaled(states: Tensor, inputs: Inputs, weights: Int8) -> Tensor:
    return product(inputs, weights).mul_(inputs.scales).view(*states.shape[:-1], -1)
