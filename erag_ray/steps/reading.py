"""A planned stage -> its readings in the store, and its seal."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence

import polars as pl

from erag_ray.config import JobConfig
from erag_ray.evaluate import Expected, describe_outputs
from erag_ray.pipeline import Done, Work, ray_session, read
from erag_ray.progress import stage_progress
from erag_ray.schemas import ASKS, COMMON_OUTPUTS, COSTS, OUTPUTS, JobError
from erag_ray.steps.errors import check_share
from erag_ray.steps.judging import outputs_alone
from erag_ray.steps.planning import Answered, ReaderPlan, StagePlan
from erag_ray.store import KEY_COLUMNS, ReadingStore, TableStore, new_job_id

ROWS_PER_SHARD = 50_000
NUM_NAMED = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Read:
    """A sealed stage: its ASKS and the READINGS that answer them."""

    asks: pl.DataFrame
    readings: pl.DataFrame


def alone(done: Read) -> pl.DataFrame:
    """What was said with each document alone: columns query_id, doc_id, reader, output."""
    return outputs_alone(done.asks, done.readings)


def run_others(config: JobConfig, others: Sequence[StagePlan]) -> dict[str, pl.DataFrame]:
    """`run_stage` of the stages of `plan_others`: stage -> what was said with each document alone."""
    return {other.stage: _in_place(alone(run_stage(config, other)), other) for other in others}


def _in_place(said: pl.DataFrame, plan: StagePlan) -> pl.DataFrame:
    return said.with_columns(pl.col("reader").replace(dict(plan.instead)))


def run_stage(config: JobConfig, plan: StagePlan) -> Read:
    """Read what is new, check that everything asked has been read, and seal the stage.

    Raises:
        JobError: readings are missing, or more of them are errors than ``max_error_share`` allows.
    """
    tables = TableStore("/".join([config.out.rstrip("/"), plan.stage]))
    tables.folder.delete("manifest.json")
    job, start = new_job_id(), time.monotonic()
    todo = [part for part in plan.plans if part.new.height]
    done = _read_all(config, tables, todo, job) if todo else []
    seconds = time.monotonic() - start
    with stage_progress("looking up readings", show=config.progress):
        found = [_collect(config, part) for part in plan.plans]
        readings = pl.concat(frame for frame, _ in found)
        _check_errors(readings, plan.asks, config)
        tables.write(plan.asks, ASKS)
    tables.write(_costs(plan, todo, done, job, seconds), COSTS)
    if plan.answered:
        _seal_outputs(tables, plan, plan.answered, readings)
    _seal(config, tables, plan, readings, sum(repeats for _, repeats in found), _told_of_borders(todo, done))
    for part in todo:
        # whole texts, which the sealed stage does not need again
        tables.folder.delete_folder("requests", part.id)
    return Read(asks=plan.asks, readings=readings)


def _seal_outputs(tables: TableStore, plan: StagePlan, answered: Answered, readings: pl.DataFrame) -> None:
    expected = Expected(
        max_new_tokens={part.id: part.reader.max_new_tokens for part in plan.plans},
        example_answers={part.id: part.reader.example_answers for part in plan.plans},
        verdicts=answered.verdicts,
    )
    outputs, common = describe_outputs(answered.lists, plan.asks, readings, answered.queries, expected)
    tables.write(outputs, OUTPUTS)
    tables.write(common, COMMON_OUTPUTS)


def _read_all(config: JobConfig, tables: TableStore, todo: Sequence[ReaderPlan], job: str) -> list[Done]:
    with contextlib.ExitStack() as opened:
        with stage_progress("starting Ray", show=config.progress):
            opened.enter_context(ray_session(config.ray_address))
        return [read_part(config, tables, part, job) for part in todo]


def read_part(config: JobConfig, tables: TableStore, part: ReaderPlan, job: str) -> Done:
    """One reader's requests, on the Ray that is there; the readings are in the store when this returns."""
    with stage_progress("writing requests", show=config.progress):
        where = _write_requests(tables, part)
    work = Work(requests=where, num_requests=part.new.height, config=part.reader.config, reader=part.id)
    return read(work, config, job)


def _write_requests(tables: TableStore, plan: ReaderPlan) -> str:
    """Parquet shards of the new requests, in a folder that holds nothing else."""
    place = ("requests", plan.id)
    tables.folder.delete_folder(*place)
    for number, start in enumerate(range(0, plan.new.height, ROWS_PER_SHARD)):
        shard = plan.make_requests(plan.new.slice(start, ROWS_PER_SHARD))
        tables.folder.write_parquet(shard, *place, f"part-{number:05}.parquet", row_group_size=5000)
    return "/".join([tables.folder.root.rstrip("/"), *place])


