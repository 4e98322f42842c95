"""CELL_COMPARISONS: which runs differ by cell, and by the rates at which label and list disagree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from erag_ray.analyses.cell_shares import RATE_HEADS, RATES
from erag_ray.analyses.cells import CELL_NAMES, CELL_WORDS, CELLS, columns_of_cells, is_one_of, of_measure
from erag_ray.analyses.columns import DatasetColumns, NamedColumn
from erag_ray.analyses.comparisons import comparisons
from erag_ray.analyses.contract import LISTS, TESTED, Analysis, View, per_dataset
from erag_ray.analyses.paired import NOT_JUDGED, TEST_FIELDS, pair_name
from erag_ray.analyses.parts.model import Format, Table
from erag_ray.analyses.parts.shapes import field, listing, name_field, rows_of
from erag_ray.analyses.settings import Settings
from erag_ray.store.schemas import QUERIES, conform, table_schema

CELL_COMPARISONS = table_schema(
    "cell_comparisons",
    "dataset* reader* score* cell* run_a* run_b* depth* difference? low? high? p_value? low_adjusted? "
    "high_adjusted? p_adjusted? effect_size? detectable? num_needed? num_queries num_dropped reason?",
)


def cell_comparisons(datasets: Sequence[DatasetColumns], settings: Settings) -> pl.DataFrame:
    """CELL_COMPARISONS: every two runs by each cell and by each rate's event, tested as in `comparisons`.

    The events of a rate are compared over the questions that count for it in both runs.

    Args:
        datasets: `cell_columns`.
        settings: as of `comparisons`.
    """
    rows = comparisons([_indicators(dataset) for dataset in datasets], settings)
    is_rate = pl.col("measure").is_in(list(RATES)) & (pl.col("reason") == NOT_JUDGED)
    reason = pl.when(is_rate).then(pl.lit("no question counts for the rate in both runs"))
    named = rows.with_columns(cell="measure", reason=reason.otherwise("reason"))
    return pl.DataFrame(conform(named.select(CELL_COMPARISONS.columns.names), CELL_COMPARISONS))


def _indicators(dataset: DatasetColumns) -> DatasetColumns:
    """Columns that are 1 where a question is in a cell or has a rate's event, under the name of either as measure."""
    columns: list[NamedColumn] = []
    for name, column in of_measure(dataset, "cell"):
        columns += [({**name, "measure": cell}, is_one_of(column, [cell])) for cell in CELL_NAMES]
        for rate, (event, among) in RATES.items():
            counts = is_one_of(column, among) == 1
            columns.append(({**name, "measure": rate}, np.where(counts, is_one_of(column, event), np.nan)))
    return replace(dataset, columns=columns)


def show(view: View) -> Iterator[Table]:
    """Compare all pairs of runs by every cell and rate, at every depth; pairs without a difference are left out."""
    heads = CELL_WORDS | {name: column.name for name, column in RATE_HEADS.items()}
    differing = view.rows(CELL_COMPARISONS).filter(pl.col("effect_size").is_not_null())
    position = pl.col("cell").replace_strict(list(heads), range(len(heads)), return_dtype=pl.Int64)
    if differing.height:
        yield listing(
            rows_of(differing.sort(position, "depth", "run_a", "run_b")),
            (
                name_field("runs", pair_name),
                name_field("cell", lambda row: heads[row["cell"]]),
                name_field("documents", lambda row: str(row["depth"])),
                *TEST_FIELDS,
                field("questions", "num_queries", Format.COUNT),
            ),
            caption="Difference of the shares, paired over questions, with its interval; p by the exact sign test. "
            "Holm: both corrected over all pairs of runs by this cell at this depth. A rate is compared over the "
            "questions that count for it in both runs. Pairs that do not differ in any question are left out.",
            **view.about("cell-comparisons", "which runs differ by cell"),
        )


ANALYSIS = Analysis(
    schema=CELL_COMPARISONS,
    sources=(CELLS, QUERIES),
    settings=TESTED,
    make=per_dataset(cell_comparisons, columns_of_cells),
    show=show,
    group=LISTS,
)
