"""Quantization of rows of floats to bytes with a scale for each row, in one pass over memory.

In torch the norm, the maximum, the division and the rounding take a dozen passes over memory, and longer than the int8
product that follows.
"""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import torch
from numba import prange
from torch import Tensor

from erag_ray.support.numba_jit import compiled_with

MOST, MIDDLE = 127, 128
"""The largest quantized value, and the zero point of the unsigned input bytes."""
MOST_POSITIVE = 255
"""The largest quantized value of non-negative inputs, whose zero point is 0."""

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
# absolute values of floats order like their bits as integers, whose comparison is vectorised
UNSIGNED = np.int32(0x7FFFFFFF)
# adding .5 turns truncation into rounding
HALF, FROM_MIDDLE = np.float32(0.5), np.float32(MIDDLE + 0.5)
LARGEST, LARGEST_POSITIVE = np.float32(MOST), np.float32(MOST_POSITIVE)
MOST_THREADS: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
SMALLEST = np.float32(1e-35).view(np.int32)
ZERO = np.float32(0)
# not every threading layer of numba allows concurrent parallel regions
_lock = threading.Lock()
_in_rows = compiled_with(parallel=True, fastmath={"reassoc", "nsz", "contract"})


class Inputs(NamedTuple):
    """Quantized inputs of a linear layer: a value is (byte - ``zero``) times its row's scale."""

    bytes_: Tensor
    """[rows, inputs]."""
    scales: Tensor
    """[rows, 1]."""
    zero: int


def quantize(states: Tensor) -> Inputs:
    """Quantize states [..., width] to integers of -127 to 127 around `MIDDLE`."""
    return _quantized(_quantize, states, MIDDLE)


def quantize_normed(states: Tensor, weight: Tensor, epsilon: float) -> Inputs:
    """Quantize the RMS norm (Zhang & Sennrich, NeurIPS 2019) of states [..., width]; see `quantize`."""
    return _quantized(_norm_and_quantize, states, MIDDLE, weight.numpy(), np.float32(epsilon))


def quantize_relu(products: Tensor, scales: Tensor) -> Inputs:
    """Quantize the ReLU of [rows, width] times scales [rows, 1] to integers of 0 to 255, with new scales."""
    return _quantized(_quantize_positive, products, 0, scales.numpy())


def _quantized(loop: Callable[..., None], states: Tensor, zero: int, *arguments: Any) -> Inputs:
    states = states.reshape(-1, states.shape[-1])
    bytes_ = torch.empty(states.shape, dtype=torch.uint8)
    scales = torch.empty(len(states), 1)
    with _lock:
        numba.set_num_threads(min(torch.get_num_threads(), MOST_THREADS))
        loop(states.numpy(), *arguments, bytes_.numpy(), scales.numpy())
    return Inputs(bytes_, scales, zero)


@_in_rows
def _quantize(states: Floats, bytes_: Bytes, scales: Floats) -> None:
    for row in prange(states.shape[0]):
        bits, max_bits = states[row].view(np.int32), SMALLEST
        for column in range(states.shape[1]):
            max_bits = max(max_bits, np.int32(bits[column] & UNSIGNED))
        most = np.int32(max_bits).view(np.float32)
        scales[row, 0] = most / LARGEST
        for column in range(states.shape[1]):
            bytes_[row, column] = np.uint8(np.int32(states[row, column] * (LARGEST / most) + FROM_MIDDLE))


@_in_rows
def _norm_and_quantize(
    states: Floats, weight: Floats, epsilon: np.float32, bytes_: Bytes, scales: Floats
) -> None:
    width = states.shape[1]
    for row in prange(states.shape[0]):
        weighted, squares, max_bits = np.empty(width, np.float32), ZERO, SMALLEST
        bits = weighted.view(np.int32)
        for column in range(width):
            squares += states[row, column] * states[row, column]
            weighted[column] = states[row, column] * weight[column]
        for column in range(width):
            max_bits = max(max_bits, np.int32(bits[column] & UNSIGNED))
        most = np.int32(max_bits).view(np.float32)
        scales[row, 0] = most / (LARGEST * np.sqrt(squares / np.float32(width) + epsilon))
        for column in range(width):
            bytes_[row, column] = np.uint8(np.int32(weighted[column] * (LARGEST / most) + FROM_MIDDLE))


@_in_rows
def _quantize_positive(products: Floats, input_scales: Floats, bytes_: Bytes, scales: Floats) -> None:
    for row in prange(products.shape[0]):
        # negative floats have negative bits
        bits, max_bits = products[row].view(np.int32), SMALLEST
        for column in range(products.shape[1]):
            max_bits = max(max_bits, bits[column])
        most = np.int32(max_bits).view(np.float32)
        scales[row, 0] = input_scales[row, 0] * most / LARGEST_POSITIVE
        for column in range(products.shape[1]):
            positive = max(products[row, column], ZERO)
            bytes_[row, column] = np.uint8(np.int32(positive * (LARGEST_POSITIVE / most) + HALF))
