"""A comparison large enough to be interrupted, and what tests of crashes share."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
import time
from collections.abc import Sequence

import polars as pl
import psutil
import pyarrow.parquet as pq
from tiny import kilt_line, passage_line, trec_lines

from erag_ray.config import JobConfig, ReaderConfig

NUM_QUESTIONS, DEPTH = 30, 8


def write_larger(folder: pathlib.Path) -> JobConfig:
    """30 questions with 8 documents each, all different: 240 pairs, 60 lists, 30 questions without passages."""
    names = [f"q{number}" for number in range(NUM_QUESTIONS)]
    docs = {name: [f"{name}d{rank}" for rank in range(DEPTH)] for name in names}
    queries, passages, run = folder / "queries.jsonl", folder / "passages.jsonl", folder / "run.trec"
    queries.write_text("".join(kilt_line(name, f"what is {name}", name, None) for name in names))
    every = [doc for found in docs.values() for doc in found]
    passages.write_text("".join(passage_line(doc, doc, f"title {doc}", f"text of {doc}") for doc in every))
    run.write_text(trec_lines({name: " ".join(found) for name, found in docs.items()}))
    return JobConfig(
        queries=[str(queries)],
        passages=[str(passages)],
        runs={"only": str(run)},
        depth=DEPTH,
        end_to_end_depths=[4, DEPTH],
        reader=ReaderConfig(kind="echo", delay_seconds=0.03),
        num_resamples=100,
        rows_per_block=16,
        write_every_seconds=0.2,
        out=str(folder / "out"),
        store=str(folder / "store"),
    )


NUM_REQUESTS = NUM_QUESTIONS * (DEPTH + 2 + 1)


def command_of(config: JobConfig, folder: pathlib.Path) -> list[str]:
    path = folder / "config.yaml"
    path.write_text(json.dumps(dataclasses.asdict(config)))  # JSON is YAML
    return [sys.executable, "jobs/compare.py", "--config", str(path)]


def stored(config: JobConfig) -> pl.DataFrame:
    """Every row of the store."""
    files = sorted(pathlib.Path(config.store).glob("readings/*/*.parquet"))
    return pl.concat([pl.DataFrame(pq.read_table(file)) for file in files]) if files else pl.DataFrame()


def end(processes: Sequence[psutil.Process]) -> None:
    """Wait until these processes, all started by the test, are gone; agents that linger are killed by their ids."""
    deadline = time.monotonic() + 5
    while any(map(is_alive, processes)) and time.monotonic() < deadline:
        time.sleep(0.2)
    for process in filter(is_alive, processes):
        process.kill()


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
