"""An actor with one model: takes blocks of PENDING, writes RESPONSES to the store, and returns counts.

A request can kill its process (a crash in native code, the kernel's out-of-memory killer) or block it for ever; Ray
then retries the block in a new process. Therefore each block has a note in the store. A process that finds the note of
one that died isolates the request: it skips what was written, runs a few requests at a time and notes which ones.
Requests that were running when a process died are run one by one, and one that kills its process alone becomes an
error of kind ``resource``, so that all others get their responses.

A process that gets notice of its end (SIGTERM, or its node is drained) writes what it has, also of the batch in hand if
that ends soon, and ends. Its note says so, and the next process goes on with what is missing, without isolation.

An error after which a process cannot use its GPU (an illegal access, a failed assertion, broken memory) ends the
process in the same way, but not the job.
"""

import contextlib
import gc
import json
import os
import platform
import signal
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from erag_ray import models
from erag_ray.config.reader import ReaderConfig
from erag_ray.inference.cluster.gpus import check_gpus
from erag_ray.inference.coordinator import REPORT_SECONDS, STOPPING_REPORT_SECONDS, Orders
from erag_ray.inference.planning.pending import PendingRequests
from erag_ray.inference.watchdog import MaxBatchSeconds, Watchdog
from erag_ray.inference.writer import Writer
from erag_ray.models.local.process import (
    backend,
    is_gpu_lost,
    keep_freed_memory,
    peak_memory_bytes,
    set_threads,
)
from erag_ray.prompts.request import Failure, Form, Response
from erag_ray.store.responses import KEY_COLUMNS, NOTES, ResponseStore, keys_digest
from erag_ray.store.schemas import RESPONSES
from erag_ray.support.errors import JobError
from erag_ray.support.masking import masked, masked_message, masked_traceback
from erag_ray.support.threads import give_way
from erag_ray.support.user_code import RESUME_ADVICE

ISOLATED_ROWS = 32
MAX_REASON = 200
GARBAGE_THRESHOLDS = 50_000, 20, 100
"""Thresholds of Python's garbage collector, for its three generations.

The prompts of a window are many small objects without cycles: with the default thresholds, collection takes a fifth of
the host's time."""
COUNTED = [name for name in RESPONSES.columns.names if hasattr(Response, name)]
"""Columns of RESPONSES that are fields of `Response`."""
UNKNOWN_REASON = "a crash, or max_batch_seconds"
MAX_ENDS = 20
"""Maximum of consecutive processes that end for a known reason in one block without any response; then the job ends."""
WRITTEN = "written"
"""Reason of a process that has written all that it had: it got notice of its end, or its block is done."""
DRAIN_SECONDS = 5.0
"""How long a process that got notice waits for the batch in hand."""
MAX_LOADS = 3
"""Maximum of consecutive processes of an actor that end while loading the model; then the job ends."""
Keys = list[list[int]]


class Note(NamedTuple):
    """State of a running block."""

    keys: Keys
    """Of the requests that are running, if only a few are."""
    num_ends: int = 0
    """Consecutive processes that ended in this block without any response, for a known reason."""
    reason: str | None = None
    """Why the last one ended: a lost GPU, or a batch that took too long; None if that is unknown."""
    slowest: float = 0.0
    """Seconds of the slowest batch of these processes."""


class Attempt:
    """The note of one block of one job, in the store until the job ends."""

    def __init__(self, store: ResponseStore, job: str, requests: pa.Table) -> None:
        self._folder = store.folder
        self._path = (NOTES, job, keys_digest(requests))
        self._last = Note([])

    def read(self) -> Note | None:
        """Return the note of the last process that ran this block; None if none did."""
        try:
            keys, num_ends, reason, slowest = json.loads(self._folder.read_bytes(*self._path))
            keys = [[int(a), int(b)] for a, b in keys]
            return Note(keys, int(num_ends), reason and str(reason), float(slowest))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            # a partial note, left by a machine that died
            return Note([])

    def write_running(
        self, requests: pa.Table | None = None, num_ends: int = 0, slowest: float = 0.0
    ) -> None:
        """Write that the block is running, and these requests of it, if only a few are."""
        keys = [] if requests is None else keys_of(requests)
        self._write(Note(keys, num_ends, slowest=slowest))

    def write_reason(self, reason: str, slowest: float) -> None:
        """Write why this process ends."""
        self._write(self._last._replace(reason=reason, slowest=slowest))

    def _write(self, note: Note) -> None:
        self._last = note
        self._folder.write_bytes(json.dumps(note).encode(), *self._path)


