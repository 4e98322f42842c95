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
    """MEANS over queries of PER_QUERY and of UTILITY, with bootstrap intervals; ``num_queries`` are those judged."""
    rows = []
    for dataset in datasets:
        if not dataset.columns:
            continue
        table = np.stack([column for _, column in dataset.estimated], axis=1)
        intervals = mean_intervals(table, dataset.draws.weights, settings.confidence)
        for (name, column), interval in zip(dataset.columns, intervals, strict=True):
            counted = int((~np.isnan(column)).sum())
            rows.append((dataset.dataset, *name.values(), *interval, counted, len(column) - counted))
    return table_of(rows, MEANS)


def correlations(datasets: Sequence[DatasetColumns], settings: Settings) -> pl.DataFrame:
    """CORRELATIONS of every measure with the utility at the same depth: over queries in a run, and over runs.

    Over queries as in the paper (Salemi & Zamani, SIGIR 2024, section 3): one run, its queries. Over runs: the
    runs' means over the queries that have both values in every run, so that all means are of the same queries.
    Utility is taken for the reader that made the labels, or, for labels without a reader, for each.
    ``num_dropped`` counts queries; ``num_runs`` leaves out runs in which nothing was judged; ``num_varied`` counts the
    queries (over runs: the runs) whose measure, or whose utility if these are fewer, is not the most frequent one: the
    correlation depends on them.
    """
    rows: list[Row] = []
    for dataset in datasets:
        rows += _over_queries(dataset, settings)
        rows += _over_runs(dataset, settings)
    return table_of(rows, CORRELATIONS)


def _over_queries(dataset: DatasetColumns, settings: Settings) -> Iterator[Row]:
    measured, ends = measured_and_used(dataset.of_runs)
    pairs = [(x, y) for x, y in itertools.product(measured, ends) if same_list(x[0], y[0])]
    p_values = _p_values(pairs, dataset.draws, settings)
    for index, (x, y) in enumerate(pairs):
        for statistic in settings.statistics:
            row = _correlation_row(x, y, statistic, p_values[index, statistic], dataset.draws, settings)
            yield (dataset.dataset, *row)


def _p_values(
    pairs: Sequence[tuple[NamedColumn, NamedColumn]], draws: Draws, settings: Settings
) -> dict[tuple[int, str], float]:
    """Return p-values by (index of the pair, statistic): measures with the same utility and queries at once."""
    families: dict[tuple[int, bytes], list[int]] = {}
    for index, ((_, x), (_, y)) in enumerate(pairs):
        families.setdefault((id(y), _judged_in_both(x, y).tobytes()), []).append(index)
    p_values: dict[tuple[int, str], float] = {}
    for indices in families.values():
        (_, x), (_, y) = pairs[indices[0]]
        is_judged = _judged_in_both(x, y)
        columns = np.stack([pairs[index][0][1][is_judged] for index in indices], axis=1)
        for statistic in settings.statistics:
            values = permutation_p_values(columns, y[is_judged], statistic, draws.among(is_judged).orders)
            p_values |= {(index, statistic): float(p) for index, p in zip(indices, values, strict=True)}
    return p_values


def _judged_in_both(x: Floats, y: Floats) -> npt.NDArray[np.bool_]:
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
    is_judged = _judged_in_both(x, y)
    agreement = agree(
        x[is_judged], y[is_judged], statistic, draws.among(is_judged).weights, settings.confidence
    )
    if agreement.value is not None and agreement.num_queries >= MIN_FOR_P_VALUE:
        agreement = replace(agreement, p_value=p_value)
    first = (target["reader"], target["score"], name["annotator"], "queries", name["run_id"])
    counts = (
        agreement.num_queries,
        1,
        len(x) - agreement.num_queries,
        _num_varied(x[is_judged], y[is_judged]),
    )
    return (*first, *_measured(name), statistic, *_statistic_columns(agreement), *counts, agreement.reason)


def _num_varied(*columns: Floats) -> int:
    """Return the number of values that differ from the most frequent one, in the column where it is smallest."""
    most = (np.unique(column, return_counts=True)[1].max(initial=0) for column in columns)
    return len(columns[0]) - int(max(most))


def _measured(name: Mapping[str, object]) -> tuple[object, ...]:
    return (name["depth"], name["measure"], name["cutoff"], name["ideal"])


def _statistic_columns(agreement: Agreement) -> tuple[float | None, ...]:
    return (agreement.value, agreement.low, agreement.high, agreement.ceiling, agreement.p_value)


def _over_runs(columns: DatasetColumns, settings: Settings) -> Iterator[Row]:
    measured, ends = measured_and_used(columns.of_runs)
    for (name, measured_runs), (target, used) in itertools.product(by_run(measured), by_run(ends)):
        if name["reader"] not in ("", target["reader"]) or name["depth"] != target["depth"]:
            continue
        x, y = _common(measured_runs, used)
        first = (columns.dataset, target["reader"], target["score"], name["annotator"], "runs", "")
        num_all = len(next(iter(measured_runs.values())))
        means_of_runs = _mean_of_each(x), _mean_of_each(y)
        num_runs = x.shape[0] if x.size else 0
        counts = (x.shape[1], num_runs, num_all - x.shape[1], _num_varied(*means_of_runs))
        for statistic in settings.statistics:
            agreement = agree_over_runs(*means_of_runs, statistic, settings.num_permutations, settings.seed)
            yield (
                *first,
                *_measured(name),
                statistic,
                *_statistic_columns(agreement),
                *counts,
                agreement.reason,
            )


def _common(measured: Mapping[str, Floats], used: Mapping[str, Floats]) -> tuple[Floats, Floats]:
    """Measure and utility, each [num_runs, num_queries]: of runs with any value, the queries judged in all."""
    runs = [run for run in measured if run in used and not np.isnan(measured[run] + used[run]).all()]
    if not runs:
        return np.empty((0, 0)), np.empty((0, 0))
    x, y = np.array([measured[run] for run in runs]), np.array([used[run] for run in runs])
    is_judged = ~np.isnan(x + y).any(axis=0)
    return x[:, is_judged], y[:, is_judged]


def _mean_of_each(rows: Floats) -> Floats:
    # 1/3 and 1/3 are less than 2/3 and 0 once they are rounded
    return np.round(rows.mean(axis=1), TIE_DIGITS) if rows.size else np.empty(0)
