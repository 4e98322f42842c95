"""REQUESTS -> READINGS on a pool of reader actors.

Ray Data streams blocks of requests from Parquet shards to a fixed pool; each actor reads its block batch by batch
and appends what it has to the open store itself, so that a killed job loses at most the batches in hand. What
flows back to the driver is only counts.
"""

from __future__ import annotations

import contextlib
import logging
import math
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import ray
import torch

from erag_ray.config import JobConfig, ReaderConfig
from erag_ray.pipeline.session import FREE_CPUS
from erag_ray.progress import progress
from erag_ray.readers import make_reader, reader_id
from erag_ray.store import Lease, ReadingStore

MIN_BLOCK, MAX_BLOCK, BLOCKS_PER_READER = 128, 4096, 12


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A fixed pool of reader actors and what each gets."""

    size: int
    num_cpus: int
    num_gpus: float

    @property
    def num_threads(self) -> int:
        """CPU threads of one reader."""
        return max(self.num_cpus, 1)


@dataclass(frozen=True, kw_only=True)
class Work:
    """The readings that one reader still has to do.

    Attributes:
        requests: folder of Parquet shards of REQUESTS, that all nodes see.
        num_requests: how many there are.
        config: the reader, with everything that depends on the dataset filled in.
        reader: its id.
    """

    requests: str
    num_requests: int
    config: ReaderConfig
    reader: str


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a stretch of reading took: counts, tokens, seconds of all actors together, bytes at the peak."""

    num_readings: int
    num_prompt_tokens: int
    num_output_tokens: int
    device_seconds: float
    peak_memory_bytes: int


def plan_pool(config: JobConfig) -> Pool:
    """A pool that fits the cluster and leaves CPUs free, so that nothing waits for ever.

    With GPUs one reader each, or ``num_readers`` that share them evenly; without, one reader with the cores of the
    largest node. An actor that would leave fewer than `FREE_CPUS` logical CPUs, or that no node could hold, is
    scheduled without reserving any.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    num_gpus = int(sum(node.get("GPU", 0) for node in nodes))
    size = config.num_readers or max(num_gpus, 1)
    per_gpu = math.ceil(size / num_gpus) if num_gpus else 0
    places = [int(node.get("GPU", 0)) * per_gpu if num_gpus else size for node in nodes]
    share = largest_share([int(node.get("CPU", 0)) for node in nodes], places, size)
    num_cpus = min(config.cpus_per_reader or share, share)
    return Pool(size=size, num_cpus=num_cpus, num_gpus=1 / per_gpu if num_gpus else 0.0)


def largest_share(cpus: Sequence[int], places: Sequence[int], size: int) -> int:
    """Most CPUs that each of ``size`` readers can reserve, with `FREE_CPUS` left over in all.

    Args:
        cpus: of each node.
        places: how many readers each node has room for besides.
        size: number of readers.
    """
    for share in range((sum(cpus) - FREE_CPUS) // size, 0, -1):
        if sum(min(own // share, most) for own, most in zip(cpus, places, strict=True)) >= size:
            return share
    return 0


class ReaderActor:
    """Holds one reader; a block of REQUESTS in, READINGS into the store, counts out."""

    def __init__(
        self,
        config: ReaderConfig,
        reader: str,
        store: str,
        job: str,
        num_threads: int,
        write_every_seconds: float,
    ) -> None:
        torch.set_num_threads(num_threads)
        self.reader = make_reader(config)
        self.id = reader
        self.job = job
        self.write_every_seconds = write_every_seconds
        self.store = ReadingStore(store, reader)
        found = reader_id(self.reader)
        if found != reader:
            raise RuntimeError(
                f"the model {config.model} on this node is {found}, the job asked for {reader}"
            )
        self.reader.load()

    def __call__(self, requests: pa.Table) -> Iterator[dict[str, list[Any]]]:
        start, waiting, written_at = time.monotonic(), [], time.monotonic()
        num_readings = num_prompt = num_output = 0
        for readings in self.reader.read(requests, self.id):
            waiting.append(readings)
            num_readings += readings.num_rows
            num_prompt += sum(readings.column("num_prompt_tokens").to_pylist())
            num_output += sum(readings.column("num_output_tokens").to_pylist())
            if time.monotonic() - written_at >= self.write_every_seconds:
                self.store.append(pa.concat_tables(waiting), self.job)
                waiting, written_at = [], time.monotonic()
        if waiting:
            self.store.append(pa.concat_tables(waiting), self.job)
        yield {
            "num_readings": [num_readings],
            "num_prompt_tokens": [num_prompt],
            "num_output_tokens": [num_output],
            "device_seconds": [time.monotonic() - start],
            "peak_memory_bytes": [peak_memory_bytes()],
        }


def peak_memory_bytes() -> int:
    """Most memory this process has held: on its GPU if it has one, else resident."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def block_rows(config: JobConfig, num_requests: int, pool: Pool) -> int:
    """Requests in one block: enough blocks that the readers end together, few enough that each is real work."""
    even = num_requests // (pool.size * BLOCKS_PER_READER)
    return config.rows_per_block or min(max(even, MIN_BLOCK), MAX_BLOCK)


def read(work: Work, config: JobConfig, job: str) -> Done:
    """Do the readings; they are in the store when this returns.

    Raises:
        ray.exceptions.RayError: a reader failed; what was written stays, and the job can be started again.
    """
    pool = plan_pool(config)
    store = ReadingStore(config.store, work.reader)
    rows = block_rows(config, work.num_requests, pool)
    arguments = {
        "config": work.config,
        "reader": work.reader,
        "store": config.store,
        "job": job,
        "num_threads": pool.num_threads,
        "write_every_seconds": config.write_every_seconds,
    }
    _quiet_data()
    counted = (
        ray.data.read_parquet(work.requests)
        .repartition(target_num_rows_per_block=rows)
        .map_batches(
            ReaderActor,
            fn_constructor_kwargs=arguments,
            batch_size=rows,
            batch_format="pyarrow",
            zero_copy_batch=True,
            compute=ray.data.ActorPoolStrategy(size=pool.size),
            num_cpus=pool.num_cpus,
            num_gpus=pool.num_gpus,
        )
    )
    shown = progress(store, job, work.num_requests, f"{pool.size} x {work.reader}")
    with Lease(store, job), shown if config.progress else contextlib.nullcontext():
        batches = list(counted.iter_batches(batch_format="pyarrow", batch_size=None))
    return _sum(pa.concat_tables(batches))


def _quiet_data() -> None:
    for name in ("", "._internal.execution.streaming_executor", "._internal.progress"):
        logging.getLogger(f"ray.data{name}").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False


def _sum(counts: pa.Table) -> Done:
    columns = {name: counts.column(name).to_pylist() for name in counts.column_names}
    peak = max(columns.pop("peak_memory_bytes"))
    return Done(**{name: sum(values) for name, values in columns.items()}, peak_memory_bytes=peak)