def keys_of(requests: pa.Table) -> Keys:
    columns = (requests.column(name).to_pylist() for name in KEY_COLUMNS)
    return [list(pair) for pair in zip(*columns, strict=True)]


class ModelActor:
    """An actor with one model, for requests of any dataset and kind."""

    def __init__(
        self,
        config: ReaderConfig,
        model: str,
        forms: Sequence[Form],
        store: str,
        job: str,
        num_threads: int,
        write_every_seconds: float,
        max_batch_seconds: MaxBatchSeconds,
        memory_share: float = 1.0,
        max_cost: float | None = None,
        coordinator: Any = None,
        may_all_fail: bool = False,
    ) -> None:
        # the package tokenizers reads both at its first use
        os.environ["RAYON_NUM_THREADS"] = str(num_threads)
        os.environ["TOKENIZERS_PARALLELISM"] = "true" if num_threads > 1 else "false"
        give_way()
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        keep_freed_memory()
        self.id = model
        self.forms = forms
        self.job = job
        self.write_every_seconds = write_every_seconds
        self._attempt: Attempt | None = None
        self._watchdog = Watchdog(max_batch_seconds, self._end)
        self.store = ResponseStore(store, model)
        self.num_responses = 0
        """That have arrived so far, in all blocks."""
        self._notes = Counter[str]()
        self._budget = models.Budget(config, max_cost)
        self._coordinator, self._process = coordinator, uuid.uuid4().hex
        self._writer: Writer | None = None
        self._is_stopping = False
        self._notice, self._is_idle = threading.Event(), threading.Event()
        self._is_idle.set()
        self._fault: Exception | None = None
        # raised with the first block: Ray hides an error of the constructor in its own message, and starts it again
        try:
            with self._watchdog.loading(), self._counting_loads():
                models.model_class(config.kind)  # imports torch where the model needs it
                set_threads(num_threads)
                check_gpus()
                self.isolation = self._load(config, model, memory_share)
                self.isolation.model.budget = self._budget
                self.isolation.model.may_all_fail = may_all_fail
                models.check_facts(self.isolation.model, self.store)
        except Exception as error:
            text = f"node {platform.node()}: the GPU cannot be used: {error}; {RESUME_ADVICE}"
            self._fault = JobError(text) if is_gpu_lost(error) else error
        if coordinator is not None:
            import ray

            self._node = ray.get_runtime_context().get_node_id()
            self._report(has_written=False)
            threading.Thread(target=self._keep_reporting, daemon=True).start()
            if threading.current_thread() is threading.main_thread():
                # in place of Ray's handler, which ends the process at once
                signal.signal(signal.SIGTERM, lambda *_: self._notice.set())

    @contextlib.contextmanager
    def _counting_loads(self) -> Iterator[None]:
        """Load the model, unless that has ended the last processes of this actor: Ray would start them for ever."""
        if self._coordinator is None:
            yield
            return
        import ray

        actor = ray.get_runtime_context().get_actor_id()
        if ray.get(self._coordinator.start_loading.remote(actor)) > MAX_LOADS:
            raise JobError(
                f"node {platform.node()}: {MAX_LOADS} processes in a row ended while loading the model: a crash, or it "
                f"took too long (max_batch_seconds). See Ray's worker logs; {RESUME_ADVICE}"
            )
        yield
        self._coordinator.end_loading.remote(actor)

    def _report(self, *, has_written: bool) -> None:
        """Report to the coordinator, and follow its orders."""
        import ray

        budget = self._budget
        report = (self._process, self.num_responses, budget.spent, budget.in_flight, has_written)
        orders: Orders = ray.get(self._coordinator.report.remote(*report, self._node))
        budget.limit, budget.may_grow = orders.limit, orders.may_grow
        self._is_stopping = orders.is_stopping
        if orders.is_draining:
            self._notice.set()

    def _keep_reporting(self) -> None:
        from ray.exceptions import RayError

        has_written = False
        while True:
            if self._notice.wait(STOPPING_REPORT_SECONDS if self._is_stopping else REPORT_SECONDS):
                self._drain()
            if self._is_stopping:
                self._write_responses()
                has_written = True
            try:
                self._report(has_written=has_written)
            except RayError:
                # the job has ended, or its driver is gone
                self._budget.may_grow = False
                return

    def _drain(self) -> None:
        """Write what there is, and at the end of the batch in hand the rest, and end this process."""
        try:
            self._write_responses()
            # the batch in hand may end while this is written
            self._is_idle.wait(DRAIN_SECONDS)
            self._write_responses()
            if self._attempt is not None:
                self._attempt.write_reason(WRITTEN, self._watchdog.slowest)
        finally:
            os._exit(1)

    def _write_responses(self) -> None:
        if self._writer is not None:
            self._writer.write()

    def _load(self, config: ReaderConfig, name: str, memory_share: float) -> models.Isolation:
        model = models.make_model(config)
        local_id = models.model_id(model)
        if local_id != name:
            raise JobError(
                f"reader.model: {config.model} on node {platform.node()} is {local_id}, and {name} where the job "
                f"started. Give every node the same files and versions; {RESUME_ADVICE}"
            )
        model.memory_share = memory_share
        try:
            models.load_model(model)
        except OSError as error:
            # the driver takes an OSError for one of the store
            text = f"node {platform.node()}: reader {config.kind} cannot be loaded: {error}; {RESUME_ADVICE}"
            raise JobError(text) from error
        return models.Isolation(model)

    def __call__(self, requests: pa.Table) -> Iterator[dict[str, list[Any]]]:
        if self._fault:
            raise self._fault
        self._is_idle.clear()
        if self._notice.is_set():
            self._wait_for_end()
        self._notes = Counter()
        self._attempt = attempt = Attempt(self.store, self.job, requests)
        todo, last = requests, attempt.read()
        if last is not None and last.reason == WRITTEN:
            todo, last = without(requests, self.store.keys_by(self.job)), None
        if last is None:
            attempt.write_running(slowest=self._watchdog.slowest)
        try:
            if last is None:
                self._run(todo)
            else:
                self._run_isolated(requests, attempt, last)
        except RuntimeError as error:
            if not is_gpu_lost(error):
                raise
            self._end(error)
        # if this process ends before Ray has the counts, Ray runs the block again
        attempt.write_reason(WRITTEN, self._watchdog.slowest)
        self._attempt = None
        self._is_idle.set()
        yield {"notes": [json.dumps(self._notes)], "peak_memory_bytes": [peak_memory_bytes()]}

    def _end(self, error: Exception) -> None:
        """End this process, which has lost its GPU or hangs; Ray starts another."""
        if self._attempt is not None:
            reason = " ".join(masked_message(str(error)).split())[:MAX_REASON]
            self._attempt.write_reason(reason, self._watchdog.slowest)
        print(masked_traceback(error), file=sys.stderr, flush=True)
        os._exit(1)

    def _run(self, requests: pa.Table) -> bool:
        """Run requests, and append their responses to the store; return whether one of them is not an error."""
        self._budget.check()
        pending, num_responses, num_good = PendingRequests(requests, self.forms), 0, 0

        def append(rows: list[tuple[int, Response]], seconds: float) -> None:
            table = requests.take([row for row, _ in rows])
            responses = responses_table(table, self.id, [response for _, response in rows])
            num_cached = sum(response.num_cached_prompt_tokens for _, response in rows)
            facts = {"device": backend(), "num_cached_prompt_tokens": num_cached}
            self.store.append(responses, self.job, seconds, **facts)

        with Writer(append, self.write_every_seconds) as writer:
            self._writer, responses = writer, self.isolation.run(pending)
            while True:
                self._watchdog.start()
                item = next(responses, None)
                self._watchdog.stop()
                if item is None:
                    break
                response = item[1]
                self._count(response)
                writer.add(item)
                num_responses += 1
                num_good += response.failure is None
                if self._is_stopping or self._notice.is_set():
                    del responses  # which ends requests in flight
                    self._wait_for_end()
                if self._is_spent(response):
                    break
        if num_responses < len(pending):
            self._budget.check()
        return num_good > 0

    def _wait_for_end(self) -> None:
        """Let the reporting thread write the responses and end this process, or the driver end it."""
        self._is_idle.set()
        threading.Event().wait()

    def _is_spent(self, response: Response) -> bool:
        """Charge a response, unless the model charges them itself; return whether the budget is spent then."""
        if self.isolation.model.charges_budget:
            return False
        counts = response.num_prompt_tokens, response.num_cached_prompt_tokens, response.num_output_tokens
        self._budget.spent += self._budget.price_of(models.TokenCounts(*counts))
        return self._budget.wait()

    def _count(self, response: Response) -> None:
        self.num_responses += 1
        self._notes.update(response.notes)

    def _run_isolated(self, requests: pa.Table, attempt: Attempt, last: Note) -> None:
        """Run the requests that a dead process has left, in small groups, to find what kills it."""
        reason = last.reason or UNKNOWN_REASON
        num_ends = last.num_ends + (last.reason is not None)
        if num_ends >= MAX_ENDS:
            text = f"{num_ends} processes in a row ended without a response, the last one: {reason}"
            raise JobError(f"{text}; {RESUME_ADVICE}")
        self._watchdog.slowest = max(self._watchdog.slowest, last.slowest)
        todo = without(requests, self.store.keys_by(self.job))
        # explicit type, for an empty array
        is_suspect = pa.array([keys in last.keys for keys in keys_of(todo)], pa.bool_())
        suspects, others = todo.filter(is_suspect), todo.filter(pc.invert(is_suspect))
        if len(last.keys) == 1 and suspects.num_rows:
            failure = Failure("resource", f"its process ended twice while running this ({reason})")
            failures = [Response(failure=failure)] * suspects.num_rows
            self.store.append(responses_table(suspects, self.id, failures), self.job, device=backend())
            for response in failures:
                self._count(response)
            suspects = suspects.slice(0, 0)
        groups = [suspects.slice(row, 1) for row in range(suspects.num_rows)]
        groups += [others.slice(row, ISOLATED_ROWS) for row in range(0, others.num_rows, ISOLATED_ROWS)]
        for group in groups:
            attempt.write_running(group, num_ends, self._watchdog.slowest)
            num_ends = 0 if self._run(group) else num_ends


def without(requests: pa.Table, keys: pl.DataFrame) -> pa.Table:
    """Return the rows of PENDING whose keys are not in ``keys``."""
    numbered = pl.DataFrame(requests.select(KEY_COLUMNS)).with_row_index("row")
    return requests.take(numbered.join(keys, on=KEY_COLUMNS, how="anti")["row"].sort().to_arrow())


def responses_table(requests: pa.Table, model: str, responses: Sequence[Response]) -> pa.Table:
    """Return RESPONSES to rows of PENDING, in their order."""
    columns = {
        "model": [model] * requests.num_rows,
        **{name: requests.column(name) for name in KEY_COLUMNS},
        "output": [masked(response.text) for response in responses],
        "error": [response.failure and masked(response.failure.text) for response in responses],
        "error_kind": [response.failure and response.failure.kind for response in responses],
        **{name: [getattr(response, name) for response in responses] for name in COUNTED},
    }
    return pa.table(columns, schema=RESPONSES.columns)
