"""A comparison large enough to be interrupted, and what tests of crashes share."""

import dataclasses
import os
import pathlib
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

import polars as pl
import psutil
import pyarrow.parquet as pq
from echoing import FAST
from quiet_ray import ENVIRONMENT
from scripts import ROOT, python
from tiny import job_command, kilt_line, passage_line, trec_lines

from erag_ray.config.job import JobConfig
from erag_ray.config.reader import ReaderConfig
from erag_ray.inference.planning.plan import plan_stage
from erag_ray.inference.stage import run_stage
from erag_ray.inputs.stage import prepare
from erag_ray.store.responses import KEY_COLUMNS
from erag_ray.store.schemas import LABELS, REQUESTS, UTILITY
from erag_ray.store.tables import TableStore

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
        reader=ReaderConfig(kind="echo", simulated_latency_seconds=0.03),
        num_resamples=100,
        rows_per_block=16,
        write_every_seconds=0.2,
        out=str(folder / "out"),
        cache_dir=str(folder / "store"),
    )


def without_delay(config: JobConfig) -> JobConfig:
    """The same job, by a reader that is fast: where nothing has to befall it while it reads."""
    return dataclasses.replace(
        config, reader=dataclasses.replace(config.reader, simulated_latency_seconds=0.0)
    )


NUM_REQUESTS = NUM_QUESTIONS * (DEPTH + 2 + 1)


def stored(config: JobConfig) -> pl.DataFrame:
    """Every row of the store."""
    files = sorted(pathlib.Path(config.cache_dir).glob("responses/*/*.parquet"))
    return pl.concat([pl.DataFrame(pq.read_table(file)) for file in files]) if files else pl.DataFrame()


def environment() -> dict[str, str]:
    """Of a job that finds this source tree and the readers of tests, and starts a Ray of its own."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "helpers")])
    known = {**os.environ, **ENVIRONMENT, "PYTHONPATH": paths}
    known.pop("RAY_ADDRESS", None)
    return known


def wait_for(config: JobConfig, num_responses: int) -> None:
    """Until the store holds so many."""
    wait_until(lambda: len(stored(config)) >= num_responses, "the job wrote nothing")


def wait_until(is_so: Callable[[], object], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def start_job(command: Sequence[str]) -> subprocess.Popen[str]:
    """A job in a process of its own, with a Ray of its own."""
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=ROOT, env=environment(), text=True, **pipes)


def finish(config: JobConfig, folder: pathlib.Path) -> None:
    """A whole job in a process of its own, which ends well."""
    done = python(*job_command(config, folder)[1:], env=environment())
    assert done.returncode == 0, done.stderr


def kill_midway(config: JobConfig, folder: pathlib.Path) -> None:
    """Start a job, kill its driver without warning once some responses are written, wait for its Ray to end."""
    with start_job(job_command(config, folder)) as driver:
        wait_for(config, NUM_REQUESTS // 5)
        assert driver.poll() is None, "the job ended before it could be killed"
        family = psutil.Process(driver.pid).children(recursive=True)
        driver.kill()
        driver.wait()
        end(family)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counts:
    """What a fault has cost: keys that the sealed stage lacks, rows it repeats, requests run more than once."""

    lost: int
    repeated: int
    again: int

    def row(self, fault: str, seconds: float) -> None:
        """Print a row of the table in notebooks/BENCHMARKS.md; its seconds are those of the whole run."""
        print(f"| {fault} | {self.lost} | {self.repeated} | {self.again} | {seconds:.0f} |", flush=True)


def counted(config: JobConfig) -> Counts:
    """Of the sealed tables of a job and its store."""
    rows, requests = stored(config), TableStore(f"{config.out}/compare").read(REQUESTS)
    frames = {schema: TableStore(config.out).read(schema) for schema in (LABELS, UTILITY)}
    tables = {**frames, REQUESTS: requests}
    answered = requests.join(rows, on=KEY_COLUMNS, how="semi").select(KEY_COLUMNS).n_unique()
    return Counts(
        lost=NUM_REQUESTS - answered,
        repeated=sum(table.height - table.select(schema.key).n_unique() for schema, table in tables.items()),
        again=rows.height - rows.select(KEY_COLUMNS).n_unique(),
    )


def interrupted(
    config: JobConfig, name: str, fault: Callable[[], None], after: int = NUM_REQUESTS // 3
) -> Counts:
    """Read everything on the Ray that is there; the fault comes when a third is read, and the rest is fast.

    Prints its row.
    """
    inputs = prepare(config)
    plan = plan_stage(config, inputs, "compare", single_document=True, end_to_end=True)
    start, found = time.monotonic(), []
    # nodes can be started in the main thread alone, so the reading has another
    reading = threading.Thread(target=lambda: found.append(run_stage(config, plan)))
    reading.start()
    wait_for(config, after)
    fault()
    pathlib.Path(config.reader.options["folder"], FAST).touch()
    reading.join()
    seconds = time.monotonic() - start
    (done,) = found
    rows, used = stored(config).select(KEY_COLUMNS), done.responses.select(KEY_COLUMNS)
    assert done.responses["error"].count() == 0
    counts = Counts(
        lost=NUM_REQUESTS
        - plan.requests.join(used, on=KEY_COLUMNS, how="semi").select(KEY_COLUMNS).n_unique(),
        repeated=used.height - used.n_unique(),
        again=rows.height - rows.n_unique(),
    )
    counts.row(name, seconds)
    return counts


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
