"""Compiled loops: compiled once however many threads come first, and wherever the code runs."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import pytest

from erag_ray.support.numba_jit import compiled, in_threads
from erag_ray.support.threads import num_cpus


def test_threads_that_call_first_together_compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    all_there = threading.Barrier(4)

    def njit(**settings: Any) -> Any:
        made.append("compiled")
        # long enough for the others to come by
        threading.Event().wait(0.05)
        return lambda function: function

    monkeypatch.setattr(numba, "njit", njit)

    @compiled
    def double(value: int) -> int:
        return 2 * value

    def call(value: int) -> int:
        all_there.wait()
        return double(value)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(call, range(4))) == [0, 2, 4, 6]
    assert made == ["compiled"]


def test_of_the_machines_cpus_those_count_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3}, raising=False)
    assert (num_cpus(), in_threads(str, [1, 2])) == (1, ["1", "2"])
