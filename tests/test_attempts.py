"""COSTS over all attempts of a job, killed ones included; and disks with too little free space."""

import dataclasses
import pathlib
import shutil
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tiny import QUESTIONS, Tiny, compare, kilt_line, make_tables

from erag_ray.analyses.costs import IS_LAST, cost_text, sum_costs
from erag_ray.config.reader import ReaderConfig
from erag_ray.models.echo import EchoModel
from erag_ray.prompts.request import Response
from erag_ray.store.stages.stage import read_costs
from erag_ray.support import disks
from erag_ray.support.errors import JobError

PRICES = {"input": 1e6, "cached_input": 1e5, "output": 2e6}


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def priced(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """A job whose model has a price, and a cache with one token of each prompt."""
    answer = EchoModel.answer

    def cached(model: EchoModel, *arguments: Any) -> Response:
        return dataclasses.replace(answer(model, *arguments), num_cached_prompt_tokens=1)

    monkeypatch.setattr(EchoModel, "answer", cached)
    return tiny.with_config(reader=ReaderConfig(kind="echo", price_per_million=PRICES), num_readers=0)


def kill_after(count: int, tiny: Tiny) -> None:
    left, answer = iter(range(count)), EchoModel.answer

    def some(model: EchoModel, *arguments: Any) -> Response:
        if next(left, None) is None:
            raise Killed
        return answer(model, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EchoModel, "answer", some)
        with pytest.raises(Killed):
            make_tables(tiny)


def sums(tiny: Tiny) -> pl.DataFrame:
    return sum_costs(read_costs(tiny.config.out)).select(pl.col("^num_.*$"), pl.col("price").round(6))


def calls(tiny: Tiny) -> list[int]:
    """Those of the last run, then of the others, whose ids may have the same second."""
    last, *others = read_costs(tiny.config.out)["num_reader_calls"]
    return [last, *sorted(others)]


def test_costs_are_of_all_attempts_and_count_nothing_twice(priced: Tiny) -> None:
    whole = priced.with_config(out=f"{priced.folder}/whole", cache_dir=f"{priced.folder}/other")
    make_tables(whole)
    kill_after(9, priced)
    kill_after(4, priced)
    compare(priced)
    costs = read_costs(priced.config.out)
    assert costs["num_requests"].to_list() == [37, 0, 0]
    assert calls(priced) == [24, 4, 9]
    assert costs.filter(~IS_LAST, pl.col("device_seconds") > 0, pl.col("seconds") > 0).height == 2
    assert_frame_equal(sums(priced), sums(whole))
    text = cost_text(costs)
    assert text.startswith("37 requests, 24 of them new in the last run, 13 in 2 runs before; last run: ")
    assert "| compare, all runs |" in pathlib.Path(priced.config.out, "report.md").read_text()
    # the same again, with nothing new
    make_tables(priced)
    assert_frame_equal(sums(priced), sums(whole))
    again = cost_text(read_costs(priced.config.out))
    assert again.startswith("37 requests, 0 of them new in the last run, 37 in 3 runs before; all runs: ")
    # what another job has put into the cache is no cost of this one
    other = priced.with_config(out=f"{priced.folder}/second")
    make_tables(other)
    assert calls(other) == [0]


def test_another_question_adds_its_requests_and_a_damaged_record_is_left_out(priced: Tiny) -> None:
    kill_after(9, priced)
    make_tables(priced)
    lines = [kilt_line(name, *rest) for name, rest in QUESTIONS.items()]
    priced.queries.write_text("".join([*lines[:-1], kilt_line("q6", "another question", "answer", None)]))
    new = sum(part.new.height for part in make_tables(priced).plans)
    assert 0 < new < 37
    assert calls(priced) == [new, 9, 28]
    records = pathlib.Path(priced.config.out, "attempts").glob("*.parquet")
    max(records, key=lambda path: path.stat().st_mtime_ns).write_bytes(b"PAR1")
    make_tables(priced)
    assert calls(priced) == [0, 9, 28]


# --- disks ---


def leave(monkeypatch: pytest.MonkeyPatch, *free: int) -> None:
    """A disk of 1 TB, with these free bytes from check to check; the last ones stay."""
    left = [*free]

    def usage(path: object) -> SimpleNamespace:
        return SimpleNamespace(total=10**12, free=left.pop(0) if len(left) > 1 else left[0])

    monkeypatch.setattr(shutil, "disk_usage", usage)


def test_a_job_that_needs_more_than_a_disk_has_does_not_start(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(monkeypatch, disks.FLOOR_BYTES + 10_000)
    message = rf"^out: {tiny.config.out} has 268\.4 MB of free space, and 268\.5 MB are needed\."
    with pytest.raises(JobError, match=message):
        make_tables(tiny.with_config(num_readers=0))
    assert not list(pathlib.Path(tiny.config.cache_dir).rglob("*.parquet"))
    # two folders on one disk
    out, cache = ("out", tiny.config.out), ("cache_dir", tiny.config.cache_dir)
    assert disks.disk_problem({out: 9_000, cache: 0, ("out", "s3://bucket/out"): 10**15}) is None
    assert str(disks.disk_problem({out: 9_000, cache: 2_000})).startswith("cache_dir: ")


def test_a_disk_that_fills_up_ends_the_job_and_what_was_written_stays(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(monkeypatch, *[10**12] * 40, disks.FLOOR_BYTES - 1)
    monkeypatch.setattr(disks, "LOOK_SECONDS", 0.05)
    reader = ReaderConfig(kind="echo", simulated_latency_seconds=0.1, batch_size=1)
    slow = tiny.with_config(reader=reader, num_readers=0)
    with pytest.raises(JobError, match=r"^out: .* Make room there"):
        make_tables(slow)
    leave(monkeypatch, 10**12)
    make_tables(quick := tiny.with_config(num_readers=0))
    new, written = calls(quick)
    assert new + written == 37
    assert new > 0 < written
