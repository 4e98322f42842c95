"""UTILITY and LIST_VALUES -> MEANS and CORRELATIONS, with bootstrap intervals over queries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.agreement import Agreement, agree, agree_over_runs, mean_intervals
from erag_ray.evaluate.columns import (
    DIGITS,
    DatasetColumns,
    NamedColumn,
    by_run,
    measured_and_used,
    same_list,
    table_of,
)
from erag_ray.evaluate.common import Floats, Settings
from erag_ray.schemas import CORRELATIONS, MEANS


def means(datasets: Sequence[DatasetColumns], settings: Settings) -> pl.DataFrame:
    """MEANS over queries of LIST_VALUES and of UTILITY, with bootstrap intervals."""
    rows = []
    for own in datasets:
        if not own.columns:
            continue
        table = np.stack([column for _, column in own.columns], axis=1)
        intervals = mean_intervals(table, own.weights, settings.confidence)
        for (name, column), interval in zip(own.columns, intervals, strict=True):
            counted = int((~np.isnan(column)).sum())
            rows.append((own.dataset, *name.values(), *interval, counted, len(column) - counted))
    return table_of(rows, MEANS)


def correlations(datasets: Sequence[DatasetColumns], settings: Settings) -> pl.DataFrame:
    """CORRELATIONS of every measure with the utility at the same depth: over queries in a run, and over runs.

    Over queries as in the paper (Salemi & Zamani, SIGIR 2024, section 3): one run, its queries. Over runs: the
    runs' means over the queries that have both values in every run, so that all means are of the same queries.
    Utility is taken for the reader that made the labels, or, for labels without a reader, for each.
    ``num_dropped`` counts queries; ``num_runs`` leaves out runs in which nothing was judged; ``num_varied`` counts the
    queries (over runs: the runs) whose utility is not the most frequent one: on them the correlation hangs.
    """
    rows: list[tuple[object, ...]] = []
    for own in datasets:
        measured, ends = measured_and_used(own.of_runs)
        rows += _over_queries(own.dataset, measured, ends, own.weights, settings)
        rows += _over_runs(own.dataset, measured, ends, settings)
    return table_of(rows, CORRELATIONS)


def _over_queries(
    dataset: str,
    measured: Sequence[NamedColumn],
    ends: Sequence[NamedColumn],
    weights: npt.NDArray[np.int16],
    settings: Settings,
) -> Iterator[tuple[object, ...]]:
    for (name, x), (target, y) in itertools.product(measured, ends):
        if same_list(name, target):
            for statistic in settings.statistics:
                yield _correlation_row(dataset, name, target, statistic, x, y, weights, settings)


def _correlation_row(
    dataset: str,
    name: Mapping[str, object],
    target: Mapping[str, object],
    statistic: str,
    x: Floats,
    y: Floats,
    weights: npt.NDArray[np.int16],
    settings: Settings,
) -> tuple[object, ...]:
    kept = ~(np.isnan(x) | np.isnan(y))
    found = agree(x[kept], y[kept], statistic, weights[:, kept], settings.confidence)
    first = (dataset, target["reader"], target["score"], name["annotator"], "queries", name["run_id"])
    counts = (found.num_queries, 1, len(x) - found.num_queries, _num_varied(y[kept]))
    return (*first, *_measured(name), statistic, *_statistic_columns(found), *counts, found.reason)


def _num_varied(column: Floats) -> int:
    """How many values are not the most frequent one."""
    _, counts = np.unique(column, return_counts=True)
    return len(column) - int(counts.max(initial=0))


def _measured(name: Mapping[str, object]) -> tuple[object, ...]:
    return (name["depth"], name["measure"], name["cutoff"], name["ideal"])


def _statistic_columns(found: Agreement) -> tuple[float | None, ...]:
    return (found.value, found.low, found.high, found.ceiling, found.p_value)


def _over_runs(
    dataset: str, measured: Sequence[NamedColumn], ends: Sequence[NamedColumn], settings: Settings
) -> Iterator[tuple[object, ...]]:
    for (name, own), (target, used) in itertools.product(by_run(measured), by_run(ends)):
        if name["reader"] not in ("", target["reader"]) or name["depth"] != target["depth"]:
            continue
        x, y = _common(own, used)
        first = (dataset, target["reader"], target["score"], name["annotator"], "runs", "")
        num_all = len(next(iter(own.values())))
        used_means = _mean_of_each(y)
        num_runs = x.shape[0] if x.size else 0
        counts = (x.shape[1], num_runs, num_all - x.shape[1], _num_varied(used_means))
        for statistic in settings.statistics:
            found = agree_over_runs(_mean_of_each(x), used_means, statistic)
            yield (*first, *_measured(name), statistic, *_statistic_columns(found), *counts, found.reason)


def _common(own: Mapping[str, Floats], used: Mapping[str, Floats]) -> tuple[Floats, Floats]:
    """Measure and utility, each [num_runs, num_queries]: of runs with any value, the queries judged in all."""
    runs = [run for run in own if run in used and not np.isnan(own[run] + used[run]).all()]
    if not runs:
        return np.empty((0, 0)), np.empty((0, 0))
    x, y = np.array([own[run] for run in runs]), np.array([used[run] for run in runs])
    kept = ~np.isnan(x + y).any(axis=0)
    return x[:, kept], y[:, kept]


def _mean_of_each(rows: Floats) -> Floats:
    return np.round(rows.mean(axis=1), DIGITS) if rows.size else np.empty(0)
