"""What goes wrong while reading, and what is left: memory that runs out, processes that end, errors read again."""

import contextlib
import dataclasses
import itertools
import os
import pathlib
import re
import time
import types
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import Mock

import polars as pl
import pyarrow as pa
import pytest
import torch
from failing import Characters
from hanging import LostActor, QuickActor
from pending_requests import FORM, as_pending, in_order, pending, requests, work_of
from tiny import Tiny, table

from erag_ray.config.job import JobConfig
from erag_ray.config.reader import ReaderConfig
from erag_ray.inference import pool, watchdog
from erag_ray.inference.actor import (
    ISOLATED_ROWS,
    MAX_ENDS,
    MAX_LOADS,
    NOTES,
    Attempt,
    ModelActor,
    responses_table,
)
from erag_ray.inference.cluster.session import ray_session
from erag_ray.inference.planning.plan import plan_stage
from erag_ray.inference.pool import run
from erag_ray.inference.stage import run_stage
from erag_ray.inference.watchdog import MaxBatchSeconds
from erag_ray.inputs.stage import prepare
from erag_ray.labels.document_labels import label
from erag_ray.models import make_model, model_id
from erag_ray.models.echo import EchoModel
from erag_ray.models.local.memory import is_out_of_memory
from erag_ray.models.local.model import Output, PromptTokens
from erag_ray.models.local.process import is_gpu_lost
from erag_ray.prompts.request import Response
from erag_ray.store.responses import KEY_COLUMNS, ResponseStore
from erag_ray.store.schemas import LABELS, REQUESTS
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import JobError


class Died(BaseException):
    """Stands for the end of a process."""


class Small(Characters):
    """Runs out of memory above so many tokens in a batch."""

    room = 60
    seen: list[int]

    def generate(self, prompts: Sequence[PromptTokens]) -> list[Output]:
        tokens = sum(prompt.length for prompt in prompts)
        self.seen.append(tokens)
        if tokens > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().generate(prompts)


LOST = "CUDA error: an illegal memory access was encountered"


class Poisoned(Characters):
    """Ends its process on some questions."""

    def generate(self, prompts: Sequence[PromptTokens]) -> list[Output]:
        questions = ["".join(map(chr, prompt.segments[0])) for prompt in prompts]
        if any("poison" in question for question in questions):
            raise Died
        if any("illegal" in question for question in questions):
            raise RuntimeError(LOST)
        return super().generate(prompts)


def small(**settings: Any) -> Small:
    model = Small(ReaderConfig(kind="echo", **settings))
    model.seen = []
    return model


@pytest.mark.long
def test_a_batch_that_does_not_fit_is_halved_and_later_ones_are_smaller() -> None:
    model, lengths = small(), [10, 9] * 20
    found = in_order(model.run(requests(*("x" * length for length in lengths))))
    assert [response.failure for response in found] == [None] * 40
    assert [response.num_prompt_tokens for response in found] == lengths
    # 20 rows of 10 tokens and 12 of 9: 308, 160, 80, 40; then at most 40 at a time
    assert model.seen[:4] == [308, 160, 80, 40]
    assert max(model.seen[-2:]) == 36
    assert model.limits(FORM).tokens == 36


def test_a_request_that_does_not_fit_alone_is_an_error_of_this_job() -> None:
    one, failed, other = in_order(small().run(requests("x" * 10, "y" * 61, "z" * 10)))
    assert (one.text, failed.text, other.text) == ("", None, "")
    assert (one.failure, other.failure) == (None, None)
    assert failed.failure == ("resource", "out of memory with a batch of one request")
    assert failed.num_output_tokens == 0


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA driver error: out of memory"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (RuntimeError("The size of tensor a must match the size of tensor b"), False),
        (ValueError("not enough memory"), False),
    ],
)
def test_which_errors_mean_that_memory_ran_out(error: Exception, is_memory: bool) -> None:
    assert is_out_of_memory(error) == is_memory


@pytest.mark.parametrize(
    ("text", "is_lost"),
    [
        ("CUDA error: an illegal memory access was encountered", True),
        ("CUDA driver error: an illegal memory access was encountered", True),
        ("CUDA error: device-side assert triggered", True),
        ("CUDA error: uncorrectable ECC error encountered", True),
        ("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", True),
        ("CUDA error: no kernel image is available for execution on the device", False),
        ("CUDA error: invalid argument", False),
        ("CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm`", False),
        ("CUDA error: out of memory", False),
    ],
)
def test_which_errors_cost_a_process_its_gpu(text: str, is_lost: bool) -> None:
    assert is_gpu_lost(RuntimeError(text)) == is_lost
    assert not is_gpu_lost(ValueError(text))


