"""Readers that wait for CPUs or GPUs are named with what they need and what the nodes have, and not for ever."""

import dataclasses
import pathlib
import re

import pytest
import ray
from pending_requests import pending, work_of
from ray.actor import ActorHandle

from erag_ray.config.reader import ReaderConfig
from erag_ray.config.retrieval import SearchConfig
from erag_ray.inference.cluster import nodes, tasks
from erag_ray.inference.cluster.nodes import PlacementCheck
from erag_ray.inference.cluster.session import ray_session
from erag_ray.inference.cluster.tasks import task_pool
from erag_ray.inference.pool import run
from erag_ray.store.sharded_tasks import Tasks
from erag_ray.support.errors import JobError


@pytest.mark.cluster
def test_readers_that_get_no_cpus_are_named_and_end_the_job_with_what_to_change(
    other_job: ActorHandle,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("LOOK_SECONDS", "LINE_SECONDS"):
        monkeypatch.setattr(nodes, name, 0.5)
    work, config = work_of(tmp_path, pending(*map(str, range(60))), ReaderConfig(kind="echo"))
    config = dataclasses.replace(config, num_readers=2, cpus_per_reader=1)
    needs = (
        r"each needs CPU 1, GPU 0\. The nodes have [\d.]+: CPU 4, GPU 0; of these are free [\d.]+: CPU 0, GPU 0\. "
        r"Stop what else runs .*num_readers"
    )
    with ray_session():
        match = rf"placement_timeout: no reader has had its resources for \d+ s: {needs}.*kept"
        with pytest.raises(JobError, match=match):
            run(work, dataclasses.replace(config, placement_timeout=1.5), "job")
        assert re.search(rf"2 of 2 readers wait for resources: {needs}", capsys.readouterr().err)
        # the next pool of this process has a check of its own
        assert not ray.data.DataContext.get_current().custom_execution_callback_classes
        ray.kill(other_job)
        assert run(work, config, "job").num_responses == 60


@pytest.mark.cluster
def test_search_actors_that_get_no_cpus_are_named_too(
    other_job: ActorHandle, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # inside, so that it travels by value
    class Nothing:
        def __call__(self, number: int) -> None:
            return

    for module, name in ((nodes, "LOOK_SECONDS"), (tasks, "LOOK_SECONDS"), (nodes, "LINE_SECONDS")):
        monkeypatch.setattr(module, name, 0.5)
    work = Tasks(worker=Nothing, settings={}, numbers=range(3), noun="parts")
    config = SearchConfig(num_actors=2, placement_timeout=1.5)
    match = (
        r"placement_timeout: no search actor has had its resources .*: CPU 0, GPU 0.*lower search\.num_actors"
    )
    with pytest.raises(JobError, match=match), task_pool(config, show=False) as do:
        do(work)
    assert "2 of 2 search actors wait for resources: each needs CPU 1, GPU 0" in capsys.readouterr().err
    ray.kill(other_job)
    with task_pool(SearchConfig(num_actors=2), show=False) as do:
        do(work)


def test_a_reader_that_runs_keeps_the_job_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(PlacementCheck, "_advice", lambda self: "each needs GPU 1")
    now = [0.0]
    monkeypatch.setattr(nodes.time, "monotonic", lambda: now[0])
    counts = [(2, 0), (1, 1), (1, 1), (2, 0), (2, 0)]
    monkeypatch.setattr(PlacementCheck, "_counts", lambda self: counts.pop(0))
    check = PlacementCheck("A", "reader", "GPU 1", "num_readers", 100.0)
    for seconds in (80.0, 160.0, 1000.0, 1050.0):
        now[0] = seconds
        check.look()
    now[0] = 1200.0
    with pytest.raises(JobError, match=r"no reader has had its resources for 200 s: each needs GPU 1; "):
        check.look()
