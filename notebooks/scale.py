"""How much the pipeline costs beside the reader, and how it grows: jobs/compare.py over millions of requests.

    python notebooks/scale.py make FOLDER NUM_QUESTIONS [NUM_RUNS]
    python notebooks/scale.py run FOLDER DELAY_SECONDS OUT [compare.py's options ...]
    python notebooks/scale.py loop FOLDER DELAY_SECONDS NUM_PAIRS
    python notebooks/scale.py lookup FOLDER NUM_RESPONSES

``make`` writes questions, runs of 50 documents a question (one by default), and passages of 80 invented words, a fifth
as many as there are pairs in one run. ``run`` reads all pairs, and the first five documents of each list, with the
reader ``echo``, which sleeps so long for each request. It prints, with seconds since the start, every line that the job
says, and every ten seconds the memory that the job and each of its readers hold for themselves alone, in GiB. ``loop``
calls the same reader in a plain loop over PENDING. ``lookup`` fills a store with so many responses, 4,000 a file, and
prints what a job does with it: files, bytes on disk, the seconds of a check of all files, of all keys, of a lookup of
all responses and of 10,000 of them, the most open files, and the most memory.
"""

import json
import pathlib
import resource
import subprocess
import sys
import threading
import time

import numpy as np
import numpy.typing as npt
import polars as pl
import psutil
import pyarrow as pa

from erag_ray.config.reader import JudgeConfig, ReaderConfig
from erag_ray.data.datasets.tasks import Dataset
from erag_ray.inference.actor import responses_table
from erag_ray.inference.planning.pending import PendingRequests
from erag_ray.models import make_model
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.base import Case
from erag_ray.prompts.request import Response
from erag_ray.store.responses import ResponseStore

DEPTH, FIRST, WORDS, PLACES = 50, 5, 80, 5
LOOK_SECONDS = 10.0
FILE_ROWS = 4_000
GIB = 2**30
EVERY_STAGE = (
    "import runpy, sys; from erag_ray.support import progress; progress.QUICK_SECONDS = 0.1; "
    "sys.path.insert(0, '.'); runpy.run_path('jobs/compare.py', run_name='__main__')"
)
"""jobs/compare.py, in which no stage is too quick for a line."""


def words(generator: np.random.Generator, count: int) -> npt.NDArray[np.object_]:
    """Invented words."""
    letters = generator.integers(97, 123, size=(count, 7)).astype(np.uint8)
    return np.array([bytes(row).decode() for row in letters], dtype=object)


