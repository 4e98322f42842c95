"""A dispatch mode that runs operations on `GpuTensor` as one GPU would take them: checks, counts, memory."""

import pathlib
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import erag_ray
from pretended_gpu.attention import Attention, attention
from pretended_gpu.tensors import CPU, GpuTensor, is_gpu

PACKAGE = str(pathlib.Path(erag_ray.__file__).parent)
GIB = 1 << 30
LISTS = (list, tuple)
ATTENTION = "scaled_dot_product_attention"
FUSED = (ATTENTION, "rms_norm")
"""Operations of which a GPU makes one kernel, and the CPU several."""
COPIES = ("_to_copy", "copy_")
INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim")
"""Operations whose result, or its size, the host must know."""
WITHOUT_KERNEL = (
    "_local_scalar_dense", "_unsafe_view", "empty", "empty_like", "empty_strided", "lift_fresh", "new_empty",
    "new_empty_strided",
)  # fmt: skip
"""Besides views: what allocates only, or only tells the host a number."""


@dataclass
class Counts:
    """What the GPU was asked for; keys of the counters end with the line of the package that asked."""

    kernels: Counter[tuple[str, str]] = field(default_factory=Counter)
    copies: Counter[tuple[str, str]] = field(default_factory=Counter)
    waits: Counter[tuple[str, str]] = field(default_factory=Counter)
    attentions: Counter[tuple[Attention, str]] = field(default_factory=Counter)


class Operation:
    """One call of an operator with tensors on the GPU, or one that makes such a tensor."""

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs
        self.name: str = func._schema.name.partition("::")[2]
        self.tensors = tensors_in((*args, *kwargs.values()))
        self.on_gpu = [tensor for tensor in self.tensors if isinstance(tensor, GpuTensor)]

    @cached_property
    def to_gpu(self) -> bool:
        """Whether results are on the GPU."""
        device = self.kwargs.get("device")
        return bool(self.on_gpu) if device is None else is_gpu(device)

    @cached_property
    def on_cpu(self) -> list[Tensor]:
        """Tensors of the CPU that no kernel can take: all but single numbers."""
        return [tensor for tensor in self.tensors if not isinstance(tensor, GpuTensor) and tensor.dim()]

    @property
    def crosses(self) -> bool:
        """Whether it copies between CPU and GPU."""
        if self.name == "copy_":
            return 0 < len(self.on_gpu) < len(self.tensors)
        return self.name == "_to_copy" and bool(self.on_gpu) != self.to_gpu

    def check_devices(self) -> None:
        """Refuse tensors of two devices in one kernel.

        Raises:
            RuntimeError: there are some.
        """
        may_mix = self.name in COPIES or (self.name in INDEXING and isinstance(self.args[0], GpuTensor))
        if self.on_gpu and self.on_cpu and not may_mix:
            shapes = [tuple(tensor.shape) for tensor in self.on_cpu]
            raise RuntimeError(f"{self.func}: tensors on cuda:0, and on the cpu of shapes {shapes}")

    def wait(self) -> str:
        """Why the host waits for the GPU; "" if it does not."""
        if self.name in WAITING:
            return self.name
        if self.crosses:
            is_free = self.to_gpu and self.kwargs.get("non_blocking") and _is_pinned(self.tensors[0])
            return "" if is_free else f"{self.name} to the {'GPU' if self.to_gpu else 'CPU'}"
        if self.name in INDEXING:
            return self._indexing_wait()
        if self.name == "repeat_interleave" and self.kwargs.get("output_size") is None:
            return self.name
        return "isin of many" if self.name == "isin" and self._sorts() else ""

    def _indexing_wait(self) -> str:
        indices = [index for index in self.args[1] if index is not None]
        if any(index.dtype in (torch.bool, torch.uint8) for index in indices):
            return "index by a mask"
        return "index on the CPU" if self.on_cpu else ""

    def _sorts(self) -> bool:
        """Whether ``isin`` goes by sorted distinct elements, whose number the host must know."""
        elements, tests = self.args[:2]
        return isinstance(tests, Tensor) and tests.numel() >= 10 * elements.numel() ** 0.145

    def values(self) -> Any:
        """The results on the CPU."""
        kwargs = {name: mapped(_values, value) for name, value in self.kwargs.items()}
        if kwargs.get("device"):
            kwargs["device"] = CPU
        return self.func(*mapped(_values, self.args), **kwargs)


