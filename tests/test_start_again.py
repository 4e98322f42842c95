"""The main job in a process of its own, what befalls it, and the same command again: nothing lost, nothing repeated."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Callable

import polars as pl
import pytest
from crashes import NUM_REQUESTS, counted, kill_midway, start_job, stored, write_larger
from polars.testing import assert_frame_equal
from tiny import job_command

from erag_ray.config.job import JobConfig
from erag_ray.store.schemas import LABELS, UTILITY
from erag_ray.store.tables import TableStore

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def nothing(command: list[str], config: JobConfig) -> None:
    return


def killed(command: list[str], config: JobConfig) -> None:
    kill_midway(command, config)
    assert 0 < len(stored(config)) < NUM_REQUESTS


def killed_and_damaged(command: list[str], config: JobConfig) -> None:
    """Besides, a file of the store and all manifests have lost their ends, as after a loss of power."""
    killed(command, config)
    torn = min(pathlib.Path(config.cache_dir).glob("responses/*/*.parquet"))
    for path in [torn, *pathlib.Path(config.out).rglob("manifest.json")]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


FAULTS: dict[str, Callable[[list[str], JobConfig], None]] = {
    "nothing (the whole command)": nothing,
    "the job (kill -9 of its driver), submitted again": killed,
    "the job, and its files are torn": killed_and_damaged,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_same_command_again_reads_the_rest(tmp_path: pathlib.Path, fault: str) -> None:
    config = write_larger(tmp_path)
    command = job_command(config, tmp_path)
    start = time.monotonic()
    FAULTS[fault](command, config)
    finish(command)
    counts = counted(config)
    counts.row(fault, time.monotonic() - start)
    assert (counts.lost, counts.repeated, counts.again) == (0, 0, 0)
    torn = list(pathlib.Path(config.cache_dir).glob("responses/*/_torn/*"))
    assert len(torn) == (FAULTS[fault] is killed_and_damaged)


def finish(command: list[str]) -> None:
    with start_job(command) as job:
        _, told = job.communicate(timeout=200)
    assert job.returncode == 0, told


def test_two_jobs_on_one_store_at_once_each_have_every_request_once(tmp_path: pathlib.Path) -> None:
    config = write_larger(tmp_path)
    jobs = [dataclasses.replace(config, out=str(tmp_path / name)) for name in ("one", "two")]
    folders = [tmp_path / f"config-{number}" for number in range(len(jobs))]
    for folder in folders:
        folder.mkdir()
    commands = [job_command(job, folder) for job, folder in zip(jobs, folders, strict=True)]
    start = time.monotonic()
    with start_job(commands[0]) as first, start_job(commands[1]) as second:
        for process in (first, second):
            _, told = process.communicate(timeout=300)
            assert process.returncode == 0, told
    for job in jobs:
        counts = counted(job)
        counts.row("two jobs at once, one store", time.monotonic() - start)
        assert (counts.lost, counts.repeated) == (0, 0)
    for schema in (LABELS, UTILITY):
        one, other = (TableStore(job.out).read(schema).sort(pl.all()) for job in jobs)
        assert_frame_equal(one, other)