def _collect(config: JobConfig, plan: ReaderPlan) -> tuple[pl.DataFrame, int]:
    store = ReadingStore(config.store, plan.id)
    readings, repeats = store.lookup(plan.asks)
    missing = plan.asks.join(readings, on=KEY_COLUMNS, how="anti")
    if missing.height:
        example = missing.select("query_id", "doc_ids").row(0, named=True)
        torn = f" ({len(store.set_aside)} damaged files were set aside)" if store.set_aside else ""
        text = f"{plan.id}: {missing.height} requests were not read, such as {example}{torn}; start the job again"
        raise JobError(text)
    return readings, repeats


def _check_errors(readings: pl.DataFrame, asks: pl.DataFrame, config: JobConfig) -> None:
    errors, keys = readings.filter(pl.col("error").is_not_null()), ["reader", *KEY_COLUMNS]
    first = errors.join(asks.unique(keys, keep="first", maintain_order=True), on=keys).head(NUM_NAMED)
    named = [
        f"query {row['query_id']}, documents {row['doc_ids']}: {row['error_kind']}: {row['error']}"
        for row in first.iter_rows(named=True)
    ]
    check_share("readings", errors.height, readings.height, named, config)


def _costs(
    plan: StagePlan, todo: Sequence[ReaderPlan], done: Sequence[Done], job: str, seconds: float
) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "stage": [plan.stage],
            "job": [job],
            "num_requests": [sum(row["distinct"] for row in plan.counts)],
            "num_reader_calls": [sum(part.num_readings for part in done)],
            "num_prompt_tokens": [sum(part.num_prompt_tokens for part in done)],
            "num_output_tokens": [sum(part.num_output_tokens for part in done)],
            "seconds": [seconds],
            "device_seconds": [sum((part.device_seconds for part in done), 0.0)],
            "peak_memory_bytes": [max((part.peak_memory_bytes for part in done), default=0)],
        }
    )


def _told_of_borders(todo: Sequence[ReaderPlan], done: Sequence[Done]) -> str:
    """How many questions lay in two blocks, so that what their requests share was encoded twice; "" if nothing was."""
    num_questions = sum(part.new["question_key"].n_unique() for part in todo)
    num_cut = sum(part.num_questions for part in done) - num_questions
    return f" {num_cut:,} of {num_questions:,} questions now read lay in two blocks." if todo else ""


def _seal(
    config: JobConfig,
    tables: TableStore,
    plan: StagePlan,
    readings: pl.DataFrame,
    repeats: int,
    borders: str,
) -> None:
    # a stage may have nothing to read: all is read for its score alone
    tokens = readings.select(pl.col("num_prompt_tokens").mean()).item() or 0
    cut = readings.select((pl.col("num_truncated_passage_tokens") > 0).mean()).item() or 0
    cut_question = readings.select((pl.col("num_truncated_question_tokens") > 0).mean()).item() or 0
    summary = (
        f"Over all readings used: {tokens:.0f} prompt tokens each, passages cut in "
        f"{cut:.1%}, question cut in {cut_question:.1%}; {readings['error'].count()} errors.{borders}"
    )
    summary = " ".join([summary, *_agreement(config, plan, readings)])
    content = {
        "stage": plan.stage,
        "counts": plan.counts,
        "summary": summary,
        "num_asks": plan.asks.height,
        "num_readings": readings.height,
        "num_repeated_keys": repeats,
        "store": config.store,
    }
    tables.write_manifest(content)


def _agreement(config: JobConfig, plan: StagePlan, readings: pl.DataFrame) -> Iterator[str]:
    """How often what was read for its score alone is what the reader itself writes, where the store knows both.

    Only where both are asked by the same key: a reader that sees golds gives the same score anyway.
    """
    for part in plan.plans:
        if part.id in plan.instead and not part.reader.sees_golds:
            own, _ = ReadingStore(config.store, plan.instead[part.id]).lookup(part.asks)
            both = (
                readings.filter(reader=part.id)
                .join(own, on=KEY_COLUMNS)
                .drop_nulls(["output", "output_right"])
            )
            equal = both.filter(pl.col("output") == pl.col("output_right")).height
            yield f"{part.id} chose what the reader writes in {equal:,} of {both.height:,} readings known of both."
