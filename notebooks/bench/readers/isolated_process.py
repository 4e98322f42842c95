"""Ways of doing the same work, each in a process of its own, timed in turn.

What a way needs is loaded and one round done before time and memory count.
"""

import contextlib
import multiprocessing
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from erag_ray.models.local.process import peak_memory_bytes
from erag_ray.models.local.weights import quiet

Work = Callable[[], Any]
# each process begins where these have been imported, which takes longer than most of what is measured
PRELOADED = ["bench.readers.engine_only", "bench.readers.reading"]
_works: dict[str, Any] = {}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Time, memory and first result of one way."""

    first: Any
    """The result of the round that was not counted."""
    seconds: list[float]
    """Of each round."""
    peak_bytes: int
    """Most memory beyond what it held when loaded: on the GPU where there is one, else resident."""


class Side:
    """One way, in its process.

    Args:
        make: a function of a module, that loads what is needed and gives the work.
        arguments: its own, to be pickled.
    """

    def __init__(self, make: Callable[..., Work], *arguments: Any) -> None:
        # not a daemon: what is measured may start processes
        self._process = ProcessPoolExecutor(1, mp_context=_context())
        self.first = self._process.submit(_open, make, arguments).result()

    def seconds(self) -> float:
        """The time of one more round."""
        return self._process.submit(_timed).result()

    def peak_bytes(self) -> int:
        """Return the peak memory, as in `Measured`."""
        return self._process.submit(_peak).result()

    def close(self) -> None:
        """End the process."""
        self._process.shutdown()


def in_turn_apart(
    makes: Mapping[str, tuple[Callable[..., Work], tuple[Any, ...]]], repeats: int
) -> dict[str, Measured]:
    """Measure every way: one round of each in turn, ``repeats`` times."""
    with contextlib.ExitStack() as stack:
        sides = dict(_opened(stack, makes))
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(repeats):
            for name, side in sides.items():
                times[name].append(side.seconds())
        return {
            name: Measured(first=side.first, seconds=times[name], peak_bytes=side.peak_bytes())
            for name, side in sides.items()
        }


def _context() -> multiprocessing.context.BaseContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _opened(
    stack: contextlib.ExitStack, makes: Mapping[str, tuple[Callable[..., Work], tuple[Any, ...]]]
) -> Iterator[tuple[str, Side]]:
    for name, (make, arguments) in makes.items():
        side = Side(make, *arguments)
        stack.callback(side.close)
        yield name, side


def _open(make: Callable[..., Work], arguments: tuple[Any, ...]) -> Any:
    quiet()
    _works["work"] = make(*arguments)
    _works["loaded"] = _allocated_bytes()
    _forget_peak()
    return _works["work"]()


def _timed() -> float:
    start = time.perf_counter()
    _works["work"]()
    return time.perf_counter() - start


def _peak() -> int:
    return max(0, peak_memory_bytes() - int(_works["loaded"]))


def _allocated_bytes() -> int:
    if torch.cuda.is_available():
        return torch.cuda.memory_allocated()
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines if ":" in line)
    whole, shared = (int(status[key].split()[0]) * 1024 for key in ("VmRSS", "RssShmem"))
    return whole - shared


def _forget_peak() -> None:
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        return
    pathlib.Path("/proc/self/clear_refs").write_text("5")
