"""Whether time and memory of a pair stay the same when there are ever more of them."""

import dataclasses
import pathlib
from collections.abc import Iterator

from bench.config import BenchmarkConfig
from bench.readers import synthetic_reader as invented
from bench.readers.table_2 import made_up_job, plan_for, with_own_folders
from bench.timing import Row, seconds_of
from erag_ray.config.reader import ReaderConfig
from erag_ray.inference.cluster.session import ray_session
from erag_ray.inference.pool import run
from erag_ray.inference.stage import write_work
from erag_ray.inference.work import Done
from erag_ray.inputs.stage import prepare
from erag_ray.models import make_model
from erag_ray.store.fingerprints import new_job_id
from erag_ray.store.tables import TableStore

DEPTH, WORDS = 50, (40, 80)


def long(config: BenchmarkConfig, size: int) -> Iterator[Row]:
    """Measure ``size`` pairs by the pool, from Parquet to the store: seconds of its readers, and peak memory of one."""
    out = pathlib.Path(config.out, "long")
    files = invented.write_files(
        out, invented.lists(max(1, size // DEPTH), DEPTH, config.seed, WORDS, _words(config.small_reader))
    )
    base = made_up_job(config.small_reader, files, "fid", [DEPTH])
    reader = dataclasses.replace(base.reader, max_prompt_tokens=200, max_new_tokens=30)
    job = with_own_folders(dataclasses.replace(base, reader=reader), str(out / "job"))
    plan, done = plan_for(job, prepare(job), is_single=True), list[Done]()
    with ray_session(job.ray_address):
        seconds = seconds_of(
            lambda: done.append(run(write_work(job, TableStore(job.out), plan), job, new_job_id()))
        )
    (one,) = done
    row = {"what": "lists of one by the pool", "by": "erag_ray", "seconds": one.device_seconds}
    yield {
        **row,
        "count": one.num_responses,
        "peak_memory_bytes": one.peak_memory_bytes,
        "whole_seconds": seconds,
    }


def _words(model: str) -> list[str]:
    """Words that are one token to a reader."""
    tokens = make_model(ReaderConfig(kind="fid", model=model)).tokenizer.get_vocab()  # type: ignore[attr-defined]
    return sorted(token[1:] for token in tokens if token[:1] == "\u2581" and token[1:].isalpha())
