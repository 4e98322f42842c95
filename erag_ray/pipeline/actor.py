"""One reader in a process of its own: a block of REQUESTS in, READINGS into the store, counts out.

A request can end the process that reads it (a crash in native code, the operating system's memory killer) or keep it
busy for ever; Ray then gives the same block to a new process. So each block leaves a note in the store while it is
being read. A process that finds one goes on carefully: it leaves out what was written, reads a few requests at a time
and notes which; those that were being read when a process ended are then read one by one, and one that ends its
process alone becomes an error of kind ``resource``, so that all others are read.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import torch

from erag_ray.config import ReaderConfig
from erag_ray.readers import (
    Failure,
    Isolation,
    Reader,
    failed,
    keep_freed_memory,
    load_reader,
    make_reader,
    reader_id,
    without,
)
from erag_ray.resident import peak_resident_bytes
from erag_ray.schemas import InputError, JobError
from erag_ray.store import KEY_COLUMNS, ReadingStore, TracebackFiles, keys_digest

CAREFUL_ROWS = 32
NOTES = "_attempts"
ENDED = Failure("resource", "its process ended twice while reading this (a crash, or max_batch_seconds)")
Keys = list[list[int]]


class Attempt:
    """The note about one block of one job, in the store: that it is being read, and which requests of it just now."""

    def __init__(self, store: ReadingStore, job: str, requests: pa.Table) -> None:
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
    """The keys of REQUESTS or READINGS, row by row."""
    columns = (requests.column(name).to_pylist() for name in KEY_COLUMNS)
    return [list(pair) for pair in zip(*columns, strict=True)]


class ReaderActor:
    """Holds one reader.

    Attributes:
        reading_seconds: that the reader has worked so far, without loading and without the store.
    """

    def __init__(
        self,
        config: ReaderConfig,
        reader: str,
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
        self.id = reader
        self.job = job
        self.write_every_seconds = write_every_seconds
        self.max_batch_seconds = max_batch_seconds
        self.store = ReadingStore(store, reader)
        self.reading_seconds = 0.0
        self._fault: InputError | JobError | None = None
        try:
            self.isolation = Isolation(_loaded(config, reader, memory_share), reader)
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
            written = self._written(self._batches(requests), self.write_every_seconds)
        else:
            written = self._written(self._carefully(requests, attempt, suspects), 0.0)
        counts = [
            (
                readings.num_rows,
                sum(readings.column("num_prompt_tokens").to_pylist()),
                sum(readings.column("num_output_tokens").to_pylist()),
            )
            for readings in written
        ]
        attempt.end()
        num_readings, num_prompt, num_output = (
            sum(column) for column in zip((0, 0, 0), *counts, strict=True)
        )
        yield {
            "num_readings": [num_readings],
            "num_questions": [pc.count_distinct(requests.column("question_key")).as_py()],
            "num_prompt_tokens": [num_prompt],
            "num_output_tokens": [num_output],
            "device_seconds": [time.monotonic() - start],
            "peak_memory_bytes": [peak_memory_bytes()],
        }

    def _written(self, batches: Iterator[pa.Table], every_seconds: float) -> Iterator[pa.Table]:
        """Append what is read to the store, at least so often; before the next batch is begun where that is 0."""
        waiting: list[pa.Table] = []
        written_at = time.monotonic()
        try:
            for readings in batches:
                waiting.append(readings)
                yield readings
                if time.monotonic() - written_at >= every_seconds:
                    self._write(waiting, written_at)
                    waiting, written_at = [], time.monotonic()
        except JobError:
            # the reader cannot go on, but has answered these
            self._write(waiting, written_at)
            raise
        self._write(waiting, written_at)

    def _write(self, readings: list[pa.Table], since: float) -> None:
        if readings:
            self.store.append(pa.concat_tables(readings), self.job, time.monotonic() - since)

    def _batches(self, requests: pa.Table) -> Iterator[pa.Table]:
        """The reader's, each in its time."""
        batches = self.isolation.read(requests)
        while True:
            start = time.monotonic()
            with _Alarm(self.max_batch_seconds):
                readings = next(batches, None)
            self.reading_seconds += time.monotonic() - start
            if readings is None:
                return
            yield readings

    def _carefully(self, requests: pa.Table, attempt: Attempt, suspects: Keys) -> Iterator[pa.Table]:
        todo = without(requests, self.store.keys_by(self.job))
        # with its type: all may have been written
        is_suspect = pa.array([keys in suspects for keys in keys_of(todo)], pa.bool_())
        ones, others = todo.filter(is_suspect), todo.filter(pc.invert(is_suspect))
        if len(suspects) == 1 and ones.num_rows:
            yield failed(ones, self.id, ENDED)
            ones = ones.slice(0, 0)
        groups = [ones.slice(row, 1) for row in range(ones.num_rows)]
        groups += [others.slice(row, CAREFUL_ROWS) for row in range(0, others.num_rows, CAREFUL_ROWS)]
        for group in groups:
            attempt.note(group)
            yield from self._batches(group)


def _loaded(config: ReaderConfig, name: str, memory_share: float) -> Reader:
    reader = make_reader(config)
    found = reader_id(reader)
    if found != name:
        raise RuntimeError(f"the model {config.model} on this node is {found}, the job asked for {name}")
    reader.memory_share = memory_share
    load_reader(reader)
    return reader


class _Alarm:
    """While open, ends this process when the time is up: what runs too long in native code hears nothing else."""

    def __init__(self, seconds: float | None) -> None:
        self._timer = None if seconds is None else threading.Timer(seconds, os._exit, [1])

    def __enter__(self) -> None:
        if self._timer:
            self._timer.daemon = True
            self._timer.start()

    def __exit__(self, *exception: object) -> None:
        if self._timer:
            self._timer.cancel()


def peak_memory_bytes() -> int:
    """Most memory this process has held: on its GPU if it has one, else resident (`peak_resident_bytes`)."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return peak_resident_bytes()
