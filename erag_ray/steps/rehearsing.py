"""A job that is not to run yet: what it would read, how long that takes, what it costs. Leaves results alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from erag_ray.config import JobConfig
from erag_ray.pipeline import Done, Pool, plan_pool, ray_session
from erag_ray.steps.planning import ReaderPlan, StagePlan, spread
from erag_ray.steps.reading import read_part
from erag_ray.store import Folder, TableStore, new_job_id

FOLDER = "rehearsal"
HOUR = 3600.0


def aside(config: JobConfig) -> JobConfig:
    """The config with a folder of its own inside ``out``, so that nothing there is touched."""
    return dataclasses.replace(config.with_retrieved(), out="/".join([config.out.rstrip("/"), FOLDER]))


def rehearse(config: JobConfig, stages: Sequence[StagePlan]) -> Iterator[str]:
    """Time and cost of what the stages still have to read, by reading some of it; line by line.

    Args:
        config: of `aside`, whose folder is gone at the end.
        stages: planned.
    """
    parts = [part for stage in stages for part in stage.plans if part.requests.height]
    if config.calibrate and parts:
        yield from _calibrated(config, parts)
    Folder(config.out).delete_folder()
    yield "a dry run: nothing else was read, and no result was made"


def _calibrated(config: JobConfig, parts: Sequence[ReaderPlan]) -> Iterator[str]:
    tables, job, total = TableStore(config.out), new_job_id(), 0.0
    with ray_session(config.ray_address):
        pool = plan_pool(config)
        for part in parts:
            some = dataclasses.replace(part, requests=spread(part.requests, config.calibrate))
            done = read_part(config, tables, some, job)
            each = done.device_seconds / max(done.num_readings, 1)
            total += each * part.requests.height
            yield _line(part, done, each)
    yield _sum(total, pool, config.price_per_hour)


def _line(part: ReaderPlan, done: Done, each: float) -> str:
    memory, hours = done.peak_memory_bytes / 2**30, each * part.requests.height / HOUR
    return (
        f"{part.id}: {done.num_readings:,} requests read in {done.device_seconds:.1f} reader-seconds "
        f"({each:.3g} each), {memory:.2f} GiB at most; all {part.requests.height:,} would take "
        f"{hours:.3g} reader-hours"
    )


def _sum(seconds: float, pool: Pool, price: float | None) -> str:
    hours = seconds / HOUR
    cost = "" if price is None else f", {hours * price:,.2f} at {price:g} an hour"
    return f"in all {hours:.3g} reader-hours{cost}; {hours / pool.size:.3g} hours with {pool.size} readers"
