"""UTILITY and PER_QUERY -> MEANS and CORRELATIONS, with bootstrap intervals over queries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.agreement import (
    MIN_FOR_P_VALUE,
    TIE_DIGITS,
    Agreement,
    agree,
    agree_over_runs,
    mean_intervals,
    permutation_p_values,
)
from erag_ray.evaluate.columns import (
    DatasetColumns,
    Draws,
    NamedColumn,
    by_run,
    measured_and_used,
    same_list,
    table_of,
)
from erag_ray.evaluate.common import Floats, Settings
from erag_ray.schemas import CORRELATIONS, MEANS

Row = tuple[object, ...]


def means(datasets: Sequence[DatasetColumns], settings: Settings) -> pl.DataFrame:
    """MEANS over queries of PER_QUERY and of UTILITY, with bootstrap intervals."""
    rows = []
    for own in datasets:
        if not own.columns:
            continue
        table = np.stack([column for _, column in own.columns], axis=1)
        intervals = mean_intervals(table, own.draws.weights, settings.confidence)
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
    rows: list[Row] = []
    for own in datasets:
        rows += _over_queries(own, settings)
        rows += _over_runs(own, settings)
    return table_of(rows, CORRELATIONS)


def _over_queries(own: DatasetColumns, settings: Settings) -> Iterator[Row]:
    measured, ends = measured_and_used(own.of_runs)
    pairs = [(x, y) for x, y in itertools.product(measured, ends) if same_list(x[0], y[0])]
    p_values = _p_values(pairs, own.draws, settings)
    for place, (x, y) in enumerate(pairs):
        for statistic in settings.statistics:
            row = _correlation_row(x, y, statistic, p_values[place, statistic], own.draws, settings)
            yield (own.dataset, *row)


def _p_values(
    pairs: Sequence[tuple[NamedColumn, NamedColumn]], draws: Draws, settings: Settings
) -> dict[tuple[int, str], float]:
    """(place, statistic) -> p, of all measures with the same utility over the same queries at once."""
    families: dict[tuple[int, bytes], list[int]] = {}
    for place, ((_, x), (_, y)) in enumerate(pairs):
        families.setdefault((id(y), _kept(x, y).tobytes()), []).append(place)
    found: dict[tuple[int, str], float] = {}
    for places in families.values():
        (_, x), (_, y) = pairs[places[0]]
        kept = _kept(x, y)
        columns = np.stack([pairs[place][0][1][kept] for place in places], axis=1)
        for statistic in settings.statistics:
            some = permutation_p_values(columns, y[kept], statistic, draws.among(kept).orders)
            found |= {(place, statistic): float(p) for place, p in zip(places, some, strict=True)}
    return found


def _kept(x: Floats, y: Floats) -> npt.NDArray[np.bool_]:
    return ~(np.isnan(x) | np.isnan(y))


def _correlation_row(
    measure: NamedColumn,
    utility: NamedColumn,
    statistic: str,
    p_value: float,
    draws: Draws,
    settings: Settings,
) -> Row:
    (name, x), (target, y) = measure, utility
    kept = _kept(x, y)
    found = agree(x[kept], y[kept], statistic, draws.among(kept).weights, settings.confidence)
    if found.value is not None and found.num_queries >= MIN_FOR_P_VALUE:
        found = replace(found, p_value=p_value)
    first = (target["reader"], target["score"], name["annotator"], "queries", name["run_id"])
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


def _over_runs(columns: DatasetColumns, settings: Settings) -> Iterator[Row]:
    measured, ends = measured_and_used(columns.of_runs)
    for (name, own), (target, used) in itertools.product(by_run(measured), by_run(ends)):
        if name["reader"] not in ("", target["reader"]) or name["depth"] != target["depth"]:
            continue
        x, y = _common(own, used)
        first = (columns.dataset, target["reader"], target["score"], name["annotator"], "runs", "")
        num_all = len(next(iter(own.values())))
        used_means = _mean_of_each(y)
        num_runs = x.shape[0] if x.size else 0
        counts = (x.shape[1], num_runs, num_all - x.shape[1], _num_varied(used_means))
        for statistic in settings.statistics:
            found = agree_over_runs(
                _mean_of_each(x), used_means, statistic, settings.num_permutations, settings.seed
            )
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
    # 1/3 and 1/3 are less than 2/3 and 0 once they are rounded
    return np.round(rows.mean(axis=1), TIE_DIGITS) if rows.size else np.empty(0)
