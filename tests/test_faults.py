"""What goes wrong while reading, and what is left: memory that runs out, processes that end, errors read again."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import models
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tiny import Tiny, compare

from erag_ray.config import JobConfig, ReaderConfig
from erag_ray.pipeline import Work, ray_session, read
from erag_ray.pipeline.actor import CAREFUL_ROWS, NOTES, Attempt, ReaderActor
from erag_ray.readers import Output, Prompt, Request, make_reader, reader_id
from erag_ray.readers.echo import EchoReader
from erag_ray.readers.memory import is_out_of_memory
from erag_ray.schemas import JobError
from erag_ray.steps.inputs import prepare
from erag_ray.steps.planning import plan_stage
from erag_ray.steps.reading import run_stage
from erag_ray.store import KEY_COLUMNS, ReadingStore, as_frame

# Ray warns of its own inner workings
pytestmark = pytest.mark.filterwarnings(
    r"ignore::DeprecationWarning:ray\..*", r"ignore::FutureWarning:ray\..*"
)


class Died(BaseException):
    """Stands for the end of a process."""


class Small(EchoReader):
    """Runs out of memory above so many tokens in a batch."""

    room = 60
    seen: list[int]

    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        tokens = sum(prompt.num_tokens for prompt in prompts)
        self.seen.append(tokens)
        if tokens > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().generate(prompts)


class Poisoned(EchoReader):
    """Ends its process, or takes very long, on some questions."""

    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        questions = ["".join(map(chr, prompt.segments[0])) for prompt in prompts]
        if any("poison" in question for question in questions):
            raise Died
        if any("exit" in question for question in questions):
            os._exit(1)
        if any("slow" in question for question in questions):
            time.sleep(60)
        return super().generate(prompts)


def requests(*questions: str) -> pa.Table:
    return models.as_table([Request(question, ()) for question in questions])


def small(**settings: Any) -> Small:
    reader = Small(ReaderConfig(kind="echo", **settings))
    reader.seen = []
    return reader


def rows_of(tables: Iterator[pa.Table]) -> pl.DataFrame:
    return as_frame(pa.concat_tables(tables)).sort("question_key")


def test_a_batch_that_does_not_fit_is_halved_and_later_ones_are_smaller() -> None:
    reader = small()
    found = rows_of(reader.read(requests(*(["x" * 10] * 40)), "r"))
    assert found["error"].null_count() == 40
    assert found["num_prompt_tokens"].to_list() == [10] * 40
    # 32 rows of 10 tokens: 320, 160, 80, 40; then 40 at a time
    assert reader.seen[:4] == [320, 160, 80, 40]
    assert max(reader.seen[-2:]) == 40
    assert reader.limits.tokens == 40


def test_a_request_that_does_not_fit_alone_is_an_error_of_this_job() -> None:
    found = rows_of(small().read(requests("x" * 10, "y" * 61, "z" * 10), "r"))
    assert found["error_kind"].to_list() == [None, "resource", None]
    assert found["output"].to_list() == ["", None, ""]
    assert found["error"][1] == "out of memory, even alone"
    assert found["num_output_tokens"][1] == 0


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("The size of tensor a must match the size of tensor b"), False),
        (ValueError("not enough memory"), False),
    ],
)
def test_which_errors_mean_that_memory_ran_out(error: Exception, is_memory: bool) -> None:
    assert is_out_of_memory(error) == is_memory


def test_another_error_is_not_taken_for_it() -> None:
    class Broken(EchoReader):
        def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
            raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        rows_of(Broken(ReaderConfig(kind="echo")).read(requests("x"), "r"))


POISONED = ReaderConfig(kind=f"{__name__}:Poisoned", batch_size=8)


def actor(folder: pathlib.Path, job: str = "job") -> ReaderActor:
    return ReaderActor(
        config=POISONED,
        reader=reader_id(make_reader(POISONED)),
        store=str(folder),
        job=job,
        num_threads=1,
        write_every_seconds=0.0,
        max_batch_seconds=None,
    )


def attempts(folder: pathlib.Path, block: pa.Table) -> int:
    """Processes that it takes to read a block, each new after the last has ended."""
    for number in range(1, 20):
        try:
            list(actor(folder)(block))
        except Died:
            continue
        return number
    raise AssertionError("it never ends")


def stored(folder: pathlib.Path) -> pl.DataFrame:
    store = ReadingStore(str(folder), reader_id(make_reader(POISONED)))
    return as_frame(
        pa.concat_tables(store.folder.read_parquet(name) for name in store.folder.names(suffix=".parquet"))
    )


def notes(folder: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in folder.glob(f"readings/*/{NOTES}/*/*") if path.is_file()]


@pytest.mark.parametrize("places", [[], [0], [99], [3, 50, 51]])
def test_a_request_that_ends_its_process_does_not_keep_the_others_from_being_read(
    tmp_path: pathlib.Path, places: list[int]
) -> None:
    questions = [f"poison {number}" if number in places else f"question {number}" for number in range(100)]
    tries = attempts(tmp_path, requests(*questions))
    # at full speed, in a group, alone; then the next group and alone
    assert tries <= 1 + (2 * len(places) + 1 if places else 0)
    found = stored(tmp_path).sort("question_key")
    assert found["question_key"].to_list() == list(range(100))
    failed = found.filter(pl.col("error").is_not_null())
    assert failed["question_key"].to_list() == places
    assert set(failed["error_kind"]) <= {"resource"}
    assert found["output"].null_count() == len(places)
    assert not notes(tmp_path)


def test_a_process_that_ends_for_another_reason_costs_nothing_but_time(tmp_path: pathlib.Path) -> None:
    block = requests(*(f"question {number}" for number in range(CAREFUL_ROWS + 5)))
    first = actor(tmp_path)
    batches = first._batches
    # the process ends after its second batch
    first._batches = lambda table: two_then_end(batches(table))  # type: ignore[method-assign]
    with pytest.raises(Died):
        list(first(block))
    assert len(stored(tmp_path)) == 16
    (counts,) = actor(tmp_path)(block)
    assert counts["num_readings"] == [CAREFUL_ROWS + 5 - 16]
    assert stored(tmp_path)["question_key"].sort().to_list() == list(range(CAREFUL_ROWS + 5))
    assert stored(tmp_path)["error"].null_count() == CAREFUL_ROWS + 5


def two_then_end(batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield next(batches)
    yield next(batches)
    raise Died


def test_notes_of_another_job_do_not_count(tmp_path: pathlib.Path) -> None:
    block = requests("poison", "question")
    with pytest.raises(Died):
        list(actor(tmp_path, "first")(block))
    with pytest.raises(Died):
        list(actor(tmp_path, "second")(block))
    assert len(notes(tmp_path)) == 2


def work_of(folder: pathlib.Path, block: pa.Table, reader: ReaderConfig) -> tuple[Work, JobConfig]:
    (folder / "requests").mkdir()
    pq.write_table(block, folder / "requests" / "part.parquet")
    work = Work(
        requests=str(folder / "requests"),
        num_requests=block.num_rows,
        config=reader,
        reader=reader_id(make_reader(reader)),
    )
    config = JobConfig(
        store=str(folder), rows_per_block=20, write_every_seconds=0.1, max_batch_seconds=2.0, progress=False
    )
    return work, config


def test_a_store_that_cannot_be_written_is_told_at_once(local_ray: None, tmp_path: pathlib.Path) -> None:
    work, config = work_of(tmp_path, requests("question"), ReaderConfig(kind="echo"))
    folder = tmp_path / "readings" / work.reader
    folder.mkdir(parents=True)
    (folder / NOTES).write_text("a file where a folder should be")
    with ray_session(), pytest.raises(JobError, match=r"cannot be used: .*Not a directory.*start the same"):
        read(work, config, "job")


@pytest.mark.cluster
def test_real_processes_that_end_or_hang_lose_no_other_request(
    local_ray: None, tmp_path: pathlib.Path
) -> None:
    questions = [f"question {number}" for number in range(60)]
    questions[7], questions[31] = "exit now", "slow one"
    work, config = work_of(tmp_path, requests(*questions), POISONED)
    with ray_session():
        read(work, config, "job")
    found = stored(tmp_path).sort("question_key")
    assert found["question_key"].to_list() == list(range(60))
    assert found.filter(pl.col("error").is_not_null())["question_key"].to_list() == [7, 31]
    assert not notes(tmp_path)


def fail_one(tiny: Tiny, kind: str) -> None:
    """Make the stored reading of one pair an error."""
    store = ReadingStore(tiny.config.store, next(iter(os.listdir(f"{tiny.config.store}/readings"))))
    (name,) = store.folder.names(suffix=".parquet")
    rows = as_frame(store.folder.read_parquet(name))
    is_first = pl.int_range(pl.len()) == 0
    broken = rows.with_columns(
        output=pl.when(~is_first).then("output"),
        error=pl.when(is_first).then(pl.lit("broken")),
        error_kind=pl.when(is_first).then(pl.lit(kind)),
    )
    store.folder.write_parquet(broken.to_arrow(), name)


@pytest.mark.parametrize(
    ("kind", "retry_errors", "is_read"),
    [("resource", False, True), ("code", False, True), ("input", False, False), ("input", True, True)],
)
def test_which_errors_the_next_job_reads_again(
    tiny: Tiny, reads_here: list[int], kind: str, retry_errors: bool, is_read: bool
) -> None:
    compare(tiny)
    fail_one(tiny, kind)
    again = tiny.with_config(max_error_share=0.05, retry_errors=retry_errors)
    inputs = prepare(again.config)
    plan = plan_stage(again.config, inputs, "compare", alone=True, together=True)
    assert sum(part.new.height for part in plan.plans) == int(is_read)
    done = run_stage(again.config, plan)
    assert done.readings["error"].count() == int(not is_read)
    assert done.readings.select(KEY_COLUMNS).n_unique() == done.readings.height
    if not is_read:
        strict = dataclasses.replace(again.config, max_error_share=0.0)
        with pytest.raises(JobError, match=r"1 of 37 readings are errors.*\n.*input: broken"):
            run_stage(strict, plan)


def test_a_process_that_ended_after_its_last_reading_has_nothing_left_to_read(tmp_path: pathlib.Path) -> None:
    reader = make_reader(ReaderConfig(kind="echo"))
    name, asked = reader_id(reader), requests("a", "b")
    store = ReadingStore(str(tmp_path), name)
    store.append(pa.concat_tables(reader.read(asked, name)), "job")
    Attempt(store, "job", asked).note()
    (counts,) = ReaderActor(reader.config, name, str(tmp_path), "job", 1, 20.0, None)(asked)
    assert counts["num_readings"] == [0]
    assert Attempt(store, "job", asked).suspects() is None
