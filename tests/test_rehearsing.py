"""A dry run: what it says, and what it leaves alone."""

from __future__ import annotations

import dataclasses
import pathlib
import runpy
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tiny import Tiny, compare

from erag_ray.pipeline import Pool
from erag_ray.schemas import CORRELATIONS
from erag_ray.steps import rehearsing
from erag_ray.store import TableStore

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture
def one_reader(reads_here: list[int], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """No Ray: two readers that take a second for each reading."""
    from erag_ray.steps import reading

    read = reading.read

    def timed(work: Any, config: Any, job: str) -> Any:
        done = read(work, config, job)
        return dataclasses.replace(done, device_seconds=float(done.num_readings), peak_memory_bytes=2**30)

    monkeypatch.setattr(reading, "read", timed)
    monkeypatch.setattr(rehearsing, "ray_session", reading.ray_session)
    monkeypatch.setattr(rehearsing, "plan_pool", lambda config: Pool(size=2, num_cpus=1, num_gpus=0.0))
    return reads_here


def job(tiny: Tiny) -> None:
    runpy.run_path(str(ROOT / "jobs" / "compare.py"))["main"](tiny.config)


def files(folder: str) -> dict[str, int]:
    root = pathlib.Path(folder)
    return {
        str(path.relative_to(root)): path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()
    }


def test_a_dry_run_reads_nothing_and_leaves_results_alone(
    tiny: Tiny, reads_here: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    compare(tiny)
    before = files(tiny.config.out)
    more = tiny.with_config(runs={**tiny.config.runs, "third": str(tiny.run("third"))}, dry_run=True)
    job(more)
    told = capsys.readouterr().err
    assert "pairs: 20 asked, 20 distinct (union), 18 cached, 2 new" in told
    assert "5 readings to do" in told
    assert "a dry run: nothing else was read" in told
    assert reads_here == [37]
    assert files(tiny.config.out) == before
    assert TableStore(tiny.config.out).is_sealed(CORRELATIONS)


def test_a_calibrated_one_says_time_memory_and_cost_and_keeps_what_it_read(
    tiny: Tiny, one_reader: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    job(tiny.with_config(dry_run=True, calibrate=12, price_per_hour=36.0))
    told = capsys.readouterr().err
    assert "pairs: 4 read in 4.0 reader-seconds (1 each), 1.00 GiB at most" in told
    assert "all 18 would take 0.005 reader-hours" in told
    # 37 readings of a second each, by two readers
    assert "in all 0.0103 reader-hours, 0.37 at 36 an hour; 0.00514 hours with 2 readers" in told
    num_read = sum(one_reader)
    compare(tiny)
    assert one_reader[-1] == 37 - num_read


def test_a_calibrated_one_says_where_erag_costs_less_than_end_to_end(
    tiny: Tiny, one_reader: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    # runs good and bad: 11 pairs at depth 1, 20 at depth 4; 11 lists at each depth
    job(tiny.with_config(dry_run=True, calibrate=20, depth=4, end_to_end_depths=[1, 2, 4]))
    told = capsys.readouterr().err
    assert "depth 1, each from nothing: eRAG 0.00306 reader-hours, end-to-end 0.00306" in told
    assert "depth 4, each from nothing: eRAG 0.00556 reader-hours, end-to-end 0.00306" in told
    assert "eRAG costs less than end-to-end at depth: none of 1, 2, 4" in told


@pytest.fixture
def slow_lists(one_reader: list[int], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A reader that takes ten seconds for each list of several documents."""
    from erag_ray.steps import reading

    timed = reading.read

    def slower(work: Any, config: Any, job: str) -> Any:
        done = timed(work, config, job)
        several = pc.any(pc.greater(pc.list_value_length(pq.read_table(work.requests)["titles"]), 1)).as_py()
        return dataclasses.replace(done, device_seconds=done.device_seconds * (10 if several else 1))

    monkeypatch.setattr(reading, "read", slower)
    return one_reader


def test_where_lists_take_longer_erag_costs_less(
    tiny: Tiny, slow_lists: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    job(tiny.with_config(dry_run=True, calibrate=20, end_to_end_depths=[1, 2, 3]))
    told = capsys.readouterr().err
    assert "eRAG costs less than end-to-end at depth: 2, 3\n" in told
    compare(tiny)
    capsys.readouterr()
    job(tiny.with_config(dry_run=True, calibrate=20, end_to_end_depths=[2]))
    told = capsys.readouterr().err
    assert "depth 2: eRAG against end-to-end: not known, some of it was all read before" in told
    assert "costs less" not in told


def test_nothing_to_read_needs_no_reader(
    tiny: Tiny, one_reader: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    compare(tiny)
    job(tiny.with_config(dry_run=True, calibrate=10))
    assert "reader-hours" not in capsys.readouterr().err
    assert one_reader == [37]


def test_a_dry_run_finds_what_is_wrong(tiny: Tiny, no_reader: None) -> None:
    tiny.run("good").write_text("not a run\n")
    with pytest.raises(ValueError, match=r"good\.trec"):
        job(tiny.with_config(dry_run=True))
