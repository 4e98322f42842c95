"""A meter of the memory that tensors hold: the most at one time while some work runs, whatever the device."""

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class HeldMemory(TorchDispatchMode):
    """Counts the bytes of every storage that an operation gives, until it is freed.

    Attributes:
        peak: the most at one time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._held: dict[int, int] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        return found

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata not in self._held:
            self._held[storage._cdata] = storage.nbytes()
            weakref.finalize(storage, self._held.pop, storage._cdata, 0)
            self.peak = max(self.peak, sum(self._held.values()))
