"""The main job in a process of its own, what befalls it, and the same command again: nothing lost, nothing repeated."""

import dataclasses
import json
import pathlib
import shutil
import time
from collections.abc import Callable

import polars as pl
import pytest
from crashes import NUM_REQUESTS, counted, finish, kill_midway, start_job, stored, without_delay, write_larger
from given_results import RESULTS
from polars.testing import assert_frame_equal
from tiny import job_command

from erag_ray.config.job import JobConfig
from erag_ray.store.schemas import COSTS, LABELS, UTILITY
from erag_ray.store.tables import TableStore

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def tear(config: JobConfig) -> None:
    """A file of the store and all manifests lose their ends, as after a loss of power."""
    torn = min(pathlib.Path(config.cache_dir).glob("responses/*/*.parquet"))
    for path in [torn, *pathlib.Path(config.out).rglob("manifest.json")]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


FAULTS: dict[str, Callable[[JobConfig], None]] = {
    "the job (kill -9 of its driver), submitted again": lambda config: None,
    "the job, and its files are torn": tear,
}


def test_the_same_command_again_reads_the_rest(tmp_path: pathlib.Path) -> None:
    config = write_larger(tmp_path)
    kill_midway(config, tmp_path)
    written = len(stored(config))
    assert 0 < written < NUM_REQUESTS
    out, manifest = TableStore(config.out), pathlib.Path(config.out, "compare", "manifest.json")
    assert not manifest.exists()
    assert not pathlib.Path(config.out, "report.md").exists()
    assert not any(out.is_sealed(schema) for schema in (LABELS, UTILITY, *RESULTS))
    killed = {
        pathlib.Path(place): tmp_path / f"killed-{place[-1]}" for place in (config.out, config.cache_dir)
    }
    for place, copy in killed.items():
        place.rename(copy)

    for fault, damage in FAULTS.items():
        for place, copy in killed.items():
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(copy, place)
        damage(config)
        start = time.monotonic()
        # by actors, and in the job's process
        again = dataclasses.replace(without_delay(config), num_readers=0 if damage is tear else None)
        finish(again, tmp_path)
        counts = counted(config)
        counts.row(fault, time.monotonic() - start)
        assert (counts.lost, counts.repeated, counts.again) == (0, 0, 0)
        assert len(stored(config)) == NUM_REQUESTS
        torn = list(pathlib.Path(config.cache_dir).glob("responses/*/_torn/*"))
        assert len(torn) == (damage is tear)
        read = TableStore(f"{config.out}/compare").read(COSTS)["num_reader_calls"].to_list()
        if not torn:
            assert read == [NUM_REQUESTS - written, written]
        found = json.loads(manifest.read_text())
        assert found["num_responses"] == NUM_REQUESTS


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
