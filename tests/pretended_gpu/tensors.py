"""Tensors that say they are on ``cuda:0`` and hold their values on the CPU."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")


class GpuTensor(Tensor):
    """A tensor on the pretended GPU; `machine.Machine` runs its operations.

    Attributes:
        values: the same on the CPU.
    """

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> GpuTensor:
        # a wrapper is an inference tensor if and only if its values are
        with torch.inference_mode(values.is_inference()):
            tensor: GpuTensor = Tensor._make_wrapper_subclass(
                cls,
                values.size(),
                strides=values.stride(),
                storage_offset=values.storage_offset(),
                dtype=values.dtype,
                device=CUDA,
                requires_grad=values.requires_grad,
            )
        tensor.values = values
        return tensor

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, *_: object) -> NoReturn:
        """Refuse what no machine has taken: its mode is of one thread, and ends with its context."""
        raise RuntimeError(f"{func} on the GPU outside of `pretended_gpu()`, or in another thread")

    def tolist(self) -> Any:
        """Return the values as torch does, which refuses its subclasses."""
        return self.cpu().tolist()

    @property
    def data(self) -> Tensor:
        """The tensor without gradients."""
        return Tensor.data.__get__(self)

    @data.setter
    def data(self, other: GpuTensor) -> None:
        """Let it share the memory of another."""
        Tensor.data.__set__(self, other)
        self.values = other.values

    def __repr__(self, **_: object) -> str:
        return f"GpuTensor({self.values!r})"


def is_gpu(device: Any) -> bool:
    """Whether an operation's ``device`` argument names the GPU."""
    return device is not None and torch.device(device).type == "cuda"
