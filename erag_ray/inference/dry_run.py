"""A job that is not to run yet: what it would read, how long that takes, what it costs. Leaves results alone."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import polars as pl
import scipy.stats

from erag_ray.cluster import ray_session
from erag_ray.config import JobConfig
from erag_ray.inference.pool import Pool, plan_pool
from erag_ray.inference.stage import work_of
from erag_ray.inference.timing import Times, read_samples, sample_name, without_first
from erag_ray.inputs import Inputs
from erag_ray.kinds import ANSWER
from erag_ray.planning import ModelPlan, StagePlan, ranked_lists, spread
from erag_ray.progress import stage_progress
from erag_ray.runs import pairs
from erag_ray.store import Folder, new_job_id

NUM_SAMPLES = 4
"""Of each kind, to be timed. More of them would be smaller: a reader takes longer for a request in a small batch."""
CONFIDENCE = 0.95
HOUR = 3600.0


class Seconds(NamedTuple):
    """Of one reader for some requests.

    Attributes:
        mean: over samples.
        low: end of its interval, by how much samples differ; 0 for a single sample.
        high: the other end; infinity for a single sample.
        is_small: the samples were smaller than the job's batches, so all of it is too much rather than too little.
    """

    mean: float
    low: float
    high: float
    is_small: bool

    def times(self, count: int) -> Seconds:
        """For so many requests."""
        return Seconds(self.mean * count, self.low * count, self.high * count, self.is_small)

    @property
    def in_hours(self) -> str:
        """For people."""
        return f"{self.mean / HOUR:.3g} reader-hours [{self.low / HOUR:.3g}, {self.high / HOUR:.3g}]"


class Group(NamedTuple):
    """Requests that take about the same time: of one model and kind, with at most so many documents."""

    part: ModelPlan
    kind: str
    num_docs: int

    @property
    def name(self) -> str:
        lists = {0: "no passages", 1: "pairs"}.get(self.num_docs, f"lists of {self.num_docs}")
        return f"{self.kind}, {lists}"

    @property
    def key(self) -> tuple[str, str, int]:
        return self.part.id, self.kind, self.num_docs


Known = dict[tuple[str, str, int], Seconds]
"""(model, kind, number of documents) -> for one request."""


def estimate_cost(config: JobConfig, inputs: Inputs, plan: StagePlan) -> Iterator[str]:
    """Time and cost of what the stage still has to run, by running some of it; line by line, as it is known.

    Args:
        config: of `dry_run_config`, whose folder is gone at the end.
        inputs: of the job.
        plan: of the stage.
    """
    groups = [list(_groups(part, config.depths)) for part in plan.plans if part.new.height]
    if config.calibrate and groups:
        yield from _calibrated(config, inputs, plan, groups)
    Folder(config.out).delete_folder()
    yield "a dry run: nothing else was read, and no result was made"


def _groups(part: ModelPlan, depths: Sequence[int]) -> Iterator[Group]:
    """A model's requests by kind and by how many documents they have, fewest first."""
    length, bounds = pl.col("doc_rows").list.len(), sorted({0, 1, *depths})
    for kind in part.new["kind"].unique().sort():
        for below, most in itertools.pairwise([-1, *bounds]):
            # gold passages may be more than the deepest list
            above = pl.lit(most == bounds[-1]) & (length > below)
            within = above | length.is_between(below, most, closed="right")
            own = part.new.filter(pl.col("kind") == kind, within)
            if own.height:
                yield Group(dataclasses.replace(part, new=own), kind, most)


