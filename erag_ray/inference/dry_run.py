"""Dry run: estimate requests, time and cost of a job from samples, without changing its results."""

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
"""Number of timed samples of each group. More samples would be smaller, and small batches cost more per request."""
CONFIDENCE = 0.95
HOUR = 3600.0


class Seconds(NamedTuple):
    """Reader-seconds for requests, with a confidence interval.

    Attributes:
        mean: over samples.
        low: lower end of its interval; 0 for a single sample.
        high: upper end; infinity for a single sample.
        is_small: the samples were smaller than the job's batches, so that all three tend to be too high.
    """

    mean: float
    low: float
    high: float
    is_small: bool

    def times(self, count: int) -> Seconds:
        """Return the seconds of ``count`` such requests."""
        return Seconds(self.mean * count, self.low * count, self.high * count, self.is_small)

    @property
    def in_hours(self) -> str:
        """A text in reader-hours."""
        return f"{self.mean / HOUR:.3g} reader-hours [{self.low / HOUR:.3g}, {self.high / HOUR:.3g}]"


class Group(NamedTuple):
    """Requests of similar time: of one model and kind, with at most ``num_docs`` documents."""

    model_plan: ModelPlan
    kind: str
    num_docs: int

    @property
    def name(self) -> str:
        lists = {0: "no passages", 1: "pairs"}.get(self.num_docs, f"lists of {self.num_docs}")
        return f"{self.kind}, {lists}"

    @property
    def key(self) -> tuple[str, str, int]:
        return self.model_plan.id, self.kind, self.num_docs


RequestSeconds = dict[tuple[str, str, int], Seconds]
"""(model, kind, number of documents) -> seconds of one request."""


def estimate_cost(config: JobConfig, inputs: Inputs, plan: StagePlan) -> Iterator[str]:
    """Estimate time and cost of a stage's pending requests by running a sample of them; yield lines for people.

    Args:
        config: from `dry_run_config`; its folder is deleted at the end.
        inputs: of the job.
        plan: of the stage.
    """
    groups = [list(_groups(model_plan, config.depths)) for model_plan in plan.plans if model_plan.new.height]
    if config.calibrate and groups:
        yield from _calibrated(config, inputs, plan, groups)
    Folder(config.out).delete_folder()
    yield "a dry run: no other requests were run, and no results were written"


def _groups(model_plan: ModelPlan, depths: Sequence[int]) -> Iterator[Group]:
    """Yield a model's requests by kind and number of documents, fewest first."""
    length, bounds = pl.col("doc_rows").list.len(), sorted({0, 1, *depths})
    for kind in model_plan.new["kind"].unique().sort():
        for below, most in itertools.pairwise([-1, *bounds]):
            # there may be more gold passages than the largest depth
            above = pl.lit(most == bounds[-1]) & (length > below)
            within = above | length.is_between(below, most, closed="right")
            requests = model_plan.new.filter(pl.col("kind") == kind, within)
            if requests.height:
                yield Group(dataclasses.replace(model_plan, new=requests), kind, most)


def _calibrated(
    config: JobConfig, inputs: Inputs, plan: StagePlan, groups: Sequence[Sequence[Group]]
) -> Iterator[str]:
    request_seconds: RequestSeconds = {}
    parts: list[tuple[Seconds, int]] = []
    count = max(1, config.calibrate // sum(map(len, groups)))
    with ray_session(config.ray_address):
        for model_groups in groups:
            pool = plan_pool(config, model_groups[0].model_plan.resources)
            yield from _measured(config, model_groups, count, pool, request_seconds)
            seconds = [
                request_seconds[group.key].times(group.model_plan.new.height) for group in model_groups
            ]
            parts.append((_sum(seconds), pool.size))
    yield _costs(parts, config.price_per_hour)
    yield from _comparison(config, inputs, plan, request_seconds)


def _measured(
    config: JobConfig, groups: Sequence[Group], count: int, pool: Pool, request_seconds: RequestSeconds
) -> Iterator[str]:
    """Time one model on ``count`` requests of each group; fill ``request_seconds`` and yield a line for each group."""
    model_plan, folder = (
        groups[0].model_plan,
        Folder("/".join([config.out.rstrip("/"), "pending", groups[0].model_plan.id])),
    )
    rounds = itertools.zip_longest(*(_samples(group, count, pool.num_together) for group in groups))
    # alternate between groups, so that other load on the machine slows all alike
    order = [
        (group, rows)
        for samples in rounds
        for group, rows in zip(groups, samples, strict=True)
        if rows is not None
    ]
    for number, (_, rows) in enumerate(order):
        folder.write_parquet(model_plan.make_requests(rows), sample_name(number))
    work = dataclasses.replace(work_of(model_plan, folder.root), num_requests=count)
    with stage_progress(f"timing {model_plan.id}", show=config.progress):
        times = read_samples(work, len(order), config, new_job_id(), pool)
    for group in groups:
        group_times = without_first(
            [sample for sample, (sampled, _) in zip(times, order, strict=True) if sampled is group]
        )
        request_seconds[group.key] = _per_request(group_times)
        yield _line(group, group_times, request_seconds[group.key])
    memory = max(sample.peak_memory_bytes for sample in times)
    yield f"{model_plan.id}: peak memory of a reader {memory / 2**30:.2f} GiB"


def _samples(group: Group, count: int, num_workers: int) -> list[pl.DataFrame]:
    """Return samples, ``count`` requests in all, each spread evenly over the group.

    The first sample of each worker is a warm-up; with too few samples for one more, they are repeated.
    """
    chosen = spread(group.model_plan.new, count)
    num_samples = min(NUM_SAMPLES + num_workers, chosen.height)
    samples = [chosen.gather_every(num_samples, first) for first in range(num_samples)]
    return samples * math.ceil((num_workers + 1) / num_samples)


def _per_request(times: Sequence[Times]) -> Seconds:
    """Return the mean over samples with Student's t interval."""
    each = [sample.seconds / sample.num_responses for sample in times]
    mean, count = statistics.fmean(each), len(each)
    is_small = max(sample.num_responses for sample in times) < times[0].batch_rows
    if count == 1:
        return Seconds(mean, 0.0, math.inf, is_small)
    quantile = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, count - 1))
    margin = quantile * statistics.stdev(each) / math.sqrt(count)
    return Seconds(mean, max(0.0, mean - margin), mean + margin, is_small)


