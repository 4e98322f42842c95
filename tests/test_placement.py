"""Readers that wait for CPUs or GPUs are named with what they need and what the nodes have, and not for ever."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from pending_requests import pending, work_of

from erag_ray.config.job import JobConfig
from erag_ray.config.reader import ReaderConfig
from erag_ray.inference.cluster import nodes
from erag_ray.inference.cluster.nodes import PlacementCheck
from erag_ray.inference.cluster.session import ray_session
from erag_ray.inference.pool import run
from erag_ray.inference.work import Work
from erag_ray.support.errors import JobError


class Holder:
    """Another job, which has CPUs."""

    def is_here(self) -> bool:
        return True


@pytest.fixture
def other_job(local_ray: None) -> Iterator[Any]:
    """An actor with all four CPUs of the Ray of these tests."""
    holder = ray.remote(num_cpus=4)(Holder).remote()
    ray.get(holder.is_here.remote())
    yield holder
    ray.kill(holder)


def two_readers(folder: pathlib.Path) -> tuple[Work, JobConfig]:
    block = pending(*(f"question {number}" for number in range(60)))
    work, config = work_of(folder, block, ReaderConfig(kind="echo"))
    return work, dataclasses.replace(config, num_readers=2, cpus_per_reader=1)


@pytest.mark.cluster
def test_readers_that_get_no_cpus_end_the_job_with_what_to_change(
    other_job: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "LOOK_SECONDS", 0.5)
    work, config = two_readers(tmp_path)
    message = (
        r"placement_timeout: all readers wait for resources since \d s: each needs CPU 1, GPU 0\. The nodes have "
        r"[\d.]+: CPU 4, GPU 0; of these are free [\d.]+: CPU 0, GPU 0\. Stop what else runs .*num_readers.*kept"
    )
    with ray_session(), pytest.raises(JobError, match=message):
        run(work, dataclasses.replace(config, placement_timeout=2.0), "job")
    assert PlacementCheck("ModelActor", "CPU 1", None)._counts() == (0, 0)
    # the next pool of this process has a check of its own
    assert not ray.data.DataContext.get_current().custom_execution_callback_classes


@pytest.mark.cluster
def test_readers_that_wait_are_named_and_start_when_there_is_room(
    other_job: Any,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in {"LOOK_SECONDS": 0.5, "LINE_SECONDS": 1.0}.items():
        monkeypatch.setattr(nodes, name, value)

    def warn(text: str, *arguments: object) -> None:
        lines.append(text % arguments)
        ray.kill(other_job)

    lines = list[str]()
    monkeypatch.setattr(nodes.logger, "warning", warn)
    work, config = two_readers(tmp_path)
    with ray_session():
        assert run(work, config, "job").num_responses == 60
    (line,) = lines
    assert line.startswith("2 of 2 readers wait for resources: each needs CPU 1, GPU 0. The nodes have ")


def test_a_reader_that_runs_keeps_the_job_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(PlacementCheck, "_advice", lambda self: "each needs GPU 1")
    now = [0.0]
    monkeypatch.setattr(nodes.time, "monotonic", lambda: now[0])
    counts = [(2, 0), (1, 1), (1, 1), (2, 0), (2, 0)]
    monkeypatch.setattr(PlacementCheck, "_counts", lambda self: counts.pop(0))
    check = PlacementCheck("ModelActor", "GPU 1", 100.0)
    for seconds in (80.0, 160.0, 1000.0, 1050.0):
        now[0] = seconds
        check.on_execution_step(None)
    now[0] = 1200.0
    with pytest.raises(JobError, match=r"all readers wait for resources since 200 s: each needs GPU 1; "):
        check.on_execution_step(None)