def _calibrated(
    config: JobConfig, inputs: Inputs, plan: StagePlan, groups: Sequence[Sequence[Group]]
) -> Iterator[str]:
    known: Known = {}
    count = max(1, config.calibrate // sum(map(len, groups)))
    with ray_session(config.ray_address):
        for own in groups:
            pool = plan_pool(config, own[0].part.resources)
            yield from _measured(config, own, count, pool, known)
    everything = [known[group.key].times(group.part.new.height) for own in groups for group in own]
    total = _sum(everything)
    yield _costs(total, pool, config.price_per_hour)
    yield from _comparison(config, inputs, plan, known)


def _measured(
    config: JobConfig, groups: Sequence[Group], count: int, pool: Pool, known: Known
) -> Iterator[str]:
    """Time one model on so many requests of each group, by themselves; what it takes is added to ``known``."""
    part, folder = groups[0].part, Folder("/".join([config.out.rstrip("/"), "pending", groups[0].part.id]))
    rounds = itertools.zip_longest(*(_samples(group, count, pool.num_together) for group in groups))
    # in turn, so that what else the machine does meanwhile slows all of them alike
    order = [
        (group, rows) for one in rounds for group, rows in zip(groups, one, strict=True) if rows is not None
    ]
    for number, (_, rows) in enumerate(order):
        folder.write_parquet(part.make_requests(rows), sample_name(number))
    work = dataclasses.replace(work_of(part, folder.root), num_requests=count)
    with stage_progress(f"timing {part.id}", show=config.progress):
        times = read_samples(work, len(order), config, new_job_id(), pool)
    for group in groups:
        own = without_first([one for one, (other, _) in zip(times, order, strict=True) if other is group])
        known[group.key] = _for_one(own)
        yield _line(group, own, known[group.key])
    memory = max(one.peak_memory_bytes for one in times)
    yield f"{part.id}: a reader holds {memory / 2**30:.2f} GiB at most"


def _samples(group: Group, count: int, num_workers: int) -> list[pl.DataFrame]:
    """So many of the requests, evenly over all of them, in samples that are each so too.

    The first sample of each worker does not count; where there are too few for one more they come again.
    """
    chosen = spread(group.part.new, count)
    num_samples = min(NUM_SAMPLES + num_workers, chosen.height)
    samples = [chosen.gather_every(num_samples, first) for first in range(num_samples)]
    return samples * math.ceil((num_workers + 1) / num_samples)


def _for_one(times: Sequence[Times]) -> Seconds:
    """Mean of the samples with Student's interval, which is the wider the fewer they are."""
    each = [one.seconds / one.num_responses for one in times]
    mean, count = statistics.fmean(each), len(each)
    is_small = max(one.num_responses for one in times) < times[0].batch_rows
    if count == 1:
        return Seconds(mean, 0.0, math.inf, is_small)
    quantile = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, count - 1))
    margin = quantile * statistics.stdev(each) / math.sqrt(count)
    return Seconds(mean, max(0.0, mean - margin), mean + margin, is_small)


def _line(group: Group, times: Sequence[Times], seconds: Seconds) -> str:
    num_responses, height = sum(one.num_responses for one in times), group.part.new.height
    return (
        f"{group.part.id}: {group.name}: {seconds.mean:.3g} reader-seconds each [{seconds.low:.3g}, "
        f"{seconds.high:.3g}] by {len(times)} samples, {num_responses:,} requests in all (one batch of the job holds "
        f"up to {times[0].batch_rows:,}); all {height:,} would take {seconds.times(height).in_hours}"
    )


def _sum(parts: Sequence[Seconds]) -> Seconds:
    mean, low, high = (math.fsum(column) for column in list(zip(*parts, strict=True))[:3])
    return Seconds(mean, low, high, any(one.is_small for one in parts))


def _costs(total: Seconds, pool: Pool, price: float | None) -> str:
    hours = total.mean / HOUR
    cost = "" if price is None else f", {hours * price:,.2f} at {price:g} an hour"
    return (
        f"in all {total.in_hours}{cost}; {hours / pool.size:.3g} hours with {pool.size} readers. Each kind was read by "
        "itself; the job takes less where its batches are larger or kinds share work (fid encodes a passage once)"
    )


def _comparison(config: JobConfig, inputs: Inputs, plan: StagePlan, known: Known) -> Iterator[str]:
    """What eRAG and end-to-end evaluation at each depth would take, each for itself and from nothing."""
    for depth in config.depths:
        asked = [part for part in plan.plans if ANSWER.name in part.requests["kind"]]
        parts = [_both(inputs.runs, part, depth, known) for part in asked]
        if None in parts or not parts:
            yield f"depth {depth}: eRAG against end-to-end: not known, some of it was all read before"
            continue
        alone, together = map(_sum, zip(*filter(None, parts), strict=True))
        yield (
            f"depth {depth}, each from nothing: eRAG {alone.in_hours}, end-to-end {together.in_hours}: "
            f"{_verdict(alone, together)}"
        )


def _verdict(alone: Seconds, together: Seconds) -> str:
    """Small batches count against eRAG, whose requests are short, so they cannot show that it costs more."""
    if alone.high < together.low:
        return "eRAG costs less"
    if alone.low > together.high and not alone.is_small:
        return "eRAG costs more"
    return "these samples do not tell which costs less; calibrate with more"


def _both(runs: pl.DataFrame, part: ModelPlan, depth: int, known: Known) -> tuple[Seconds, Seconds] | None:
    """For all pairs and for all lists down to a depth; None where one of them was not measured."""
    one, several = (part.id, ANSWER.name, 1), (part.id, ANSWER.name, depth)
    if not known.keys() >= {one, several}:
        return None
    queries = part.requests.filter(kind=ANSWER.name).select("query_id").unique()
    own = runs.filter(pl.col("rank") <= depth).join(queries, on="query_id", how="semi")
    lists = ranked_lists(own, own["query_id"].unique(), [depth]).filter(pl.col("doc_ids").list.len() > 0)
    distinct = lists.select("query_id", "doc_ids").unique()
    return known[one].times(pairs(own).height), known[several].times(distinct.height)
