"""An actor with one model: takes blocks of PENDING, writes RESPONSES to the store, and returns counts.

A request can kill its process (a crash in native code, the kernel's out-of-memory killer) or block it for ever; Ray
then retries the block in a new process. Therefore each block has a note in the store while it runs. A process that
finds a note isolates the request: it skips what was written, runs a few requests at a time and notes which ones.
Requests that were running when a process died are run one by one, and one that kills its process alone becomes an
error of kind ``resource``, so that all others get their responses.

An error after which a process cannot use its GPU (an illegal access, a failed assertion, broken memory) ends the
process in the same way, but not the job.
"""

from __future__ import annotations

import gc
import json
import math
import os
import platform
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import torch

from erag_ray.cluster import check_gpus
from erag_ray.config import ReaderConfig
from erag_ray.errors import InputError, JobError
from erag_ray.models import Isolation, Model, check_facts, load_model, make_model, model_id
from erag_ray.models.local import backend, is_gpu_lost, keep_freed_memory
from erag_ray.planning import PendingRequests
from erag_ray.process_memory import peak_resident_bytes
from erag_ray.requests import Failure, Form, Response
from erag_ray.schemas import RESPONSES
from erag_ray.store import KEY_COLUMNS, ResponseStore, TracebackFiles, as_frame, keys_digest
from erag_ray.user_code import RESUME_ADVICE

ISOLATED_ROWS = 32
MAX_REASON = 200
GARBAGE_THRESHOLDS = 50_000, 20, 100
"""Thresholds of Python's garbage collector, for its three generations.

The prompts of a window are many small objects without cycles: with the default thresholds, collection takes a fifth of
the host's time."""
CHECK_SECONDS = 0.5
COUNTED = (
    "num_answer_tokens",
    "num_prompt_tokens",
    "num_output_tokens",
    "num_truncated_question_tokens",
    "num_truncated_passage_tokens",
)
"""Columns of RESPONSES that are fields of `Response`."""
NOTES = "_attempts"
UNKNOWN = "a crash, or max_batch_seconds"
MAX_ENDS = 20
"""Maximum of consecutive processes that lose their GPU in one block without any response; then the job ends."""
Keys = list[list[int]]


class Note(NamedTuple):
    """State of a running block.

    Attributes:
        keys: of the requests that are running, if only a few are.
        num_ends: consecutive processes that lost their GPU in this block without any response.
        reason: why the last one ended, if known.
    """

    keys: Keys
    num_ends: int = 0
    reason: str = UNKNOWN


class Attempt:
    """The note of one running block of one job, in the store."""

    def __init__(self, store: ResponseStore, job: str, requests: pa.Table) -> None:
        self._folder = store.folder
        self._path = (NOTES, job, keys_digest(requests))
        self._last = Note([])

    def last(self) -> Note | None:
        """Return the note of the process that died in this block; None if none did."""
        try:
            return Note(*json.loads(self._folder.read_bytes(*self._path)))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            # a partial note, left by a machine that died
            return Note([])

    def note(self, requests: pa.Table | None = None, num_ends: int = 0, reason: str = UNKNOWN) -> None:
        """Write that the block is running, and these requests of it, if only a few are."""
        self._write(Note([] if requests is None else keys_of(requests), num_ends, reason))

    def end_process(self, error: BaseException) -> None:
        """Write why this process ends, and exit."""
        self._write(self._last._replace(reason=" ".join(str(error).split())[:MAX_REASON]))
        traceback.print_exception(error)
        sys.stderr.flush()
        os._exit(1)

    def _write(self, note: Note) -> None:
        self._last = note
        self._folder.write_bytes(json.dumps(note).encode(), *self._path)

    def end(self) -> None:
        """Delete the note: the block is done."""
        self._folder.delete(*self._path)


def keys_of(requests: pa.Table) -> Keys:
    """Return the keys of PENDING or RESPONSES, row by row."""
    columns = (requests.column(name).to_pylist() for name in KEY_COLUMNS)
    return [list(pair) for pair in zip(*columns, strict=True)]


