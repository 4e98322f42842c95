"""Rows of numbers -> bytes and a scale for each row, each number read from memory once.

In torch a norm, the largest number, a quotient and rounding are a dozen passes over the memory, and take longer than
the product of bytes behind them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import torch
from numba import prange
from torch import Tensor

from erag_ray.numba_jit import compiled_with

MOST, MIDDLE = 127, 128
"""The largest integer, and where 0 lies in the unsigned bytes that a product takes its inputs in."""
MOST_POSITIVE = 255
"""The largest integer where none is below 0, and 0 lies at 0."""

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
# numbers without their sign are in the order of the integers that their bits are, and those are compared in lanes
UNSIGNED = np.int32(0x7FFFFFFF)
# .5 makes of cutting off what follows the point a rounding
HALF, FROM_MIDDLE = np.float32(0.5), np.float32(MIDDLE + 0.5)
LARGEST, LARGEST_POSITIVE = np.float32(MOST), np.float32(MOST_POSITIVE)
MOST_THREADS: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
SMALLEST = np.float32(1e-35).view(np.int32)
NOTHING = np.float32(0)
# one after the other: not every way in which numba shares out rows may be begun twice at a time
_lock = threading.Lock()
_in_rows = compiled_with(parallel=True, fastmath={"reassoc", "nsz", "contract"})


def into_bytes(states: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers [rows, width] as integers around `MIDDLE`, of -127 to 127, and the rows' scales [rows, 1]."""
    return _filled(_round, states)


def normed_into_bytes(states: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """`into_bytes` of each row divided by the root of its mean square, times ``weight`` [width]."""
    return _filled(_norm_and_round, states, weight.numpy(), np.float32(epsilon))


def relu_into_bytes(products: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """What is above 0 of [rows, width] times the rows' scales [rows, 1], as integers of 0 to 255, with new scales."""
    return _filled(_round_positive, products, scales.numpy())


def _filled(loop: Callable[..., None], states: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    bytes_ = torch.empty(states.shape, dtype=torch.uint8)
    scales = torch.empty(len(states), 1)
    with _lock:
        numba.set_num_threads(min(torch.get_num_threads(), MOST_THREADS))
        loop(states.numpy(), *others, bytes_.numpy(), scales.numpy())
    return bytes_, scales


@_in_rows
def _round(states: Floats, bytes_: Bytes, scales: Floats) -> None:
    for row in prange(states.shape[0]):
        sizes, size = states[row].view(np.int32), SMALLEST
        for place in range(states.shape[1]):
            size = max(size, np.int32(sizes[place] & UNSIGNED))
        most = np.int32(size).view(np.float32)
        scales[row, 0] = most / LARGEST
        for place in range(states.shape[1]):
            bytes_[row, place] = np.uint8(np.int32(states[row, place] * (LARGEST / most) + FROM_MIDDLE))


@_in_rows
def _norm_and_round(
    states: Floats, weight: Floats, epsilon: np.float32, bytes_: Bytes, scales: Floats
) -> None:
    width = states.shape[1]
    for row in prange(states.shape[0]):
        weighted, squares, size = np.empty(width, np.float32), NOTHING, SMALLEST
        sizes = weighted.view(np.int32)
        for place in range(width):
            squares += states[row, place] * states[row, place]
            weighted[place] = states[row, place] * weight[place]
        for place in range(width):
            size = max(size, np.int32(sizes[place] & UNSIGNED))
        most = np.int32(size).view(np.float32)
        scales[row, 0] = most / (LARGEST * np.sqrt(squares / np.float32(width) + epsilon))
        for place in range(width):
            bytes_[row, place] = np.uint8(np.int32(weighted[place] * (LARGEST / most) + FROM_MIDDLE))


@_in_rows
def _round_positive(products: Floats, given: Floats, bytes_: Bytes, scales: Floats) -> None:
    for row in prange(products.shape[0]):
        # the integers of what is below 0 are below 0 too
        sizes, size = products[row].view(np.int32), SMALLEST
        for place in range(products.shape[1]):
            size = max(size, sizes[place])
        most = np.int32(size).view(np.float32)
        scales[row, 0] = given[row, 0] * most / LARGEST_POSITIVE
        for place in range(products.shape[1]):
            positive = max(products[row, place], NOTHING)
            bytes_[row, place] = np.uint8(np.int32(positive * (LARGEST_POSITIVE / most) + HALF))