def _line(group: Group, times: Sequence[Times], seconds: Seconds) -> str:
    num_responses, height = sum(sample.num_responses for sample in times), group.model_plan.new.height
    return (
        f"{group.model_plan.id}: {group.name}: {seconds.mean:.3g} reader-seconds each [{seconds.low:.3g}, "
        f"{seconds.high:.3g}] by {len(times)} samples, {num_responses:,} requests in all (one batch of the job has "
        f"up to {times[0].batch_rows:,}); all {height:,} would take {seconds.times(height).in_hours}"
    )


def _sum(parts: Sequence[Seconds]) -> Seconds:
    mean, low, high = (math.fsum(column) for column in list(zip(*parts, strict=True))[:3])
    return Seconds(mean, low, high, any(one.is_small for one in parts))


def _costs(parts: Sequence[tuple[Seconds, int]], price: float | None) -> str:
    """Return the costs of all models, which run one after the other: reader-seconds and number of readers of each."""
    total = _sum([seconds for seconds, _ in parts])
    cost = "" if price is None else f", {total.mean / HOUR * price:,.2f} at {price:g} an hour"
    hours = math.fsum(seconds.mean / HOUR / num_readers for seconds, num_readers in parts)
    sizes = ", then ".join(f"{num_readers}" for num_readers in dict.fromkeys(size for _, size in parts))
    return (
        f"in all {total.in_hours}{cost}; {hours:.3g} hours with {sizes} readers. Each kind was timed "
        "separately; the job takes less where its batches are larger or kinds share work (fid encodes a passage once)"
    )


def _comparison(
    config: JobConfig, inputs: Inputs, plan: StagePlan, request_seconds: RequestSeconds
) -> Iterator[str]:
    """Compare eRAG and end-to-end evaluation at each depth, both with an empty cache."""
    for depth in config.depths:
        plans = [model_plan for model_plan in plan.plans if ANSWER.name in model_plan.requests["kind"]]
        parts = [_both(inputs.runs, model_plan, depth, request_seconds) for model_plan in plans]
        if None in parts or not parts:
            yield f"depth {depth}: eRAG against end-to-end: unknown, since a group has no pending requests to time"
            continue
        single_document, end_to_end = map(_sum, zip(*filter(None, parts), strict=True))
        yield (
            f"depth {depth}, each with an empty cache: eRAG {single_document.in_hours}, end-to-end "
            f"{end_to_end.in_hours}: {_verdict(single_document, end_to_end)}"
        )


def _verdict(single_document: Seconds, end_to_end: Seconds) -> str:
    """Compare the intervals. Small batches slow down eRAG's short requests, so they cannot show that it costs more."""
    if single_document.high < end_to_end.low:
        return "eRAG costs less"
    if single_document.low > end_to_end.high and not single_document.is_small:
        return "eRAG costs more"
    return "these samples do not show which costs less. Calibrate with more"


def _both(
    runs: pl.DataFrame, model_plan: ModelPlan, depth: int, request_seconds: RequestSeconds
) -> tuple[Seconds, Seconds] | None:
    """Return the seconds of all pairs, and of all lists, to a depth; None if one of them was not measured."""
    single, several = (model_plan.id, ANSWER.name, 1), (model_plan.id, ANSWER.name, depth)
    if not request_seconds.keys() >= {single, several}:
        return None
    queries = model_plan.requests.filter(kind=ANSWER.name).select("query_id").unique()
    cut = runs.filter(pl.col("rank") <= depth).join(queries, on="query_id", how="semi")
    lists = ranked_lists(cut, cut["query_id"].unique(), [depth]).filter(pl.col("doc_ids").list.len() > 0)
    distinct = lists.select("query_id", "doc_ids").unique()
    return request_seconds[single].times(pairs(cut).height), request_seconds[several].times(distinct.height)
