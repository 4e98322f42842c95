"""When a batch does not fit: which errors say so, and what is left to do."""

from __future__ import annotations

import gc

import torch

# of the CPU, and of what the GPU is asked for past torch's own allocator
MESSAGES = (
    "can't allocate memory",
    "not enough memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDA error: out of memory",
)


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
