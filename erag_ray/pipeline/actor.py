"""One model in a process of its own: a block of PENDING in, RESPONSES into the store, counts out.

A request can end the process that reads it (a crash in native code, the operating system's memory killer) or keep it
busy for ever; Ray then gives the same block to a new process. So each block leaves a note in the store while it is
being read. A process that finds one goes on carefully: it leaves out what was written, reads a few requests at a time
and notes which; those that were being read when a process ended are then read one by one, and one that ends its
process alone becomes an error of kind ``resource``, so that all others are read.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import torch

from erag_ray.config import ReaderConfig
from erag_ray.models import (
    Failure,
    Form,
    Isolation,
    Model,
    Response,
    backend,
    keep_freed_memory,
    load_model,
    make_model,
    model_id,
)
from erag_ray.pending import PendingRequests
from erag_ray.pipeline.gpus import check_gpus
from erag_ray.resident import peak_resident_bytes
from erag_ray.schemas import RESPONSES, InputError, JobError
from erag_ray.store import KEY_COLUMNS, ResponseStore, TracebackFiles, as_frame, keys_digest

CAREFUL_ROWS = 32
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
ENDED = Failure("resource", "its process ended twice while running this (a crash, or max_batch_seconds)")
Keys = list[list[int]]


class Attempt:
    """The note about one block of one job, in the store: that it is being read, and which requests of it just now."""

    def __init__(self, store: ResponseStore, job: str, requests: pa.Table) -> None:
        self._folder = store.folder
        self._place = (NOTES, job, keys_digest(requests))

    def suspects(self) -> Keys | None:
        """The requests that were being read when a process ended, if known; None if none ended in this block."""
        try:
            found: Keys = json.loads(self._folder.read_bytes(*self._place))
        except FileNotFoundError:
            return None
        except ValueError:
            # a note of which the machine's end has left a part
            return []
        return found

    def note(self, requests: pa.Table | None = None) -> None:
        """The block is being read; just now these requests, if only a few are."""
        keys = [] if requests is None else keys_of(requests)
        self._folder.write_bytes(json.dumps(keys).encode(), *self._place)

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
    ) -> None:
        torch.set_num_threads(num_threads)
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
        self._fault: InputError | JobError | None = None
        try:
            check_gpus()
            self.isolation = Isolation(_loaded(config, model, memory_share))
        except (InputError, JobError) as error:
            # raised with the first block: of an actor that cannot be made Ray tells in words of its own
            self._fault = error

    def __call__(self, requests: pa.Table) -> Iterator[dict[str, list[Any]]]:
        if self._fault:
            raise self._fault
        start = time.monotonic()
        attempt = Attempt(self.store, self.job, requests)
        suspects = attempt.suspects()
        if suspects is None:
            attempt.note()
            written = self._written(self._tables(requests))
        else:
            written = self._written(self._carefully(requests, attempt, suspects))
        counts = [
            (
                responses.num_rows,
                pc.sum(responses.column("num_prompt_tokens")).as_py() or 0,
                pc.sum(responses.column("num_output_tokens")).as_py() or 0,
            )
            for responses in written
        ]
        attempt.end()
        num_responses, num_prompt, num_output = (
            sum(column) for column in zip((0, 0, 0), *counts, strict=True)
        )
        yield {
            "num_responses": [num_responses],
            "num_questions": [pc.count_distinct(requests.column("question")).as_py()],
            "num_prompt_tokens": [num_prompt],
            "num_output_tokens": [num_output],
            "device_seconds": [time.monotonic() - start],
            "peak_memory_bytes": [peak_memory_bytes()],
        }

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
        except JobError:
            # the model cannot go on, but has answered these
            if places:
                yield responses_table(requests.take(places), self.id, responses)
            raise
        if places:
            yield responses_table(requests.take(places), self.id, responses)

    def _timed(self, requests: PendingRequests) -> Iterator[tuple[int, Response]]:
        """The model's responses, each in its time."""
        answers = self.isolation.run(requests)
        with _Alarm(self.max_batch_seconds) as alarm:
            while True:
                start = time.monotonic()
                alarm.set()
                answer = next(answers, None)
                alarm.clear()
                self.model_seconds += time.monotonic() - start
                if answer is None:
                    return
                yield answer

    def _carefully(self, requests: pa.Table, attempt: Attempt, suspects: Keys) -> Iterator[pa.Table]:
        todo = without(requests, self.store.keys_by(self.job))
        # with its type: all may have been written
        is_suspect = pa.array([keys in suspects for keys in keys_of(todo)], pa.bool_())
        ones, others = todo.filter(is_suspect), todo.filter(pc.invert(is_suspect))
        if len(suspects) == 1 and ones.num_rows:
            yield responses_table(ones, self.id, [Response(failure=ENDED)] * ones.num_rows)
            ones = ones.slice(0, 0)
        groups = [ones.slice(row, 1) for row in range(ones.num_rows)]
        groups += [others.slice(row, CAREFUL_ROWS) for row in range(0, others.num_rows, CAREFUL_ROWS)]
        for group in groups:
            attempt.note(group)
            yield from self._tables(group)


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
