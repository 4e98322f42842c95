"""UTILITY and LIST_VALUES as columns over the queries of a dataset: what means, correlations and comparisons take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.agreement import resample_weights
from erag_ray.evaluate.common import ANY, END_TO_END, Floats, Settings
from erag_ray.schemas import TableSchema, conform

DIGITS = 12
"""Values are compared to this many digits: sums of the same labels in another order must tie."""
COLUMN = ["reader", "score", "annotator", "run_id", "depth", "measure", "cutoff", "ideal"]
NamedColumn = tuple[Mapping[str, object], Floats]


def with_utility(values: pl.DataFrame, used: pl.DataFrame) -> pl.DataFrame:
    """LIST_VALUES and UTILITY as columns of one kind.

    A row of utility has the annotator `END_TO_END`, the score's name as its measure and its depth as its cut-off.
    """
    as_values = used.with_columns(
        annotator=pl.lit(END_TO_END), measure=pl.col("score"), cutoff=pl.col("depth"), ideal=pl.lit(ANY)
    )
    return pl.concat(
        [values.select("query_id", *COLUMN, "value"), as_values.select("query_id", *COLUMN, "value")]
    )


def by_dataset(
    values: pl.DataFrame, queries: pl.DataFrame, settings: Settings
) -> Iterator[tuple[str, list[NamedColumn], npt.NDArray[np.int16]]]:
    """Each dataset's columns, [num_queries] with NaN where not judged or not applicable, and their weights."""
    for dataset in queries["dataset"].unique().sort():
        ids = queries.filter(pl.col("dataset") == dataset).select("query_id")
        weights = resample_weights(ids.height, settings.num_resamples, settings.seed)
        own = values.join(ids.with_row_index("row"), on="query_id", maintain_order="left")
        yield dataset, list(_columns(own, ids.height)), weights


def _columns(values: pl.DataFrame, num_queries: int) -> Iterator[NamedColumn]:
    for name, part in values.partition_by(COLUMN, as_dict=True, maintain_order=True).items():
        column = np.full(num_queries, np.nan)
        column[part["row"].to_numpy()] = part["value"].to_numpy()
        yield dict(zip(COLUMN, name, strict=True)), np.round(column, DIGITS)


def measured_and_used(columns: Sequence[NamedColumn]) -> tuple[list[NamedColumn], list[NamedColumn]]:
    """The measures of labels, and the utilities."""
    measured = [item for item in columns if item[0]["annotator"] != END_TO_END]
    return measured, [item for item in columns if item[0]["annotator"] == END_TO_END]


def by_run(columns: Sequence[NamedColumn]) -> list[tuple[Mapping[str, object], dict[str, Floats]]]:
    """The same column of each run: its name, and run_id -> values."""
    found: dict[tuple[object, ...], tuple[Mapping[str, object], dict[str, Floats]]] = {}
    for name, column in columns:
        key = tuple(value for part, value in name.items() if part != "run_id")
        found.setdefault(key, (name, {}))[1][str(name["run_id"])] = column
    return list(found.values())


def same_list(name: Mapping[str, object], target: Mapping[str, object]) -> bool:
    """Whether a measure and a utility are of one list, by one reader or without any."""
    own_reader = name["reader"] in ("", target["reader"])
    return own_reader and name["run_id"] == target["run_id"] and name["depth"] == target["depth"]


def table_of(rows: Sequence[tuple[object, ...]], schema: TableSchema) -> pl.DataFrame:
    """Rows in the order of a schema's columns, as its table.

    Raises:
        ValueError: they do not conform to it.
    """
    table = pl.DataFrame(rows, schema=pl.DataFrame(schema.empty()).schema, orient="row")
    conform(table, schema)
    return table
