"""Compiled loops: compiled once however many threads come first, and wherever the code runs."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import pytest

from erag_ray.support.numba_jit import compiled, in_threads, num_processors


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


def test_a_system_that_does_not_say_which_processors_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert num_processors() == os.cpu_count()
    assert in_threads(str, [1, 2]) == ["1", "2"]
