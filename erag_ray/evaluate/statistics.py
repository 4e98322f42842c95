"""UTILITY and LIST_VALUES -> MEANS and CORRELATIONS, with bootstrap intervals over queries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.agreement import Agreement, agree, agree_over_runs, mean_interval, resample_weights
from erag_ray.evaluate.common import ANY, END_TO_END, REFERENCES, Floats, Settings
from erag_ray.schemas import CORRELATIONS, MEANS, TableSchema, conform

DIGITS = 12
"""Values are compared to this many digits: sums of the same labels in another order must tie."""
COLUMN = ["reader", "score", "annotator", "run_id", "depth", "measure", "cutoff", "ideal"]
NamedColumn = tuple[Mapping[str, object], Floats]


def means(
    values: pl.DataFrame, used: pl.DataFrame, queries: pl.DataFrame, settings: Settings
) -> pl.DataFrame:
    """MEANS over queries of LIST_VALUES and of UTILITY, with bootstrap intervals.

    A row of utility has the annotator `END_TO_END`, the score's name as its measure and its depth as its cut-off.
    """
    rows = []
    for dataset, columns, weights in _by_dataset(_with_utility(values, used), queries, settings):
        for name, column in columns.items():
            mean, low, high = mean_interval(*_judged(column, weights), settings.confidence)
            counted = int((~np.isnan(column)).sum())
            dropped = len(column) - counted
            rows.append((dataset, *name, mean, low, high, counted, dropped))
    table = pl.DataFrame(rows, schema=_polars_schema(MEANS), orient="row")
    conform(table, MEANS)
    return table


def _by_dataset(
    values: pl.DataFrame, queries: pl.DataFrame, settings: Settings
) -> Iterator[tuple[str, dict[tuple[object, ...], Floats], npt.NDArray[np.int16]]]:
    """Each dataset's columns, [num_queries] with NaN where not judged or not applicable, and their weights."""
    for dataset in queries["dataset"].unique().sort():
        ids = queries.filter(pl.col("dataset") == dataset).select("query_id")
        weights = resample_weights(ids.height, settings.num_resamples, settings.seed)
        own = values.join(ids.with_row_index("row"), on="query_id", maintain_order="left")
        yield dataset, dict(_columns(own, ids.height)), weights


def _columns(values: pl.DataFrame, num_queries: int) -> Iterator[tuple[tuple[object, ...], Floats]]:
    for name, part in values.partition_by(COLUMN, as_dict=True, maintain_order=True).items():
        column = np.full(num_queries, np.nan)
        column[part["row"].to_numpy()] = part["value"].to_numpy()
        yield name, np.round(column, DIGITS)


def _judged(column: Floats, weights: npt.NDArray[np.int16]) -> tuple[Floats, npt.NDArray[np.int16]]:
    kept = ~np.isnan(column)
    return column[kept], weights[:, kept]


def correlations(
    values: pl.DataFrame, used: pl.DataFrame, queries: pl.DataFrame, settings: Settings
) -> pl.DataFrame:
    """CORRELATIONS of every measure with the utility at the same depth: over queries in a run, and over runs.

    Over queries as in the paper (Salemi & Zamani, SIGIR 2024, section 3): one run, its queries. Over runs: the
    runs' means over the queries that have both values in every run, so that all means are of the same queries.
    Utility is taken for the reader that made the labels, or, for labels without a reader, for each.
    ``num_dropped`` counts queries; ``num_runs`` leaves out runs in which nothing was judged.
    """
    targets = used.filter(~pl.col("run_id").is_in(REFERENCES))
    every = _with_utility(values, targets)
    rows: list[tuple[object, ...]] = []
    for dataset, columns, weights in _by_dataset(every, queries, settings):
        split = [(dict(zip(COLUMN, name, strict=True)), column) for name, column in columns.items()]
        ends = [item for item in split if item[0]["annotator"] == END_TO_END]
        measured = [item for item in split if item[0]["annotator"] != END_TO_END]
        rows += _over_queries(dataset, measured, ends, weights, settings)
        rows += _over_runs(dataset, measured, ends, settings)
    table = pl.DataFrame(rows, schema=_polars_schema(CORRELATIONS), orient="row")
    conform(table, CORRELATIONS)
    return table


