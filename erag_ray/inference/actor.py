"""One model in a process of its own: a block of PENDING in, RESPONSES into the store, counts out.

A request can end the process that reads it (a crash in native code, the operating system's memory killer) or keep it
busy for ever; Ray then gives the same block to a new process. So each block leaves a note in the store while it is
being read. A process that finds one goes on carefully: it leaves out what was written, reads a few requests at a time
and notes which; those that were being read when a process ended are then read one by one, and one that ends its
process alone becomes an error of kind ``resource``, so that all others are read.

An error after which a process cannot use its GPU any more (an illegal access, a failed assertion, broken memory) ends
the process in the same way, not the job.
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
from erag_ray.user_code import KEPT

CAREFUL_ROWS = 32
MAX_WHY = 200
GARBAGE_THRESHOLDS = 50_000, 20, 100
"""New objects, and rounds, after which Python looks for cycles among them.

The prompts of a window are many small objects without cycles: by Python's own settings they take a fifth of the host's
time."""
LOOK_SECONDS = 0.5
COUNTED = (
    "num_answer_tokens",
    "num_prompt_tokens",
    "num_output_tokens",
    "num_truncated_question_tokens",
    "num_truncated_passage_tokens",
)
"""Columns of RESPONSES that are fields of a response."""
NOTES = "_attempts"
UNKNOWN = "a crash, or max_batch_seconds"
MAX_ENDS = 20
"""Processes in a row that lose their GPU in one block without a response between them: the job then ends too."""
Keys = list[list[int]]


class Note(NamedTuple):
    """State of a block that is being run.

    Attributes:
        keys: of the requests that are being read just now, if only a few are.
        num_ends: processes that have lost their GPU in this block, without a response between them.
        why: what ended the last one, if it could say so.
    """

    keys: Keys
    num_ends: int = 0
    why: str = UNKNOWN


class Attempt:
    """The note about one block of one job, in the store: that it is being read, and which requests of it just now."""

    def __init__(self, store: ResponseStore, job: str, requests: pa.Table) -> None:
        self._folder = store.folder
        self._place = (NOTES, job, keys_digest(requests))
        self._last = Note([])

    def last(self) -> Note | None:
        """Return the note of the process that ended in this block; None if none did."""
        try:
            return Note(*json.loads(self._folder.read_bytes(*self._place)))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            # a note of which the machine's end has left a part
            return Note([])

    def note(self, requests: pa.Table | None = None, num_ends: int = 0, why: str = UNKNOWN) -> None:
        """Note that the block is being read; just now these requests, if only a few are."""
        self._write(Note([] if requests is None else keys_of(requests), num_ends, why))

    def end_process(self, error: BaseException) -> None:
        """Note what ends this process, and end it."""
        self._write(self._last._replace(why=" ".join(str(error).split())[:MAX_WHY]))
        traceback.print_exception(error)
        sys.stderr.flush()
        os._exit(1)

    def _write(self, note: Note) -> None:
        self._last = note
        self._folder.write_bytes(json.dumps(note).encode(), *self._place)

    def end(self) -> None:
        """The block has been read."""
        self._folder.delete(*self._place)


def keys_of(requests: pa.Table) -> Keys:
    """The keys of PENDING or RESPONSES, row by row."""
    columns = (requests.column(name).to_pylist() for name in KEY_COLUMNS)
    return [list(pair) for pair in zip(*columns, strict=True)]


class ModelActor:
    """Holds one model, whatever datasets and kinds of question its requests are of.

    Attributes:
        model_seconds: that the model has worked so far, without loading and without the store.
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
        # raised with the first block: of an actor that cannot be made Ray tells in words of its own
        try:
            check_gpus()
            self.isolation = Isolation(_loaded(config, model, memory_share))
            check_facts(self.isolation.model, self.store)
        except (InputError, JobError) as error:
            self._fault = error
        except RuntimeError as error:
            if not is_gpu_lost(error):
                raise
            self._fault = JobError(f"node {platform.node()}: the GPU cannot be used: {error}; {KEPT}")

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
        """RESPONSES of a block, of which a process before this one may have run a part."""
        last = attempt.last()
        if last is None:
            attempt.note()
        try:
            yield from self._tables(requests) if last is None else self._carefully(requests, attempt, last)
        except RuntimeError as error:
            if not is_gpu_lost(error):
                raise
            attempt.end_process(error)

    def _written(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Append tables of responses to the store as they come."""
        since = time.monotonic()
        for responses in tables:
            self.store.append(responses, self.job, time.monotonic() - since, backend())
            since = time.monotonic()
            yield responses

    def _tables(self, requests: pa.Table) -> Iterator[pa.Table]:
        """RESPONSES of PENDING, those of at least so many seconds together."""
        places, responses, written_at = list[int](), list[Response](), time.monotonic()
        try:
            for place, response in self._timed(PendingRequests(requests, self.forms)):
                is_new_batch = time.monotonic() - written_at >= self.write_every_seconds
                places.append(place)
                responses.append(response)
                if is_new_batch:
                    yield responses_table(requests.take(places), self.id, responses)
                    places, responses, written_at = [], [], time.monotonic()
        except (JobError, RuntimeError):
            # the model cannot go on, but has answered these
            if places:
                yield responses_table(requests.take(places), self.id, responses)
            raise
        if places:
            yield responses_table(requests.take(places), self.id, responses)

    def _timed(self, requests: PendingRequests) -> Iterator[tuple[int, Response]]:
        """The model's responses, each in its time.

        Raises:
            JobError: no more may be spent, and some requests are left.
        """
        self._budget.check()
        answers, num_answered = self.isolation.run(requests), 0
        with _Alarm(self.max_batch_seconds) as alarm:
            while True:
                start = time.monotonic()
                alarm.set()
                answer = next(answers, None)
                alarm.clear()
                self.model_seconds += time.monotonic() - start
                if answer is None:
                    break
                self._notes.update(answer[1].notes)
                self._num_cached_tokens += answer[1].num_cached_prompt_tokens
                num_answered += 1
                yield answer
                # what is under way is paid for, and kept
                if self._budget.spend(answer[1]) and not self.isolation.model.stop_sending():
                    break
        if num_answered < len(requests):
            self._budget.check()

    def _carefully(self, requests: pa.Table, attempt: Attempt, last: Note) -> Iterator[pa.Table]:
        """RESPONSES of what a process has left that ended, in small groups, so that it is known which ends another.

        Raises:
            JobError: one process after the other loses its GPU.
        """
        num_ends = last.num_ends + (last.why != UNKNOWN)
        if num_ends >= MAX_ENDS:
            raise JobError(f"{num_ends} processes in a row lost their GPU: {last.why}; {KEPT}")
        todo = without(requests, self.store.keys_by(self.job))
        # with its type: all may have been written
        is_suspect = pa.array([keys in last.keys for keys in keys_of(todo)], pa.bool_())
        ones, others = todo.filter(is_suspect), todo.filter(pc.invert(is_suspect))
        if len(last.keys) == 1 and ones.num_rows:
            yield responses_table(ones, self.id, [Response(failure=ended(last.why))] * ones.num_rows)
            ones = ones.slice(0, 0)
        groups = [ones.slice(row, 1) for row in range(ones.num_rows)]
        groups += [others.slice(row, CAREFUL_ROWS) for row in range(0, others.num_rows, CAREFUL_ROWS)]
        for group in groups:
            attempt.note(group, num_ends)
            for responses in self._tables(group):
                num_ends = 0 if responses.column("error").null_count else num_ends
                yield responses


def ended(why: str) -> Failure:
    """Return the failure of a request that ended its process, alone."""
    return Failure("resource", f"its process ended twice while running this ({why})")


def without(requests: pa.Table, known: pl.DataFrame) -> pa.Table:
    """The rows of PENDING whose keys are not among these."""
    numbered = as_frame(requests.select(KEY_COLUMNS)).with_row_index("row")
    return requests.take(numbered.join(known, on=KEY_COLUMNS, how="anti")["row"].sort().to_arrow())


def responses_table(requests: pa.Table, model: str, responses: Sequence[Response]) -> pa.Table:
    """RESPONSES to rows of PENDING, in their order."""
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
    found = model_id(model)
    if found != name:
        raise RuntimeError(f"the model {config.model} on this node is {found}, the job asked for {name}")
    model.memory_share = memory_share
    load_model(model)
    return model


def set_tokenizer_threads(num_threads: int) -> None:
    """Let the package tokenizers use so many threads of this process; it reads both variables when it first does."""
    os.environ["RAYON_NUM_THREADS"] = str(num_threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if num_threads > 1 else "false"


class _Budget:
    """What an actor's requests may cost."""

    def __init__(self, config: ReaderConfig, most: float | None) -> None:
        self._config, self._most, self._spent = config, most, 0.0

    def spend(self, response: Response) -> bool:
        """Count a response; return whether no more may be spent."""
        counts = response.num_prompt_tokens, response.num_cached_prompt_tokens, response.num_output_tokens
        self._spent += self._config.price_of(*counts) or 0.0
        return self._most is not None and self._spent >= self._most

    def check(self) -> None:
        """Refuse to go on where no more may be spent.

        Raises:
            JobError: it is so.
        """
        if self._most is not None and self._spent >= self._most:
            text = f"max_cost: {self._spent:.4f} is spent of {self._most:.4f} for each actor and model"
            raise JobError(f"{text}; what was answered is kept; a new job may spend as much again")


class _Alarm:
    """Ends this process when a batch takes too long: what runs too long in native code hears nothing else."""

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
        """From now on it counts."""
        self._deadline = time.monotonic() + (self._seconds or math.inf)

    def clear(self) -> None:
        """Until it is set again nothing counts."""
        self._deadline = math.inf

    def _watch(self, seconds: float) -> None:
        while not self._closing.wait(min(LOOK_SECONDS, seconds / 10)):
            if time.monotonic() > self._deadline:
                os._exit(1)


def peak_memory_bytes() -> int:
    """Most memory this process has held: on its GPU if it has one, else resident (`peak_resident_bytes`)."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return peak_resident_bytes()
