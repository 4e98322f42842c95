"""How large a batch may be, by the memory that there is; what is done when it did not fit; what a process keeps."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import pathlib
import platform
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

CPU_SHARE = 0.25
"""Of a machine's memory, for the batches of all its readers together."""
GPU_SHARE = 0.8
"""Of what is free on a GPU: its allocator cannot use every piece."""
FIRST_PATIENCE = 16
"""Batches that must fit after one that did not, before larger ones are tried again."""
CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

# of the CPU, and of what the GPU is asked for past torch's own allocator
MESSAGES = (
    "can't allocate memory",
    "not enough memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",  # what cuBLAS says where there is no memory for its workspace
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
)
# after any of these a process cannot use its GPU any more (CUDA's runtime API, cudaError)
LOST = (
    "illegal memory access",
    "device-side assert",
    "misaligned address",
    "unspecified launch failure",
    "illegal instruction",
    "invalid program counter",
    "hardware stack error",
    "uncorrectable ECC error",
    "uncorrectable NVLink error",
    "CUDNN_STATUS_EXECUTION_FAILED",
    "CUBLAS_STATUS_EXECUTION_FAILED",
    "CUBLAS_STATUS_INTERNAL_ERROR",
)
# of glibc's malloc.h
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 32 << 20
"""Pieces below this are kept when they are freed, where `keep_freed_memory` was called; glibc allows no more."""


class Limits(NamedTuple):
    """The largest batch.

    Attributes:
        rows: most requests.
        tokens: most prompt tokens, padding included.
        row_tokens: tokens for which a request counts besides those of its prompt.
    """

    rows: int
    tokens: int
    row_tokens: int = 0

    def fit(self, rows: int, longest: int) -> bool:
        """Return whether a batch of so many requests keeps the limits, the longest of which has so many tokens."""
        return rows <= self.rows and rows * (longest + self.row_tokens) <= self.tokens

    def rows_of(self, longest: int) -> int:
        """Return how many requests of so many tokens one batch may have: one at least."""
        return max(1, min(self.rows, self.tokens // (longest + self.row_tokens)))


class Needs(NamedTuple):
    """Bytes that a batch takes: for each prompt token, padding included, and for each request besides."""

    token: int
    row: int


class BatchLimits:
    """The largest batch: less after one that did not fit, and step by step as before after some that did.

    Args:
        most: the largest at first.
    """

    def __init__(self, most: Limits) -> None:
        self.most = self.now = most
        self._patience, self._num_good = FIRST_PATIENCE // 2, 0

    def shrink(self, rows: int, longest: int) -> None:
        """Let the next batches have at most so many requests of this length; it takes twice as long until they grow."""
        self._patience *= 2
        tokens = min(self.now.tokens, rows * (longest + self.now.row_tokens))
        self.now, self._num_good = self.now._replace(tokens=tokens), 0

    def count_good(self) -> None:
        """Count a batch that did fit."""
        self._num_good += self.now != self.most
        if self._num_good >= self._patience:
            self.now, self._num_good = self.now._replace(tokens=min(2 * self.now.tokens, self.most.tokens)), 0


def largest(room: int, needs: Needs, most: Limits) -> Limits:
    """Return the largest batch that ``room`` bytes hold, and at most ``most``; one request of one token at least."""
    row_tokens = -(-needs.row // needs.token)
    tokens = max(1 + row_tokens, min(most.tokens, room // needs.token))
    return Limits(max(1, min(most.rows, tokens // (1 + row_tokens))), tokens, row_tokens)


def room_on(device: torch.device, share: float) -> int:
    """Bytes for the batches of a reader whose weights are loaded.

    Args:
        device: where they are. On a GPU what is free counts, on a CPU `CPU_SHARE` of the machine's memory.
        share: of the GPU, or of that, where several readers use it.
    """
    if device.type == "cpu":
        return int(machine_bytes() * CPU_SHARE * share)
    total, own = torch.cuda.mem_get_info(device)[1], torch.cuda.memory_allocated(device)
    return max(0, int(min(free_on(device), total * share - own) * GPU_SHARE))


def free_on(device: torch.device) -> int:
    """Bytes that this process can still get on a GPU, with those that its allocator keeps."""
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + kept


def machine_bytes() -> int:
    """The memory of this machine, or of the container that this process may not leave."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    files = [file for file in map(pathlib.Path, CONTAINER_LIMITS) if file.is_file()]
    limits = [int(text) for text in (file.read_text().strip() for file in files) if text.isdigit()]
    return min([whole, *limits])


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on the GPU or on the CPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in MESSAGES)


class EngineLost(RuntimeError):
    """The engine that computes for this process has ended, and cannot be started again in it."""


def is_gpu_lost(error: BaseException) -> bool:
    """Return whether an error says that this process cannot use its GPU any more, such as a failed assertion on it."""
    if isinstance(error, EngineLost):
        return True
    is_cuda = isinstance(error, RuntimeError) and re.match("(CUDA|cuDNN|CUDA driver) error", str(error))
    return bool(is_cuda) and any(message in str(error) for message in LOST)


def free_memory() -> None:
    """Give back what a batch that failed has left behind."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, where its allocator is glibc's.

    By default each large result is a new piece of memory from the system, and every page of it costs a fault when it
    is first written. Pieces from `KEPT_BYTES` on stay so: among the others they would leave holes.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor of the host's on a device; a GPU gets it without being waited for."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def reusable(shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """A tensor with anything in it, whose memory can be given out again once it is freed.

    For large pieces that are taken for batch after batch. What torch takes on a CPU begins at a multiple of 64 bytes;
    for that glibc wants a free piece with some bytes to spare, which a freed piece of the same size has not, and leaves
    hole after hole. NumPy takes it plain; from 4 MB on it asks for huge pages, whole ones of which are held when a
    byte is written.
    """
    if like.device.type != "cpu" or 0 in shape:
        return like.new_empty(shape)
    bytes_ = np.empty(math.prod(shape) * like.element_size(), np.uint8)
    return torch.from_numpy(bytes_).view(like.dtype).view(tuple(shape))
