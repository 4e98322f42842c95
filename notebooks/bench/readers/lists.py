"""Cost of several runs and depths together, and the depth from which eRAG is cheaper, on made-up texts."""

import functools
import itertools
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from bench.config import BenchmarkConfig
from bench.readers import synthetic_reader as invented
from bench.readers.engine_only import loaded, read_all, reading
from bench.readers.isolated_process import in_turn_apart
from bench.readers.table_2 import END, SINGLE, made_up_job, plan_for, with_own_folders
from bench.timing import Row, rounds, timed
from erag_ray.config.job import JobConfig
from erag_ray.inputs.stage import prepare
from erag_ray.models import Model
from erag_ray.models.local.process import keep_freed_memory
from erag_ray.prompts.request import Form
from erag_ray.store.responses import KEY_COLUMNS

DEPTHS = (5, 10, 20, 50)
UNION = "the union once"
CURVE_DEPTHS, CURVE_WORDS = (1, 5, 10, 20, 50, 100), (40, 100, 200)


def shared(config: BenchmarkConfig, size: int) -> Iterator[Row]:
    """Two runs of 50 documents, 25 of them the same: eRAG and end-to-end at every depth, against the union's pairs.

    The ratio is of the time; the tokens encoded say how much of the encoder's work was done once.
    """
    out = pathlib.Path(config.out, "shared")
    questions = invented.lists(size, 3 * max(DEPTHS) // 2, config.seed)
    model = invented.write_model(out / "t5-small", config.seed)
    files = invented.write_files(out, questions)
    runs = {name: str(out / f"{name}.trec") for name in ("first", "second")}
    for name, path in runs.items():
        pathlib.Path(path).write_text("".join(_half_shared(len(questions), name)))
    job = with_own_folders(made_up_job(model, {**files, "runs": runs}, "fid", DEPTHS), str(out / "job"))
    forms, *tables = _requests(job)
    requests = dict(zip((UNION, "all of it"), tables, strict=True))
    ways: dict[str, Any] = {
        name: (reading, (job.reader, forms, table, "whole")) for name, table in requests.items()
    }
    measured = in_turn_apart(ways, config.repeats)
    for name, one in measured.items():
        yield {
            "what": "two runs that share half",
            "by": name,
            "count": requests[name].num_rows,
            "peak_memory_bytes": one.peak_bytes,
            **timed(one.seconds, measured[UNION].seconds),
            **one.first,
        }


def _half_shared(num_questions: int, run: str) -> Iterator[str]:
    """Documents 1 to 50 of a question for the first run, 26 to 75 for the second."""
    first = 1 if run == "first" else 1 + max(DEPTHS) // 2
    for number, rank in itertools.product(range(num_questions), range(1, max(DEPTHS) + 1)):
        yield f"q{number} Q0 d{number}-{first + rank - 1} {rank} {-rank} made_up\n"


def _requests(job: JobConfig) -> tuple[Sequence[Form], pa.Table, pa.Table]:
    """Return the forms, the requests of single documents, and all requests of a comparison."""
    inputs = prepare(job)
    single, lists = (plan_for(job, inputs, is_single=is_single) for is_single in (True, False))
    new = pl.concat([single.new, lists.new]).unique(KEY_COLUMNS, maintain_order=True)
    everything = single.make_requests(new.sort("text_key", maintain_order=True))
    return single.forms, single.make_requests(single.new), everything


def depths(config: BenchmarkConfig, size: int) -> Iterator[Row]:
    """FiD over so many passages of so many words at once, against each of them alone, by the same engine."""
    out = pathlib.Path(config.out, "depths")
    model = invented.write_model(out / "t5-small", config.seed)
    keep_freed_memory()
    reader = loaded(made_up_job(model, {}, "fid", [1]).reader)
    for words in CURVE_WORDS:
        files = invented.write_files(
            out, invented.lists(size, max(CURVE_DEPTHS), config.seed, (words, words))
        )
        for depth in CURVE_DEPTHS:
            job = with_own_folders(made_up_job(model, files, "fid", [depth]), str(out / "job"))
            yield from _against(
                reader, job, f"FiD, passages of {words} words, {depth} documents", config.repeats
            )


def _against(reader: Model, job: JobConfig, what: str, repeats: int) -> Iterator[Row]:
    inputs = prepare(job)
    plans = {END: plan_for(job, inputs, is_single=False), SINGLE: plan_for(job, inputs, is_single=True)}
    tables = {name: plan.make_requests(plan.new) for name, plan in plans.items()}
    works = {
        name: functools.partial(read_all, reader, plans[name].forms, [table])
        for name, table in tables.items()
    }
    first = {name: work() for name, work in works.items()}
    times = rounds(works, repeats)
    for name, seconds in times.items():
        row = {"what": what, "by": name, "count": tables[name].num_rows}
        yield {**row, **timed(seconds, times[END]), **first[name]}
