"""Table 2 of the paper: seconds and memory of end-to-end evaluation and of eRAG, for one dataset, run and depth.

Every way reads the same requests, from their texts to readings, in a process of its own; nothing that was read before
counts, and no states are shared between the two sides. The pool reads them once more, from Parquet to the store.
"""

import dataclasses
import pathlib
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa

from bench.config import BenchmarkConfig
from bench.readers import roofline as floor
from bench.readers import synthetic_reader as invented
from bench.readers.engine_only import reading
from bench.readers.isolated_process import Measured, in_turn_apart
from bench.timing import Row, timed
from erag_ray.config.command_line.parsing import parse
from erag_ray.config.job import JobConfig
from erag_ray.config.reader import ReaderConfig
from erag_ray.data.runs.entries import pairs
from erag_ray.inference.cluster.session import ray_session
from erag_ray.inference.planning.pending import PendingRequests
from erag_ray.inference.planning.plan import ModelPlan, end_to_end_lists, plan_lists
from erag_ray.inference.pool import run
from erag_ray.inference.stage import write_work
from erag_ray.inputs.evidence import Inputs
from erag_ray.inputs.stage import prepare
from erag_ray.models.t5.engine import KINDS
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.request import Form
from erag_ray.store.fingerprints import new_job_id
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError

NEW_TOKENS = 8
LIST_BATCHES = (1, 2, 4, 8)
"""Batch sizes that end-to-end evaluation is tried with."""
UNLIMITED = 1 << 30
OPERATIONS = 2e11
"""Whose time says how fast this machine multiplies."""
PRODUCTS = "products alone"
AS_JOB = "as a job reads"
END, SINGLE = "end-to-end", "eRAG"


class Case(NamedTuple):
    """Requests to one reader for one run's lists of one depth."""

    name: str
    job: JobConfig
    single_document: ModelPlan
    end_to_end: ModelPlan
    queries: pl.DataFrame
    score: str

    @property
    def depth(self) -> int:
        """Documents in a list."""
        return self.job.depth


def table_2(config: BenchmarkConfig, size: int) -> Iterator[Row]:
    """Measure ``size`` questions; ``config.job``'s reader, or those of ``config.lists`` on made-up texts.

    Raises:
        InputError: the job's files, run or dataset cannot be used.
    """
    for case in _cases(config, size):
        yield from _measured(case, config.repeats)
        if config.with_pool:
            yield from _by_pool(case)


def _cases(config: BenchmarkConfig, size: int) -> Iterator[Case]:
    if config.job:
        yield given_case(config, size)
        return
    out = pathlib.Path(config.out, "table_2")
    model = invented.write_model(out / "t5-small", config.seed)
    for name in config.lists:
        kind, _, depth = name.partition("@")
        files = invented.write_files(out / name, invented.lists(size, int(depth), config.seed))
        yield _case(made_up_job(model, files, kind, [int(depth)]), config, size)


def made_up_job(model: str, files: Mapping[str, Any], kind: str, depths: Sequence[int]) -> JobConfig:
    """A job on `invented.write_files`, with room for every passage, so that none is cut."""
    room = 250 if kind == "fid" else 16_384
    reader = ReaderConfig(kind=kind, model=model, max_new_tokens=NEW_TOKENS, max_prompt_tokens=room)
    deep: dict[str, Any] = {"depth": max(depths), "end_to_end_depths": list(depths), "cutoffs": list(depths)}
    return JobConfig(**files, **deep, reader=reader, annotators=["erag"])


def given_case(config: BenchmarkConfig, size: int) -> Case:
    """Return the case of ``size`` questions of ``config.job``.

    Raises:
        InputError: there is none, or its files, run or dataset cannot be used.
    """
    if config.job is None:
        raise InputError(["job: this part needs one, the YAML of a jobs/compare.py"])
    return _case(_given(config), config, size)


def _given(config: BenchmarkConfig) -> JobConfig:
    job = parse(JobConfig, "", ["--config", str(config.job)]).with_retrieved()
    runs = {name: path for name, path in job.runs.items() if name == (config.run or name)}
    if not runs:
        raise InputError([f"run: {config.run} is none of {', '.join(job.runs)}"])
    first = next(iter(runs))
    return dataclasses.replace(
        job,
        runs={first: runs[first]},
        end_to_end_depths=[job.depth],
        cutoffs=[job.depth],
        annotators=["erag"],
    )


def _case(job: JobConfig, config: BenchmarkConfig, size: int) -> Case:
    """The requests of the first questions, planned by the rules of a job, with a store of their own."""
    job = with_own_folders(job, f"{config.out}/table_2/{job.reader.kind}-{job.depth}")
    inputs = prepare(job)
    names = sorted(inputs.datasets)
    chosen = config.dataset or names[0]
    if chosen not in names:
        raise InputError([f"dataset: {chosen} is none of {', '.join(names)}"])
    queries = inputs.queries.filter(pl.col("dataset") == chosen).sort("query_id").head(size)
    runs = inputs.runs.join(queries, on="query_id", how="semi")
    sample = dataclasses.replace(inputs, queries=queries, runs=runs)
    single, lists = (plan_for(job, sample, is_single=is_single) for is_single in (True, False))
    name = f"{chosen}, {job.reader.kind}, {job.depth} documents"
    return Case(name, job, single, lists, queries, inputs.datasets[chosen].score)


