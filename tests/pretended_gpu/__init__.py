"""A pretended GPU: what the package does on a GPU, run and counted on a machine without one.

Tensors say that they are on ``cuda:0``, so the package takes the branches that it takes there, and hold their values on
the CPU, so results can be compared. Times are those of the CPU and say nothing.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from pretended_gpu.attention import Attention
from pretended_gpu.machine import GIB, Machine
from pretended_gpu.tensors import GpuTensor

__all__ = ["GIB", "Attention", "GpuTensor", "Machine", "pretended_gpu"]


@contextlib.contextmanager
def pretended_gpu(total: int = 40 * GIB, others: int = 0) -> Iterator[Machine]:
    """Let torch have one GPU, in this thread, until the context ends.

    What stays: a CPU build of torch, asked for a tensor on a GPU, says from then on that it has no such kernel, and not
    that it was built without CUDA.

    Args:
        total: bytes of its memory.
        others: bytes of it that other processes hold.
    """
    machine = Machine(total, others)
    with pytest.MonkeyPatch.context() as patch, _conversions(), machine:
        for name, function in _cuda_functions(machine).items():
            patch.setattr(torch.cuda, name, function)
        patch.setattr(Tensor, "pin_memory", _pinned)
        yield machine


def _cuda_functions(machine: Machine) -> dict[str, Any]:
    """What `torch.cuda` gets, by name."""
    memory = machine.memory
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda device=None: "A100 (pretended)",
        "get_device_capability": lambda device=None: (8, 0),
        "_lazy_init": lambda: None,
        "mem_get_info": lambda device=None: (memory.free, memory.total),
        "memory_allocated": lambda device=None: memory.held,
        "memory_reserved": lambda device=None: memory.held,
        "max_memory_allocated": lambda device=None: memory.peak,
        "empty_cache": lambda: None,
    }


def _pinned(tensor: Tensor, device: object = None) -> Tensor:
    if isinstance(tensor, GpuTensor):
        raise RuntimeError("only dense CPU tensors can be pinned")
    pinned: Any = tensor.clone()
    pinned.is_pretended_pinned = True
    return pinned


@contextlib.contextmanager
def _conversions() -> Iterator[None]:
    """Let ``torch.tensor(..., device="cuda")`` and ``Module.to("cuda")`` go through operators that a mode sees.

    Afterwards they are as before, and so is the precision of products, which models choose.
    """
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    lifts = torch._C._only_lift_cpu_tensors()
    precision = torch.backends.cuda.matmul.fp32_precision
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        yield
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
        torch._C._set_only_lift_cpu_tensors(lifts)
        torch.backends.cuda.matmul.fp32_precision = precision
