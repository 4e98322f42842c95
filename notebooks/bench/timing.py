"""How long things take, one after the other and in turn."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]
Works = Mapping[str, Callable[[], object]]


def seconds_of(work: Callable[[], object]) -> float:
    """Call a function once and return its wall-clock time in seconds; its result is dropped.

    Kernels that it leaves running on a GPU do not count.
    """
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def rounds(works: Works, repeats: int) -> dict[str, list[float]]:
    """The times of each, all of them tried one after the other, so often."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            times[name].append(seconds_of(work))
    return times


def in_turn(works: Works, repeats: int) -> dict[str, float]:
    """The best time of each."""
    return {name: min(seconds) for name, seconds in rounds(works, repeats).items()}


def timed(seconds: Sequence[float], against: Sequence[float]) -> Row:
    """Columns of a row: one way's best time, and the least and the most of its times against another's, in turn."""
    ratios = [ours / other for ours, other in zip(seconds, against, strict=True)]
    return {"seconds": min(seconds), "least_ratio": min(ratios), "most_ratio": max(ratios)}