def with_own_folders(job: JobConfig, out: str) -> JobConfig:
    """The job in a folder of its own, where nothing was read yet."""
    shutil.rmtree(out, ignore_errors=True)
    return dataclasses.replace(job, out=out, cache_dir=f"{out}/store", progress=False, num_queries=None)


def plan_for(job: JobConfig, inputs: Inputs, *, is_single: bool) -> ModelPlan:
    """One side: every document of every run alone, or the lists of every run at every depth."""
    lists = end_to_end_lists(job, inputs).filter(pl.col("run_id").is_in(list(job.runs)))
    of_one = pairs(inputs.runs).select("query_id", doc_ids=pl.concat_list("doc_id"))
    documents = of_one if is_single else lists.select("query_id", "doc_ids")
    named = documents.select(pl.lit(ANSWER.name).alias("kind"), "query_id", "doc_ids")
    return plan_lists(job, inputs, "benchmark", named).plans[0]


def _measured(case: Case, repeats: int) -> Iterator[Row]:
    single, lists = (part.make_requests(part.new) for part in (case.single_document, case.end_to_end))
    config, forms = case.single_document.model.config, case.single_document.forms
    best = _best_batch(config, forms, lists)
    by_batch = {
        size: dataclasses.replace(config, batch_size=size, batch_tokens=UNLIMITED) for size in (1, best)
    }
    ways = {
        f"{END}, batches of {best}": (by_batch[best], lists, "whole"),
        f"{END}, one list at a time": (by_batch[1], lists, "ones"),
        f"{SINGLE}, {AS_JOB}": (config, single, "whole"),
        f"{SINGLE}, a query at a time": (
            dataclasses.replace(config, batch_size=case.depth, batch_tokens=UNLIMITED),
            single,
            "queries",
        ),
        f"{SINGLE}, a document at a time": (by_batch[1], single, "ones"),
    }
    makes: dict[str, Any] = {
        name: (reading, (reader, forms, requests, by)) for name, (reader, requests, by) in ways.items()
    }
    measured = in_turn_apart({**makes, PRODUCTS: (floor.products, (OPERATIONS, config.dtype))}, repeats)
    rate = OPERATIONS / min(measured[PRODUCTS].seconds)
    first = next(iter(measured.values()))
    for name, (_, requests, _) in ways.items():
        row = _row(case, name, measured[name], requests, first)
        yield {**row, **_floor(case, requests, row, rate)}


def _best_batch(config: ReaderConfig, forms: Sequence[Form], requests: pa.Table) -> int:
    """The batch size at which lists are read fastest: each is tried once, after a round that does not count."""
    seconds = {}
    for size in (size for size in LIST_BATCHES if size <= requests.num_rows):
        tried = dataclasses.replace(config, batch_size=size, batch_tokens=UNLIMITED)
        measured = in_turn_apart({"one": (reading, (tried, forms, requests, "whole"))}, 1)
        seconds[size] = min(measured["one"].seconds)
    return min(seconds, key=seconds.__getitem__)


def _floor(case: Case, requests: pa.Table, row: Row, rate: float) -> Row:
    """Operations, and the share of the time that they alone would take, where the model is a T5."""
    model: Any = case.single_document.model
    settings = getattr(model, "settings", None)
    if getattr(settings, "model_type", None) not in KINDS:
        return {}
    num_outputs = row["num_output_tokens"] / requests.num_rows
    count = floor.operations(
        settings, model.render(PendingRequests(requests, case.single_document.forms)[:]), num_outputs
    )
    return {"operations": count, "mfu": count / rate / row["seconds"]}


def _row(case: Case, name: str, measured: Measured, requests: pa.Table, first: Measured) -> Row:
    return {
        "what": case.name,
        "by": name,
        "count": requests.num_rows,
        "peak_memory_bytes": measured.peak_bytes,
        **timed(measured.seconds, first.seconds),
        **measured.first,
    }


def _by_pool(case: Case) -> Iterator[Row]:
    """The same by Ray's pool of one reader, from Parquet to the store; loading counts in the seconds of neither."""
    job = dataclasses.replace(case.job, num_readers=1)
    with ray_session(job.ray_address):
        for name, part in ((END, case.end_to_end), (SINGLE, case.single_document)):
            start = time.perf_counter()
            done = run(write_work(job, TableStore(job.out), part), job, new_job_id())
            yield {
                "what": case.name,
                "by": f"{name}, by the pool",
                "seconds": done.device_seconds,
                "count": done.num_responses,
                "peak_memory_bytes": done.peak_memory_bytes,
                "num_output_tokens": done.num_output_tokens,
                "num_prompt_tokens": done.num_prompt_tokens,
                "whole_seconds": time.perf_counter() - start,
            }