class ModelActor:
    """An actor with one model, for requests of any dataset and kind.

    Attributes:
        model_seconds: time in the model so far, without loading and without the store.
    """

    def __init__(
        self,
        config: ReaderConfig,
        model: str,
        forms: Sequence[Form],
        store: str,
        job: str,
        num_threads: int,
        write_every_seconds: float,
        max_batch_seconds: float | None,
        memory_share: float = 1.0,
        errors: str | None = None,
        max_cost: float | None = None,
    ) -> None:
        torch.set_num_threads(num_threads)
        set_tokenizer_threads(num_threads)
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        keep_freed_memory()
        if errors:
            TracebackFiles(errors).open()
        self.id = model
        self.forms = forms
        self.job = job
        self.write_every_seconds = write_every_seconds
        self.max_batch_seconds = max_batch_seconds
        self.store = ResponseStore(store, model)
        self.model_seconds = 0.0
        self._notes: Counter[str] = Counter()
        self._num_cached_tokens = 0
        self._budget = _Budget(config, max_cost)
        self._fault: InputError | JobError | None = None
        # raised with the first block: Ray would hide an error of the constructor in a message of its own
        try:
            check_gpus()
            self.isolation = self._load(config, model, memory_share)
            check_facts(self.isolation.model, self.store)
        except (InputError, JobError) as error:
            self._fault = error
        except RuntimeError as error:
            if not is_gpu_lost(error):
                raise
            self._fault = JobError(
                f"node {platform.node()}: the GPU cannot be used: {error}; {RESUME_ADVICE}"
            )

    def _load(self, config: ReaderConfig, model: str, memory_share: float) -> Isolation:
        return Isolation(_loaded(config, model, memory_share))

    def __call__(self, requests: pa.Table) -> Iterator[dict[str, list[Any]]]:
        if self._fault:
            raise self._fault
        start = time.monotonic()
        attempt = Attempt(self.store, self.job, requests)
        counts = [
            (
                responses.num_rows,
                pc.sum(responses.column("num_prompt_tokens")).as_py() or 0,
                pc.sum(responses.column("num_output_tokens")).as_py() or 0,
            )
            for responses in self._written(self._attempted(requests, attempt))
        ]
        attempt.end()
        num_responses, num_prompt, num_output = (
            sum(column) for column in zip((0, 0, 0), *counts, strict=True)
        )
        notes, num_cached = self._notes, self._num_cached_tokens
        self._notes, self._num_cached_tokens = Counter(), 0
        yield {
            "notes": [json.dumps(notes)],
            "num_cached_prompt_tokens": [num_cached],
            "num_responses": [num_responses],
            "num_questions": [pc.count_distinct(requests.column("question")).as_py()],
            "num_prompt_tokens": [num_prompt],
            "num_output_tokens": [num_output],
            "device_seconds": [time.monotonic() - start],
            "peak_memory_bytes": [peak_memory_bytes()],
        }

    def _attempted(self, requests: pa.Table, attempt: Attempt) -> Iterator[pa.Table]:
        """Yield RESPONSES of a block, part of which an earlier process may have run."""
        last = attempt.last()
        if last is None:
            attempt.note()
        try:
            yield from self._tables(requests) if last is None else self._run_isolated(requests, attempt, last)
        except RuntimeError as error:
            if not is_gpu_lost(error):
                raise
            self._end(attempt, error)

    def _end(self, attempt: Attempt, error: RuntimeError) -> None:
        """End this process, whose GPU is lost; Ray starts another."""
        attempt.end_process(error)

    def _written(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Append each table of responses to the store."""
        start = time.monotonic()
        for responses in tables:
            self.store.append(responses, self.job, time.monotonic() - start, backend())
            start = time.monotonic()
            yield responses

    def _tables(self, requests: pa.Table) -> Iterator[pa.Table]:
        """Yield RESPONSES of PENDING in tables of at least ``write_every_seconds`` each."""
        rows, responses, written_at = list[int](), list[Response](), time.monotonic()
        try:
            for row, response in self._timed(PendingRequests(requests, self.forms)):
                is_new_batch = time.monotonic() - written_at >= self.write_every_seconds
                rows.append(row)
                responses.append(response)
                if is_new_batch:
                    yield responses_table(requests.take(rows), self.id, responses)
                    rows, responses, written_at = [], [], time.monotonic()
        except (JobError, RuntimeError, KeyboardInterrupt):
            # the model cannot go on: write the responses so far
            if rows:
                yield responses_table(requests.take(rows), self.id, responses)
            raise
        if rows:
            yield responses_table(requests.take(rows), self.id, responses)

    def _timed(self, requests: PendingRequests) -> Iterator[tuple[int, Response]]:
        """Yield the model's responses, and measure its time.

        Raises:
            JobError: the budget is spent before all requests are done.
        """
        self._budget.check()
        responses, num_responses = self.isolation.run(requests), 0
        with _Alarm(self.max_batch_seconds) as alarm:
            while True:
                start = time.monotonic()
                alarm.set()
                item = next(responses, None)
                alarm.clear()
                self.model_seconds += time.monotonic() - start
                if item is None:
                    break
                _, response = item
                self._notes.update(response.notes)
                self._num_cached_tokens += response.num_cached_prompt_tokens
                num_responses += 1
                yield item
                # requests in flight cost anyway: wait for their responses
                if self._budget.spend(response) and not self.isolation.model.stop_sending():
                    break
        if num_responses < len(requests):
            self._budget.check()

    def _run_isolated(self, requests: pa.Table, attempt: Attempt, last: Note) -> Iterator[pa.Table]:
        """Yield RESPONSES of the requests that a dead process has left, in small groups, to find what kills it.

        Raises:
            JobError: too many processes in a row lose their GPU.
        """
        num_ends = last.num_ends + (last.reason != UNKNOWN)
        if num_ends >= MAX_ENDS:
            raise JobError(f"{num_ends} processes in a row lost their GPU: {last.reason}; {RESUME_ADVICE}")
        todo = without(requests, self.store.keys_by(self.job))
        # explicit type, for an empty array
        is_suspect = pa.array([keys in last.keys for keys in keys_of(todo)], pa.bool_())
        suspects, others = todo.filter(is_suspect), todo.filter(pc.invert(is_suspect))
        if len(last.keys) == 1 and suspects.num_rows:
            failures = [Response(failure=process_failure(last.reason))] * suspects.num_rows
            yield responses_table(suspects, self.id, failures)
            suspects = suspects.slice(0, 0)
        groups = [suspects.slice(row, 1) for row in range(suspects.num_rows)]
        groups += [others.slice(row, ISOLATED_ROWS) for row in range(0, others.num_rows, ISOLATED_ROWS)]
        for group in groups:
            attempt.note(group, num_ends)
            for responses in self._tables(group):
                num_ends = 0 if responses.column("error").null_count else num_ends
                yield responses


def process_failure(reason: str) -> Failure:
    """Return the failure of a request that ended its process when run alone."""
    return Failure("resource", f"its process ended twice while running this ({reason})")


def without(requests: pa.Table, keys: pl.DataFrame) -> pa.Table:
    """Return the rows of PENDING whose keys are not in ``keys``."""
    numbered = as_frame(requests.select(KEY_COLUMNS)).with_row_index("row")
    return requests.take(numbered.join(keys, on=KEY_COLUMNS, how="anti")["row"].sort().to_arrow())


def responses_table(requests: pa.Table, model: str, responses: Sequence[Response]) -> pa.Table:
    """Return RESPONSES to rows of PENDING, in their order."""
    columns = {
        "model": [model] * requests.num_rows,
        **{name: requests.column(name) for name in KEY_COLUMNS},
        "output": [response.text for response in responses],
        "logprobs": [response.logprobs for response in responses],
        "error": [response.failure and response.failure.text for response in responses],
        "error_kind": [response.failure and response.failure.kind for response in responses],
        **{name: [getattr(response, name) for response in responses] for name in COUNTED},
    }
    return pa.table(columns, schema=RESPONSES.columns)


def _loaded(config: ReaderConfig, name: str, memory_share: float) -> Model:
    model = make_model(config)
    local_id = model_id(model)
    if local_id != name:
        raise RuntimeError(
            f"the model {config.model} on this node differs from the job's: {local_id}, not {name}"
        )
    model.memory_share = memory_share
    load_model(model)
    return model


def set_tokenizer_threads(num_threads: int) -> None:
    """Set the number of threads of the package tokenizers; it reads both variables at its first use."""
    os.environ["RAYON_NUM_THREADS"] = str(num_threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if num_threads > 1 else "false"


class _Budget:
    """The maximal cost of an actor's requests (None: no limit)."""

    def __init__(self, config: ReaderConfig, max_cost: float | None) -> None:
        self._config, self._max_cost, self._spent = config, max_cost, 0.0

    def spend(self, response: Response) -> bool:
        """Add a response's cost; return whether the budget is spent."""
        counts = response.num_prompt_tokens, response.num_cached_prompt_tokens, response.num_output_tokens
        self._spent += self._config.price_of(*counts) or 0.0
        return self._max_cost is not None and self._spent >= self._max_cost

    def check(self) -> None:
        """Check that the budget is not spent.

        Raises:
            JobError: it is.
        """
        if self._max_cost is not None and self._spent >= self._max_cost:
            text = f"max_cost: {self._spent:.4f} is spent of {self._max_cost:.4f} for each actor and model"
            raise JobError(f"{text}. The responses so far are kept; a new job may spend as much again")


class _Alarm:
    """A watchdog that ends this process if a batch takes too long: nothing else interrupts native code."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._deadline = math.inf
        self._closing = threading.Event()

    def __enter__(self) -> _Alarm:
        if self._seconds is not None:
            threading.Thread(target=self._watch, args=(self._seconds,), daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.set()

    def set(self) -> None:
        """Start the clock."""
        self._deadline = time.monotonic() + (self._seconds or math.inf)

    def clear(self) -> None:
        """Stop the clock until `set`."""
        self._deadline = math.inf

    def _watch(self, seconds: float) -> None:
        while not self._closing.wait(min(CHECK_SECONDS, seconds / 10)):
            if time.monotonic() > self._deadline:
                os._exit(1)


def peak_memory_bytes() -> int:
    """Return the peak memory of this process: of its GPU if it has one, else resident (`peak_resident_bytes`)."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return peak_resident_bytes()