def make(folder: pathlib.Path, num_questions: int, num_runs: int) -> None:
    """Questions, passages and runs."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(7)
    vocabulary = words(generator, 30_000)
    num_passages = num_questions * DEPTH // PLACES
    write_passages(folder / "passages", generator, vocabulary, num_passages)
    gold = generator.integers(num_passages, size=num_questions)
    with (folder / "queries.jsonl").open("w") as file:
        for number, place in enumerate(gold):
            answer = {"answer": f"title {place}", "provenance": [{"wikipedia_id": f"p{place}"}]}
            asked = " ".join(generator.choice(vocabulary, 8))
            record = {"id": f"q{number}", "input": f"{asked} {number}", "output": [answer]}
            file.write(json.dumps(record) + "\n")
    for number in range(num_runs):
        lacks_gold = generator.random(num_questions) < number / 10
        documents = np.where(lacks_gold, (gold + 1) % num_passages, gold)
        write_run(folder / f"run_{number}.parquet", generator, documents, num_passages)


def write_run(
    path: pathlib.Path, generator: np.random.Generator, first: npt.NDArray[np.int64], num_passages: int
) -> None:
    """Random documents after a first one."""
    num_questions = len(first)
    found = generator.integers(num_passages, size=(num_questions, DEPTH)) // DEPTH * DEPTH
    # a list's documents lie apart by their rank, so that none repeats
    found = (found + np.arange(DEPTH)) % num_passages
    found[:, 0] = np.where((found == first[:, None]).any(axis=1), found[:, 0], first)
    rows = np.arange(num_questions).repeat(DEPTH)
    run = pl.DataFrame(
        {"query": rows, "doc": found.ravel(), "rank": np.tile(np.arange(1, DEPTH + 1), num_questions)}
    )
    run.select(
        query_id=pl.format("q{}", "query"),
        doc_id=pl.format("d{}", "doc"),
        rank=pl.col("rank").cast(pl.Int32),
        score=-pl.col("rank").cast(pl.Float64),
    ).write_parquet(path)


def write_passages(
    folder: pathlib.Path, generator: np.random.Generator, vocabulary: npt.NDArray[np.object_], count: int
) -> None:
    """Files of at most 100,000 passages."""
    folder.mkdir(exist_ok=True)
    for part, start in enumerate(range(0, count, 100_000)):
        numbers = range(start, min(start + 100_000, count))
        texts = [
            " ".join(row)
            for row in vocabulary[generator.integers(len(vocabulary), size=(len(numbers), WORDS))]
        ]
        pl.DataFrame(
            {
                "doc_id": [f"d{number}" for number in numbers],
                "page_id": [f"p{number}" for number in numbers],
                "title": [f"title {number}" for number in numbers],
                "text": texts,
            }
        ).write_parquet(folder / f"{part:04}.parquet")


def run(folder: pathlib.Path, delay: float, out: pathlib.Path, options: list[str]) -> int:
    """The job, with what it says and holds."""
    passages = json.dumps([str(path) for path in sorted((folder / "passages").glob("*.parquet"))])
    command = [
        *(sys.executable, "-u", "-c", EVERY_STAGE, "--queries", json.dumps([str(folder / "queries.jsonl")])),
        *("--passages", passages, "--depth", str(DEPTH)),
        *(f"--runs.{path.stem}={path}" for path in sorted(folder.glob("run_*.parquet"))),
        *("--end_to_end_depths", f"[{FIRST}]", "--dataset", "nq", "--reader.kind", "echo"),
        *("--reader.simulated_latency_seconds", str(delay), "--num_readers", "2", "--cpus_per_reader", "1"),
        *("--out", str(out / "out"), "--cache_dir", str(out / "store"), *options),
    ]
    start = time.monotonic()
    job = psutil.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    threading.Thread(target=watch, args=(job, start), daemon=True).start()
    assert job.stdout is not None
    for line in job.stdout:
        say(start, line.rstrip())
    code: int = job.wait()
    files = [path for path in out.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / GIB
    say(start, f"ended with {code}; {len(files)} files, {size:.2f} GiB in {out}")
    return code


def watch(job: psutil.Popen, start: float) -> None:
    """Memory, now and then, until the job is gone."""
    most = 0.0
    while job.is_running():
        try:
            own = job.memory_full_info().uss / GIB
            most = max(most, own)
            readers = [
                process.memory_full_info().uss / GIB
                for process in job.children(recursive=True)
                if "ModelActor" in " ".join(process.cmdline())
            ]
        except psutil.NoSuchProcess:
            continue
        used = psutil.virtual_memory().used / GIB
        told = " ".join(f"{size:.2f}" for size in readers)
        say(start, f"MEMORY job {own:.2f} (most {most:.2f}), readers {told or '-'}, machine {used:.1f}")
        time.sleep(LOOK_SECONDS)


def say(start: float, line: str) -> None:
    """A line with its time."""
    print(f"{time.monotonic() - start:8.1f} {line}", flush=True)


def loop(shards: pathlib.Path, delay: float, num_pairs: int) -> None:
    """The same model over PENDING requests, without anything around it."""
    config = ReaderConfig(kind="echo", simulated_latency_seconds=delay)
    form = ANSWER.build(Case(dataset=Dataset(), reader=config, judge=JudgeConfig()))
    model, done, start = make_model(config), 0, time.monotonic()
    model.load()
    for path in sorted(shards.rglob("*.parquet")):
        table = pl.read_parquet(path).to_arrow()
        for first in range(0, table.num_rows, 4096):
            done += sum(1 for _ in model.run(PendingRequests(table.slice(first, 4096), [form])))
            if done >= num_pairs:
                say(start, f"{done} responses, {done / (time.monotonic() - start):.0f} a second")
                return


def lookup(folder: pathlib.Path, count: int) -> None:
    """What is done with a store of so many responses, as a row of a Markdown table."""
    store, generator = ResponseStore(str(folder), "echo-0000000000000000"), np.random.default_rng(7)
    keys = generator.integers(1 << 63, size=(count, 2), dtype=np.uint64)
    for start in range(0, count, FILE_ROWS):
        rows = keys[start : start + FILE_ROWS]
        outputs = [Response(text=f"title {key}", num_prompt_tokens=90) for key in rows[:, 1] % 10**6]
        requests = pa.table({"question_key": rows[:, 0], "passages_key": rows[:, 1]})
        store.append(responses_table(requests, store.model, outputs), "job", 20.0, device="CPU")
    wanted = pl.DataFrame({"question_key": keys[:, 0], "passages_key": keys[:, 1]})
    steps = (store.repair, store.keys, lambda: store.lookup(wanted), lambda: store.lookup(wanted[:10_000]))
    process, most, seconds = psutil.Process(), [0], list[float]()

    def count_files() -> None:
        while True:
            most[0] = max(most[0], process.num_fds())
            time.sleep(0.01)

    threading.Thread(target=count_files, daemon=True).start()
    for step in steps:
        begun = time.monotonic()
        step()
        seconds.append(time.monotonic() - begun)
    files = [path.stat().st_size for path in folder.rglob("*.parquet")]
    times = " | ".join(f"{one:.2f}" for one in seconds)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"| {count:,} | {len(files):,}, {sum(files) / 1e6:.0f} MB | {times} | {most[0]} | {memory:.1f} GiB |"
    )


if __name__ == "__main__":
    what, folder, *rest = sys.argv[1:]
    if what == "make":
        make(pathlib.Path(folder), *map(int, [*rest, "1"][:2]))
    elif what == "run":
        raise SystemExit(run(pathlib.Path(folder), float(rest[0]), pathlib.Path(rest[1]), rest[2:]))
    elif what == "lookup":
        lookup(pathlib.Path(folder), int(rest[0]))
    else:
        loop(pathlib.Path(folder), float(rest[0]), int(rest[1]))