@pytest.mark.long
def test_many_requests_that_end_their_processes_do_not_end_the_job(tmp_path: pathlib.Path) -> None:
    places = range(40)
    questions = [f"poison {number}" if number in places else f"question {number}" for number in range(100)]
    assert attempts(tmp_path, pending(*questions), most=100) > MAX_ENDS
    found = stored(tmp_path)
    assert found.height == 100
    assert found["error"].count() == len(places)


POISONED = ReaderConfig(kind=f"{__name__}:Poisoned", batch_size=8)
HANGS = ReaderConfig(kind="hanging:Hangs")


def actor(folder: pathlib.Path, job: str = "job") -> ModelActor:
    return ModelActor(
        config=POISONED,
        model=model_id(make_model(POISONED)),
        forms=[FORM],
        store=str(folder),
        job=job,
        num_threads=1,
        write_every_seconds=0.0,
        max_batch_seconds=None,
    )


def attempts(folder: pathlib.Path, block: pa.Table, most: int = 20) -> int:
    """Processes that it takes to read a block, each new after the last has ended."""
    for number in range(1, most):
        try:
            list(actor(folder)(block))
        except Died:
            continue
        return number
    raise AssertionError("it never ends")


def stored(folder: pathlib.Path, reader: ReaderConfig = POISONED) -> pl.DataFrame:
    store = ResponseStore(str(folder), model_id(make_model(reader)))
    return pl.DataFrame(
        pa.concat_tables(store.folder.read_parquet(name) for name in store.folder.names(suffix=".parquet"))
    )


def notes(folder: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in folder.glob(f"responses/*/{NOTES}/*/*") if path.is_file()]


@pytest.mark.parametrize(
    ("word", "places"),
    [("poison", []), ("poison", [0]), ("poison", [99]), ("poison", [3, 50, 51]), ("illegal", [3, 50])],
)
def test_a_request_that_ends_its_process_does_not_keep_the_others_from_being_read(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, word: str, places: list[int]
) -> None:
    exiting(monkeypatch)
    questions = [f"{word} {number}" if number in places else f"question {number}" for number in range(100)]
    tries = attempts(tmp_path, pending(*questions))
    # at full speed, in a group, alone; then the next group and alone
    assert tries <= 1 + (2 * len(places) + 1 if places else 0)
    found = stored(tmp_path).sort("question_key")
    assert found["question_key"].to_list() == list(range(100))
    failed = found.filter(pl.col("error").is_not_null())
    assert failed["question_key"].to_list() == places
    assert set(failed["error_kind"]) <= {"resource"}
    assert found["output"].null_count() == len(places)
    if word == "illegal":
        assert set(failed["error"]) == {f"its process ended twice while running this ({LOST})"}
    assert [b'"written"' in note.read_bytes() for note in notes(tmp_path)] == [True]


def test_a_process_that_ends_for_another_reason_costs_nothing_but_time(tmp_path: pathlib.Path) -> None:
    block = pending(*(f"question {number}" for number in range(ISOLATED_ROWS + 5)))
    first = actor(tmp_path)
    answers = first.isolation.run
    # the process ends after its second batch
    first.isolation.run = lambda asked: some_then_end(answers(asked))  # type: ignore[method-assign]
    with pytest.raises(Died):
        list(first(block))
    assert len(stored(tmp_path)) == 16
    for num_more in (ISOLATED_ROWS + 5 - 16, 0):
        again = actor(tmp_path)
        list(again(block))
        assert again.num_responses == num_more
    assert stored(tmp_path)["question_key"].sort().to_list() == list(range(ISOLATED_ROWS + 5))
    assert stored(tmp_path)["error"].null_count() == ISOLATED_ROWS + 5


def exiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of this process is an exception."""

    def leave(code: int) -> None:
        raise Died

    monkeypatch.setattr(os, "_exit", leave)


def test_what_was_answered_before_a_gpu_was_lost_is_kept(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exiting(monkeypatch)
    last = [f"question {number}" for number in range(30)] + ["illegal"]
    whole = actor(tmp_path)
    # longest first: what is lost comes at the end, and nothing has been written until then
    whole.write_every_seconds = 3600.0
    with pytest.raises(Died):
        list(whole(pending(*last)))
    assert stored(tmp_path).height >= 24


def test_processes_that_end_one_after_the_other_end_the_job(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exiting(monkeypatch)
    block = pending(*(f"illegal {number}" for number in range(100)))
    for _ in range(MAX_ENDS):
        with pytest.raises(Died):
            list(actor(tmp_path)(block))
    match = rf"^{MAX_ENDS} processes in a row ended without a response, the last one: .*illegal memory access.*kept"
    with pytest.raises(JobError, match=match):
        list(actor(tmp_path)(block))
    assert stored(tmp_path).height < MAX_ENDS


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"),
         "the GPU cannot be used: CUDA error: uncorrectable ECC error encountered"),
        (OSError("Can't load the tokenizer"), "reader echo cannot be loaded: Can't load the tokenizer"),
    ],
)  # fmt: skip
def test_a_model_that_a_node_cannot_load_ends_the_job_by_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, error: Exception, what: str
) -> None:
    monkeypatch.setattr(EchoModel, "load", Mock(side_effect=error))
    echo = make_model(ReaderConfig(kind="echo"))
    whole = ModelActor(echo.config, model_id(echo), [FORM], str(tmp_path), "job", 1, 20.0, None)
    with pytest.raises(JobError, match=rf"^node \S+: {what}.*same command again$"):
        list(whole(pending("question")))


def test_a_node_with_another_model_ends_the_job_by_name(tmp_path: pathlib.Path) -> None:
    config = ReaderConfig(kind="echo")
    whole = ModelActor(config, "echo-of-the-driver", [FORM], str(tmp_path), "job", 1, 20.0, None)
    match = r"^reader\.model: \S+ on node \S+ is echo-\w{16}, and echo-of-the-driver where the job started\. Give every"
    with pytest.raises(JobError, match=match):
        list(whole(pending("question")))


def some_then_end(answers: Iterator[tuple[int, Response]]) -> Iterator[tuple[int, Response]]:
    yield from itertools.islice(answers, 16)
    raise Died


def test_notes_of_another_job_do_not_count(tmp_path: pathlib.Path) -> None:
    block = pending("poison", "question")
    with pytest.raises(Died):
        list(actor(tmp_path, "first")(block))
    with pytest.raises(Died):
        list(actor(tmp_path, "second")(block))
    assert len(notes(tmp_path)) == 2


@pytest.mark.cluster
def test_a_store_that_cannot_be_written_is_told_at_once(local_ray: None, tmp_path: pathlib.Path) -> None:
    work, config = work_of(tmp_path, pending("question"), ReaderConfig(kind="echo"))
    folder = tmp_path / "responses" / work.model
    folder.mkdir(parents=True)
    (folder / NOTES).write_text("a file where a folder should be")
    with ray_session(), pytest.raises(JobError, match=r"cannot be used: .*Not a directory.*start the same"):
        run(work, config, "job")


@pytest.mark.cluster
@pytest.mark.parametrize("seconds", ["auto", 2.0])
def test_real_processes_that_end_or_hang_lose_no_other_request(
    local_ray: None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, seconds: MaxBatchSeconds
) -> None:
    monkeypatch.setattr(pool, "ModelActor", QuickActor)
    crash = "a crash, or max_batch_seconds"
    faults = {31: ("slow one", "a batch took longer than . s"), 50: ("stuck in native code", crash)}
    if seconds == "auto":
        # an end that has to do with no limit
        faults = {7: ("exit now", crash), **faults}
    questions = [faults.get(number, (f"question {number}", ""))[0] for number in range(60)]
    work, config = work_of(tmp_path, pending(*questions), HANGS)
    with ray_session():
        done = run(work, dataclasses.replace(config, max_batch_seconds=seconds), "job")
    rows = stored(tmp_path, HANGS).sort("question_key")
    # what dead processes wrote counts, and its tokens
    assert (done.num_responses, done.num_prompt_tokens) == (60, rows["num_prompt_tokens"].sum())
    assert rows["question_key"].to_list() == list(range(60))
    failed = rows.filter(pl.col("error").is_not_null())
    assert failed["question_key"].to_list() == [*faults]
    for (_, reason), error in zip(faults.values(), failed["error"], strict=True):
        assert re.search(rf"ended twice while running this \({reason}", error)
    assert not notes(tmp_path)


@pytest.mark.cluster
@pytest.mark.parametrize("num_hangs", [1, 99])
def test_a_model_that_hangs_while_loading_is_loaded_again_and_at_last_ends_the_job(
    local_ray: None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, num_hangs: int
) -> None:
    monkeypatch.setattr(pool, "ModelActor", QuickActor)
    reader = dataclasses.replace(HANGS, model=f"{tmp_path}:{num_hangs}")
    work, config = work_of(tmp_path, pending("question"), reader)
    failing = pytest.raises(JobError, match="3 processes in a row ended while loading the model: a crash, or")
    with ray_session(), failing if num_hangs > MAX_LOADS else contextlib.nullcontext():
        run(work, config, "job")
        assert stored(tmp_path, reader)["error"].to_list() == [None]
    assert len(list(tmp_path.glob("loading-*"))) == min(num_hangs, MAX_LOADS)


@pytest.mark.cluster
def test_an_actor_that_ray_ends_for_good_while_it_starts_is_replaced(
    local_ray: None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "ModelActor", LostActor)
    (tmp_path / "lost").touch()
    work, config = work_of(tmp_path, pending("question"), HANGS)
    with ray_session():
        run(work, config, "job")
    assert not (tmp_path / "lost").exists()
    assert stored(tmp_path, HANGS)["error"].to_list() == [None]


def test_the_limit_of_a_batch_is_by_the_slowest_one_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    timers, ends = list[float](), list[TimeoutError]()
    timer = types.SimpleNamespace(
        dump_traceback_later=lambda seconds, **options: timers.append(seconds),
        dump_traceback=lambda file: None,
    )
    monkeypatch.setattr(watchdog, "faulthandler", timer)
    for name, value in {"LOAD_SECONDS": 99.0, "MIN_BATCH_SECONDS": 0.1, "CHECK_SECONDS": 0.01}.items():
        monkeypatch.setattr(watchdog, name, value)
    dog = watchdog.Watchdog("auto", ends.append)
    dog.start()
    time.sleep(0.05)
    dog.stop()
    assert 0.05 <= dog.slowest < 1.0
    assert 98.0 < timers[-1] < 100.0
    # nothing is measured, so nothing is late
    time.sleep(0.2)
    assert not ends
    dog.slowest = 0.001
    dog.start()
    time.sleep(0.5)
    assert [str(end) for end in ends] == ["a batch took longer than 0 s (max_batch_seconds)"]
    # the reason may not be writable
    assert timers[-1] == watchdog.END_SECONDS + watchdog.CHECK_SECONDS


def test_served_models_have_limits_of_their_own_unless_the_job_sets_one() -> None:
    limits, one = [], pool.Pool(size=1, num_cpus=1, num_gpus=0)
    for kind, seconds in [("echo", "auto"), ("served", "auto"), ("served", 90.0), ("echo", None)]:
        work: Any = types.SimpleNamespace(config=ReaderConfig(kind=kind), model="", forms=())
        work.may_all_fail = False
        arguments = pool.actor_arguments(work, JobConfig(max_batch_seconds=seconds), "job", one)
        limits.append(arguments["max_batch_seconds"])
    assert limits == ["auto", None, 90.0, None]


def fail_one(tiny: Tiny, kind: str) -> None:
    """Make the stored response about (q1, d1) an error."""
    requests = TableStore(f"{tiny.config.out}/compare").read(REQUESTS)
    asked = requests.filter(pl.col("query_id") == "q1", pl.col("doc_ids") == ["d1"]).select(KEY_COLUMNS)
    store = ResponseStore(tiny.config.cache_dir, next(iter(os.listdir(f"{tiny.config.cache_dir}/responses"))))
    (name,) = store.folder.names(suffix=".parquet")
    rows = pl.DataFrame(store.folder.read_parquet(name))
    is_it = pl.struct(KEY_COLUMNS) == asked.to_struct()[0]
    broken = rows.with_columns(
        output=pl.when(~is_it).then("output"),
        error=pl.when(is_it).then(pl.lit("broken")),
        error_kind=pl.when(is_it).then(pl.lit(kind)),
    )
    store.folder.write_parquet(broken.to_arrow(), name)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "retry_failed", "is_read"),
    [("resource", False, True), ("code", False, True), ("input", False, False), ("input", True, True)],
)
def test_which_errors_the_next_job_reads_again(
    compared: Tiny, kind: str, retry_failed: bool, is_read: bool
) -> None:
    fail_one(compared, kind)
    again = compared.with_config(max_error_fraction=0.05, retry_failed=retry_failed)
    inputs = prepare(again.config)
    plan = plan_stage(again.config, inputs, "compare", single_document=True, end_to_end=True)
    assert sum(part.new.height for part in plan.plans) == int(is_read)
    done = run_stage(again.config, plan)
    assert done.responses["error"].count() == int(not is_read)
    assert done.responses.select(KEY_COLUMNS).n_unique() == done.responses.height
    if not is_read:
        label(again.config, inputs, done)
        # not judged is null, never 0
        assert table(again, LABELS, annotator="erag")["label"].null_count() == 1
        strict = dataclasses.replace(again.config, max_error_fraction=0.0)
        match = r"1 of 37 requests are errors.*\n.*query q1, documents \['d1'\]: input: broken"
        with pytest.raises(JobError, match=match):
            run_stage(strict, plan)
        assert not pathlib.Path(again.config.out, "compare", "manifest.json").exists()


def test_a_process_that_ended_after_its_last_response_has_nothing_left_to_run(tmp_path: pathlib.Path) -> None:
    model, asked = make_model(ReaderConfig(kind="echo")), requests("a", "b")
    name, block = model_id(model), as_pending(asked)
    store = ResponseStore(str(tmp_path), name)
    store.append(responses_table(block, name, in_order(model.run(asked))), "job")
    Attempt(store, "job", block).write_running()
    again = ModelActor(model.config, name, [FORM], str(tmp_path), "job", 1, 20.0, None)
    list(again(block))
    assert again.num_responses == 0
