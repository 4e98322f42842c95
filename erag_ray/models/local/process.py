"""The process that a model runs in: its threads, allocator, device and peak memory, and whether its GPU is lost.

Nothing here imports torch, which models behind a server and functions do not need.
"""

import ctypes
import pathlib
import platform
import re
import resource
import sys

# after any of these a process cannot use its GPU any more (CUDA's runtime API, cudaError)
LOST = re.compile(
    "illegal memory access|device-side assert|misaligned address|unspecified launch failure|illegal instruction|"
    "invalid program counter|hardware stack error|uncorrectable (ECC|NVLink) error|"
    "CUDNN_STATUS_EXECUTION_FAILED|CUBLAS_STATUS_(EXECUTION_FAILED|INTERNAL_ERROR)"
)
# constants of glibc's malloc.h
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 32 << 20
"""After `keep_freed_memory`, freed blocks below this size stay with the process; the largest value glibc allows."""

STATUS = pathlib.Path("/proc/self/status")


class EngineLost(RuntimeError):
    """The inference engine in this process has ended, and cannot be restarted in it."""


def is_gpu_lost(error: BaseException) -> bool:
    """Return whether after an error this process cannot use its GPU any more, such as a device-side assertion."""
    if isinstance(error, EngineLost):
        return True
    is_cuda = isinstance(error, RuntimeError) and re.match("(CUDA|cuDNN|CUDA driver) error", str(error))
    return bool(is_cuda and LOST.search(str(error)))


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, if its allocator is glibc's.

    By default each large block is mapped anew, and every page of it costs a page fault at its first write. Blocks from
    `KEPT_BYTES` on are still mapped and unmapped: on the heap they would fragment it.

    So a process grows with the largest batch so far, and then stays. The bound on the free memory of its heap is the
    estimate for the largest batch, ``limits.tokens * estimate.token + limits.rows * estimate.row`` (`largest_batch`,
    `MemoryEstimate`). Of a causal model, only keys and values are ``2 * layers * key_value_heads * head_dim *
    itemsize`` bytes for each of at most 4,096 tokens: 189 MB for SmolLM2-135M in float32.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def backend() -> str:
    """Return the device and the versions of torch and transformers, on which outputs may depend besides the model."""
    if "torch" not in sys.modules:
        return "CPU"
    # imported by the model
    import torch
    import transformers

    from erag_ray.models.local.devices import device_name

    return f"{device_name()}, torch {torch.__version__}, transformers {transformers.__version__}"


def num_threads() -> int | None:
    """Return the number of threads that torch uses in this process; None without torch."""
    torch = sys.modules.get("torch")
    return torch.get_num_threads() if torch else None


def set_threads(number: int | None) -> None:
    """Set the number of threads that torch uses in this process, where a model has imported it."""
    torch = sys.modules.get("torch")
    if torch and number:
        torch.set_num_threads(number)


def peak_memory_bytes() -> int:
    """Return the peak memory of this process: of its GPU if it has one, else resident (`peak_resident_bytes`)."""
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return peak_resident_bytes()


def peak_resident_bytes() -> int:
    """Most resident memory of this process, less the pages that it shares now.

    Those are Ray's: blocks that a reader was given stay in view when they have gone, so they only grow in number. Where
    such pages can also go, this is too high by what went after the peak, and too low by what came after it. A forked
    process starts with its parent's pages. Where the system does not tell (it is not Linux) it is all of them, and at
    least the peak of the parent.
    """
    lines = STATUS.read_text().splitlines() if STATUS.is_file() else []
    status = dict(line.split(":", 1) for line in lines if ":" in line)
    if "VmHWM" not in status:
        # macOS counts in bytes
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    whole, shared = (int(status.get(key, "0").split()[0]) * 1024 for key in ("VmHWM", "RssShmem"))
    return whole - shared