class Memory:
    """Bytes of a GPU that this process holds, and those of others.

    Attributes:
        total: of the GPU.
        others: that other processes hold.
        held: now.
        peak: most held so far.
    """

    def __init__(self, total: int, others: int) -> None:
        self.total, self.others = total, others
        self.held = self.peak = 0
        self._num_tensors: Counter[int] = Counter()

    @property
    def free(self) -> int:
        return self.total - self.others - self.held

    def note(self, values: Tensor) -> None:
        """Count the storage of a tensor until the last tensor that shares it is gone."""
        storage = values.untyped_storage()
        key, size = storage.data_ptr(), storage.nbytes()
        if not self._num_tensors[key]:
            self.held += size
            self.peak = max(self.peak, self.held)
        self._num_tensors[key] += 1
        weakref.finalize(values, self._forget, key, size).atexit = False

    def _forget(self, key: int, size: int) -> None:
        self._num_tensors[key] -= 1
        if not self._num_tensors[key]:
            del self._num_tensors[key]
            self.held -= size


class Machine(TorchDispatchMode):
    """The pretended GPU while its mode is on, in one thread.

    Attributes:
        counts: of what it was asked for since `reset`.
        memory: of the GPU.
        fail_at: number of the kernel since `reset`, from 0, at which memory runs out, once; None: it never does.
        failed: whether it has.
        num_kernels: since `reset`.
        first_kernels: number of the first kernel of each line of the package.
    """

    def __init__(self, total: int = 40 * GIB, others: int = 0) -> None:
        super().__init__()
        self.memory = Memory(total, others)
        self.reset()

    def reset(self, fail_at: int | None = None) -> None:
        """Begin to count anew."""
        self.counts, self.fail_at, self.failed = Counts(), fail_at, False
        self.num_kernels, self.first_kernels = 0, dict[str, int]()

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        operation = Operation(func, args, kwargs or {})
        if not operation.on_gpu and not operation.to_gpu:
            return func(*args, **operation.kwargs)
        if operation.name not in FUSED and _is_composite(func):
            with self:
                return func.decompose(*args, **operation.kwargs)
        operation.check_devices()
        if not func.is_view:
            self._count(operation)
        return self._wrapped(operation, operation.values())

    def _count(self, operation: Operation) -> None:
        line = package_line()
        if wait := operation.wait():
            self.counts.waits[wait, line] += 1
        if operation.crosses:
            self.counts.copies["to GPU" if operation.to_gpu else "to CPU", line] += 1
        if operation.name == ATTENTION:
            self.counts.attentions[attention(*operation.args, **operation.kwargs), line] += 1
        if operation.name not in WITHOUT_KERNEL:
            self._count_kernel(operation.name, line)

    def _count_kernel(self, name: str, line: str) -> None:
        self.counts.kernels[name, line] += 1
        self.first_kernels.setdefault(line, self.num_kernels)
        number, self.num_kernels = self.num_kernels, self.num_kernels + 1
        if number == self.fail_at:
            self.failed = True
            raise torch.OutOfMemoryError(f"CUDA out of memory (pretended, in {name}, at {line})")

    def _wrapped(self, operation: Operation, results: Any) -> Any:
        if not operation.to_gpu:
            return results
        known = {id(tensor.values): tensor for tensor in operation.on_gpu}

        def wrapped(result: Tensor) -> Tensor:
            # what works in place gives back its argument
            return known[id(result)] if id(result) in known else self.tensor(result)

        return mapped(wrapped, results)

    def tensor(self, values: Tensor) -> GpuTensor:
        """Values as a tensor on the GPU."""
        self.memory.note(values)
        return GpuTensor(values)


@cache
def _is_composite(func: Any) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


def mapped(function: Callable[[Tensor], Tensor], nested: Any) -> Any:
    """Lists and tuples with a function's results in place of their tensors."""
    if isinstance(nested, Tensor):
        return function(nested)
    if isinstance(nested, LISTS):
        return type(nested)([mapped(function, item) for item in nested])
    return nested


def tensors_in(items: Iterable[Any]) -> list[Tensor]:
    """The tensors in lists and tuples."""
    tensors = list[Tensor]()
    for item in items:
        if isinstance(item, Tensor):
            tensors.append(item)
        elif isinstance(item, LISTS):
            tensors += tensors_in(item)
    return tensors


def _values(tensor: Tensor) -> Tensor:
    return tensor.values if isinstance(tensor, GpuTensor) else tensor


def _is_pinned(tensor: Tensor) -> bool:
    return getattr(tensor, "is_pretended_pinned", False)


def package_line() -> str:
    """The innermost line of the package that is being run: "models/t5.py:12"; "" outside of it."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            return f"{frame.f_code.co_filename[len(PACKAGE) + 1 :]}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
