"""A job that is not to run yet: what it would read, how long that takes, what it costs. Leaves results alone."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from math import isnan, nan
from typing import NamedTuple

import polars as pl

from erag_ray.config import JobConfig
from erag_ray.pipeline import Pool, plan_pool, ray_session
from erag_ray.requests import pairs, ranked_lists
from erag_ray.steps.inputs import Inputs
from erag_ray.steps.planning import ReaderPlan, StagePlan, spread
from erag_ray.steps.reading import read_part
from erag_ray.store import Folder, TableStore, new_job_id

FOLDER = "rehearsal"
HOUR = 3600.0
Seconds = dict[tuple[str, int], float]
"""(reader, number of documents) -> seconds of one reader for one request."""


class Kind(NamedTuple):
    """Requests that take about the same time: of one reader, and at most so many documents (0, 1, each depth)."""

    part: ReaderPlan
    num_docs: int

    @property
    def name(self) -> str:
        return {0: "no passages", 1: "pairs"}.get(self.num_docs, f"lists of {self.num_docs}")


def aside(config: JobConfig) -> JobConfig:
    """The config with a folder of its own inside ``out``, so that nothing there is touched."""
    return dataclasses.replace(config.with_retrieved(), out="/".join([config.out.rstrip("/"), FOLDER]))


def rehearse(config: JobConfig, inputs: Inputs, stages: Sequence[StagePlan]) -> Iterator[str]:
    """Time and cost of what the stages still have to read, by reading some of it; line by line.

    Args:
        config: of `aside`, whose folder is gone at the end.
        inputs: of the job.
        stages: planned; the first is eRAG's and end-to-end evaluation's own.
    """
    kinds = [kind for stage in stages for part in stage.plans for kind in _kinds(part, config.depths)]
    if config.calibrate and kinds:
        yield from _calibrated(config, inputs, stages[0], kinds)
    Folder(config.out).delete_folder()
    yield "a dry run: nothing else was read, and no result was made"


def _kinds(part: ReaderPlan, depths: Sequence[int]) -> Iterator[Kind]:
    """A reader's requests by how many documents they have."""
    length, bounds = pl.col("doc_rows").list.len(), sorted({0, 1, *depths})
    for below, most in itertools.pairwise([-1, *bounds]):
        # gold passages may be more than the deepest list
        above = pl.lit(most == bounds[-1]) & (length > below)
        own = part.new.filter(above | length.is_between(below, most, closed="right"))
        if own.height:
            yield Kind(dataclasses.replace(part, new=own), most)


def _calibrated(config: JobConfig, inputs: Inputs, stage: StagePlan, kinds: Sequence[Kind]) -> Iterator[str]:
    seconds: Seconds = {}
    with ray_session(config.ray_address):
        pool = plan_pool(config)
        for kind in kinds:
            seconds[kind.part.id, kind.num_docs], line = _measured(config, kind, len(kinds))
            yield line
    total = sum(seconds[kind.part.id, kind.num_docs] * kind.part.new.height for kind in kinds)
    yield _sum(total, pool, config.price_per_hour)
    yield from _comparison(config, inputs, stage, seconds)


def _measured(config: JobConfig, kind: Kind, num_kinds: int) -> tuple[float, str]:
    """Seconds of one reader for one request, by reading some of them; and what to say of that."""
    part, count = kind.part, max(1, config.calibrate // num_kinds)
    some = dataclasses.replace(part, new=spread(part.new, count))
    done = read_part(config, TableStore(config.out), some, new_job_id())
    each = done.device_seconds / max(done.num_readings, 1)
    memory, hours = done.peak_memory_bytes / 2**30, each * part.new.height / HOUR
    return each, (
        f"{part.id}: {kind.name}: {done.num_readings:,} read in {done.device_seconds:.1f} reader-seconds "
        f"({each:.3g} each), {memory:.2f} GiB at most; all {part.new.height:,} would take {hours:.3g} reader-hours"
    )


def _sum(seconds: float, pool: Pool, price: float | None) -> str:
    hours = seconds / HOUR
    cost = "" if price is None else f", {hours * price:,.2f} at {price:g} an hour"
    return f"in all {hours:.3g} reader-hours{cost}; {hours / pool.size:.3g} hours with {pool.size} readers"


def _comparison(config: JobConfig, inputs: Inputs, stage: StagePlan, seconds: Seconds) -> Iterator[str]:
    """What eRAG and end-to-end evaluation at each depth would take, each for itself and from nothing."""
    cheaper, known = [], []
    for depth in config.depths:
        parts = [_both(inputs.runs, part, depth, seconds) for part in stage.plans]
        alone, together = (sum(side) for side in zip(*parts, strict=True))
        if isnan(alone + together):
            yield f"depth {depth}: eRAG against end-to-end: not known, some of it was all read before"
            continue
        known.append(str(depth))
        cheaper += [str(depth)] * (alone < together)
        yield (
            f"depth {depth}, each from nothing: eRAG {alone / HOUR:.3g} reader-hours, "
            f"end-to-end {together / HOUR:.3g}"
        )
    if known:
        yield f"eRAG costs less than end-to-end at depth: {', '.join(cheaper) or 'none of ' + ', '.join(known)}"


def _both(runs: pl.DataFrame, part: ReaderPlan, depth: int, seconds: Seconds) -> tuple[float, float]:
    """Seconds for all pairs and for all lists down to a depth; NaN where they were not measured."""
    own = runs.filter(pl.col("rank") <= depth).join(
        part.asks.select("query_id").unique(), on="query_id", how="semi"
    )
    lists = ranked_lists(own, own["query_id"].unique(), [depth]).filter(pl.col("doc_ids").list.len() > 0)
    distinct = lists.select("query_id", "doc_ids").unique()
    alone, together = (seconds.get((part.id, num_docs), nan) for num_docs in (1, depth))
    return pairs(own).height * alone, distinct.height * together
