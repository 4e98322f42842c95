"""When a batch does not fit: which errors say so, and what is left to do; and what a process keeps of what it frees."""

from __future__ import annotations

import ctypes
import gc
import platform

import torch

# of the CPU, and of what the GPU is asked for past torch's own allocator
MESSAGES = (
    "can't allocate memory",
    "not enough memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDA error: out of memory",
)
# of glibc's malloc.h
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on the GPU or on the CPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in MESSAGES)


def free_memory() -> None:
    """Give back what a batch that failed has left behind."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, where its allocator is glibc's.

    By default each large result is a new piece of memory from the system, and every page of it costs a fault when it
    is first written.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
