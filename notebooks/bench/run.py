"""All measurements of a benchmark, one after the other, each in a process of its own: the table."""

import dataclasses
import importlib
import multiprocessing
import pathlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

import polars as pl

from bench.config import BenchmarkConfig
from erag_ray.models.local.process import peak_resident_bytes
from erag_ray.store.fingerprints import new_job_id
from erag_ray.store.folder import Folder

COLUMNS = pl.Schema(
    {
        "passages": pl.Int64(),
        "what": pl.String(),
        "by": pl.String(),
        "seconds": pl.Float64(),
        "count": pl.Int64(),
        "disk_bytes": pl.Int64(),
        "peak_memory_bytes": pl.Int64(),
        "least_ratio": pl.Float64(),
        "most_ratio": pl.Float64(),
        "num_prompt_tokens": pl.Int64(),
        "num_output_tokens": pl.Int64(),
        "num_cached_prompt_tokens": pl.Int64(),
        "num_encoded_tokens": pl.Int64(),
        "num_padding_tokens": pl.Int64(),
        "operations": pl.Float64(),
        "mfu": pl.Float64(),
        "whole_seconds": pl.Float64(),
        "cpu_seconds": pl.Float64(),
        "device_rate": pl.Float64(),
        "other_cores": pl.Float64(),
        **dict.fromkeys(("label_share", "same_outputs", "same_labels", "kappa", "tau"), pl.Float64()),
    }
)
STEPS: dict[str, tuple[str, ...]] = {
    "bm25": ("write_passages", "bm25_build", "bm25_build_peer", "bm25_search", "rank_bm25_search"),
    "dense": ("dense_search",),
    "encode": ("encode",),
    "measures": ("measures",),
    "table_1": ("table_1",),
    "readings": ("readings",),
    "table_2": ("table_2",),
    "shared": ("shared",),
    "depths": ("depths",),
    "precision": ("precision",),
    "long": ("long",),
    "host": ("host",),
    "served": ("served",),
    "vllm": ("vllm",),
}
ROOMS = {
    "measures": "evaluated",
    "table_1": "evaluated",
    "readings": "readers.reading",
    "table_2": "readers.table_2",
    "shared": "readers.lists",
    "depths": "readers.lists",
    "precision": "readers.precision",
    "long": "readers.scaling",
    "host": "readers.host",
    "served": "readers.served",
    "vllm": "readers.vllm",
}


def run_all(config: BenchmarkConfig, say: Callable[[str], None]) -> pl.DataFrame:
    """The table of all measurements, a row for each (`COLUMNS`); ``say`` hears of every step.

    What is measured is in a temporary folder inside ``out``, which goes with the job.
    """
    rows = []
    folder, name_of_work = Folder(config.out), f"work-{new_job_id()}"
    folder.record_tree(name_of_work)
    work = dataclasses.replace(config, out=str(pathlib.Path(config.out, name_of_work)))
    pathlib.Path(work.out).mkdir(parents=True)
    for name, size in _steps(config):
        say(f"{name}: {size:,}")
        measured = in_own_process(name, work, size)
        rows += [{**dict.fromkeys(COLUMNS), "passages": size, **row} for row in measured]
        for row in measured:
            took = f" in {row['seconds']:.2f} s" if "seconds" in row else ""
            say(f"  {row['what']} by {row['by']}: {row['count']:,}{took}")
    return pl.DataFrame(rows, schema=COLUMNS)


def costs_of(table: pl.DataFrame, job: str) -> pl.DataFrame:
    """COSTS of every way of reading in the table: a stage by its name, way and size, a model by its way."""
    is_other = pl.any_horizontal(pl.col("kappa", "cpu_seconds").is_not_null())
    ways = table.filter(pl.col("num_prompt_tokens").is_not_null() & ~is_other)
    return ways.select(
        stage=pl.format("{}: {}, {}", "what", "by", "passages"),
        job=pl.lit(job),
        model="by",
        num_requests="count",
        num_reader_calls="count",
        num_prompt_tokens="num_prompt_tokens",
        num_output_tokens="num_output_tokens",
        num_cached_prompt_tokens=pl.lit(0),
        price=pl.lit(None, pl.Float64),
        seconds=pl.coalesce("whole_seconds", "seconds"),
        device_seconds="seconds",
        peak_memory_bytes="peak_memory_bytes",
    )


def _steps(config: BenchmarkConfig) -> Iterator[tuple[str, int]]:
    most = {"rank_bm25_search": config.rank_bm25_passages, "bm25_build_peer": config.bm25s_passages}
    for part in config.parts:
        sizes_of: dict[str, int | list[int]] = {
            "long": config.long_pairs,
            "encode": config.num_encoded,
            "measures": config.list_queries,
            "table_1": config.list_queries,
            "readings": config.num_pairs,
            "host": config.host_pairs,
            "served": config.served_requests,
            **dict.fromkeys(("table_2", "shared", "depths", "precision", "vllm"), config.num_questions),
        }
        sizes = sizes_of.get(part, config.sizes)
        for size in [sizes] if isinstance(sizes, int) else sizes:
            for name in STEPS[part]:
                if size <= most.get(name, size):
                    yield name, size


def in_own_process(name: str, config: BenchmarkConfig, size: int) -> list[dict[str, object]]:
    """Run one measurement in a new process, so that the peak memory is that of this measurement alone.

    Args:
        name: of the measurement, one of those that `STEPS` lists.
        config: of the benchmark.
        size: number of passages, queries, pairs or requests, as the measurement counts.

    Returns:
        Rows with columns of `COLUMNS`, without ``passages``; ``peak_memory_bytes`` is of the whole process.

    Raises:
        Exception: what the measurement raises, or BrokenProcessPool if its process dies.
    """
    # not a daemon: some measurements start processes themselves
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(in_this_process, name, config, size).result()


def in_this_process(name: str, config: BenchmarkConfig, size: int) -> list[dict[str, object]]:
    # what retrieval needs is heavy, and not for evaluation
    room = importlib.import_module(f"bench.{ROOMS.get(name, 'measured')}")
    rows = list(getattr(room, name)(config, size))
    # of the whole process: what is measured, what it is made of, and the peer where both are in one
    return [{"peak_memory_bytes": peak_resident_bytes(), **row} for row in rows]
