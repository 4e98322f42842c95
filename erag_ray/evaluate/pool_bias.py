"""How much what is said of runs depends on the pool: labels -> POOL_BIAS, one run left out at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from erag_ray.agreement import agree_over_runs
from erag_ray.evaluate.columns import DIGITS, table_of
from erag_ray.evaluate.common import Floats, Settings
from erag_ray.evaluate.lists import LabelGroup, label_groups, uses_ideal
from erag_ray.measures import Lists, compute_all
from erag_ray.schemas import POOL_BIAS

RUN = POOL_BIAS.columns.names.index("run_id")
TAU = "kendall_tau_b"
Row = tuple[object, ...]


def pool_bias(
    labels: pl.DataFrame,
    runs: pl.DataFrame,
    eligible: Mapping[str, pl.DataFrame],
    queries: pl.DataFrame,
    settings: Settings,
) -> pl.DataFrame:
    """POOL_BIAS: what measures with a pooled ideal lose when a run, and what only it has found, leaves the pool.

    After Zobel (SIGIR 1998): a pool is fair to a run that it does not hold if the others keep their order and values.
    ``tau`` compares the order of the other runs' means with and without it, ``shift`` is the largest change of a mean
    among them, ``judged`` the share of the run's own documents that have a label, over the annotator's queries. At the
    full depth and its cut-off.

    Args:
        labels: as for `per_query`, and so the others.
        runs: RUNS.
        eligible: annotator -> its `eligible_questions`.
        queries: QUERIES.
        settings: what to compute.
    """
    depth = max(settings.depths)
    deepest = replace(settings, depths=[depth], cutoffs=[])
    rows: list[Row] = []
    for group in label_groups(labels, runs, eligible, queries, deepest):
        rows += _of_group(group, depth, settings.threshold)
    rows.sort(key=lambda row: str(row[RUN]))
    return table_of(rows, POOL_BIAS)


def _of_group(group: LabelGroup, depth: int, threshold: float | None) -> Iterator[Row]:
    run_ids = sorted(group.judged.documents)
    if len(run_ids) < 2:
        return
    whole = _means(group, run_ids, depth, threshold)
    for left in run_ids:
        shares = _judged(group, left, depth)
        without = _means(group, [run_id for run_id in run_ids if run_id != left], depth, threshold)
        for (measure, dataset), others in without.items():
            means_of_run = whole[measure, dataset]
            pairs = np.array(
                [(means_of_run[run], mean) for run, mean in others.items() if run in means_of_run]
            )
            if len(pairs):
                num_runs, tau, shift, reason = _change(pairs)
                names = (dataset, *group.names.values(), left, depth, measure, depth)
                yield (*names, shares[dataset], num_runs, tau, shift, reason)


def _means(
    group: LabelGroup, run_ids: Sequence[str], depth: int, threshold: float | None
) -> dict[tuple[str, str], dict[str, float]]:
    """(measure, dataset) -> run -> mean, of what has one, with the pool of these runs."""
    pool, is_whole = group.judged.pool(run_ids, depth)
    measures = [name for name in group.measures if uses_ideal(name)]
    datasets = group.queries["dataset"].unique(maintain_order=True).to_list()
    means_of: dict[tuple[str, str], dict[str, float]] = {
        key: {} for key in itertools.product(measures, datasets)
    }
    of_dataset = {name: (group.queries["dataset"] == name).to_numpy() & is_whole for name in datasets}
    for run_id in run_ids:
        labels, lengths, _ = group.judged.matrix(run_id, depth)
        lists = Lists(labels=labels, lengths=lengths, ideal=pool)
        values = compute_all(measures, lists, [depth], threshold)
        for (measure, dataset), means in means_of.items():
            if of_dataset[dataset].any():
                mean = values[measure, depth][of_dataset[dataset]].mean()
                means[run_id] = round(float(mean), DIGITS)
    return means_of


def _change(pairs: Floats) -> tuple[int, float | None, float, str | None]:
    """Return number of runs, tau, shift and reason for [num_runs, 2]: means with and without the run left out."""
    agreement = agree_over_runs(pairs[:, 0], pairs[:, 1], TAU)
    shift = float(np.abs(pairs[:, 0] - pairs[:, 1]).max())
    # the order of a few runs is a fact about them, so the lack of a p-value is no reason
    return len(pairs), agreement.value, shift, None if agreement.value is not None else agreement.reason


def _judged(group: LabelGroup, run_id: str, depth: int) -> dict[str, float | None]:
    """Dataset -> the share of a run's documents with a row in LABELS whose label is not null."""
    judged, dataset_of = group.judged, group.queries["dataset"]
    documents = judged.documents[run_id].to_depth(depth)
    has_label = documents.places < len(judged.label_rows)
    is_known = ~np.isnan(judged.labels[documents.places[has_label]])
    shares = pl.DataFrame({"dataset": dataset_of[documents.rows[has_label]], "share": is_known})
    share_of = dict(shares.group_by("dataset").agg(pl.col("share").mean()).iter_rows())
    return {name: share_of.get(name) for name in dataset_of.unique()}