def _with_utility(values: pl.DataFrame, used: pl.DataFrame) -> pl.DataFrame:
    """LIST_VALUES and UTILITY as columns of one kind."""
    as_values = used.with_columns(
        annotator=pl.lit(END_TO_END), measure=pl.col("score"), cutoff=pl.col("depth"), ideal=pl.lit(ANY)
    )
    return pl.concat(
        [values.select("query_id", *COLUMN, "value"), as_values.select("query_id", *COLUMN, "value")]
    )


def _over_queries(
    dataset: str,
    measured: Sequence[NamedColumn],
    ends: Sequence[NamedColumn],
    weights: npt.NDArray[np.int16],
    settings: Settings,
) -> Iterator[tuple[object, ...]]:
    for (name, x), (target, y) in itertools.product(measured, ends):
        if _same_list(name, target):
            for statistic in settings.statistics:
                yield _correlation_row(dataset, name, target, statistic, x, y, weights, settings)


def _same_list(name: Mapping[str, object], target: Mapping[str, object]) -> bool:
    own_reader = name["reader"] in ("", target["reader"])
    return own_reader and name["run_id"] == target["run_id"] and name["depth"] == target["depth"]


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
    counts = (found.num_queries, 1, len(x) - found.num_queries)
    return (*first, *_measured(name), statistic, *_statistic_columns(found), *counts, found.reason)


def _measured(name: Mapping[str, object]) -> tuple[object, ...]:
    return (name["depth"], name["measure"], name["cutoff"], name["ideal"])


def _statistic_columns(found: Agreement) -> tuple[float | None, ...]:
    return (found.value, found.low, found.high, found.ceiling, found.p_value)


def _over_runs(
    dataset: str, measured: Sequence[NamedColumn], ends: Sequence[NamedColumn], settings: Settings
) -> Iterator[tuple[object, ...]]:
    for (name, own), (target, used) in itertools.product(_by_run(measured), _by_run(ends)):
        if name["reader"] not in ("", target["reader"]) or name["depth"] != target["depth"]:
            continue
        x, y = _common(own, used)
        first = (dataset, target["reader"], target["score"], name["annotator"], "runs", "")
        num_all = len(next(iter(own.values())))
        counts = (x.shape[1], x.shape[0] if x.size else 0, num_all - x.shape[1])
        for statistic in settings.statistics:
            found = agree_over_runs(_mean_of_each(x), _mean_of_each(y), statistic)
            yield (*first, *_measured(name), statistic, *_statistic_columns(found), *counts, found.reason)


def _by_run(columns: Sequence[NamedColumn]) -> list[tuple[Mapping[str, object], dict[object, Floats]]]:
    """The same column of each run: its name, and run_id -> values."""
    found: dict[tuple[object, ...], tuple[Mapping[str, object], dict[object, Floats]]] = {}
    for name, column in columns:
        key = tuple(value for part, value in name.items() if part != "run_id")
        found.setdefault(key, (name, {}))[1][name["run_id"]] = column
    return list(found.values())


def _common(own: Mapping[object, Floats], used: Mapping[object, Floats]) -> tuple[Floats, Floats]:
    """Measure and utility, each [num_runs, num_queries]: of runs with any value, the queries judged in all."""
    runs = [run for run in own if run in used and not np.isnan(own[run] + used[run]).all()]
    if not runs:
        return np.empty((0, 0)), np.empty((0, 0))
    x, y = np.array([own[run] for run in runs]), np.array([used[run] for run in runs])
    kept = ~np.isnan(x + y).any(axis=0)
    return x[:, kept], y[:, kept]


def _mean_of_each(rows: Floats) -> Floats:
    return np.round(rows.mean(axis=1), DIGITS) if rows.size else np.empty(0)


def _polars_schema(schema: TableSchema) -> pl.Schema:
    return pl.DataFrame(schema.empty()).schema
