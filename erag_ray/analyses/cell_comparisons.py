"""Pairs of runs by cell: CELL_COMPARISONS, which differ; COMPLEMENTS, how much fusing two can gain."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from erag_ray.analyses.cell_shares import RATE_HEADS
from erag_ray.analyses.cells import CELL_WORDS, CELLS, RATES, columns_of_cells, events_of, of_measure
from erag_ray.analyses.columns import DatasetColumns, by_run, table_of
from erag_ray.analyses.comparisons import comparisons
from erag_ray.analyses.contract import LISTS, TESTED, Analysis, View, per_dataset
from erag_ray.analyses.paired import FIGURE_COLUMNS, NOT_JUDGED, TEST_FIELDS, pair_name
from erag_ray.analyses.parts.model import Column, Format, Table
from erag_ray.analyses.parts.shapes import crosstab, estimate, field, listing, name_field, names, rows_of
from erag_ray.analyses.settings import Floats, Settings
from erag_ray.measures.agreement import Clusters, share_of
from erag_ray.store.schemas import QUERIES, conform, table_schema

CELL_COMPARISONS = table_schema(
    "cell_comparisons", f"dataset* reader* score* cell* run_a* run_b* depth* {FIGURE_COLUMNS}"
)


def cell_comparisons(datasets: Sequence[DatasetColumns], settings: Settings) -> pl.DataFrame:
    """CELL_COMPARISONS: every two runs by each cell and by each rate's event, tested as in `comparisons`.

    The events of a rate are compared over the questions that count for it in both runs.
    """
    of_events = [
        replace(
            dataset,
            columns=[
                ({**name, "measure": event}, has_event)
                for name, column in of_measure(dataset, "cell")
                for event, has_event in events_of(column)
            ],
        )
        for dataset in datasets
    ]
    rows = comparisons(of_events, settings)
    is_rate = pl.col("measure").is_in(list(RATES)) & (pl.col("reason") == NOT_JUDGED)
    reason = pl.when(is_rate).then(pl.lit("no question counts for the rate in both runs"))
    named = rows.with_columns(cell="measure", reason=reason.otherwise("reason"))
    return pl.DataFrame(conform(named.select(CELL_COMPARISONS.columns.names), CELL_COMPARISONS))


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


COMPLEMENTS = table_schema(
    "complements",
    "dataset* reader* score* run_a* run_b* depth* quantity* share? low? high? num_queries num_dropped",
)
COMPLEMENT_QUANTITIES: Mapping[str, Column] = {
    name: Column(head, Format.SHARE, meaning)
    for name, head, meaning in (
        ("useful_a", "in A", "run A has a useful document"),
        ("useful_b", "in B", "run B has a useful document"),
        ("only_a", "in A only", "run A has a useful document and run B has none"),
        ("only_b", "in B only", "run B has a useful document and run A has none"),
        ("either", "in A or B", "A or B has a useful document"),
        (
            "gain",
            "fusing gains at most",
            "A or B has a useful document, minus the share of the better one: the most that fusing the two can gain",
        ),
    )
}
"""COMPLEMENTS.quantity -> what it is the share of."""


def complements(datasets: Sequence[DatasetColumns], settings: Settings) -> pl.DataFrame:
    """COMPLEMENTS of every two runs at each depth, over the questions where both are judged.

    A document is useful if it suffices by itself. Intervals are Wilson's; the ends of ``gain``, which is the smaller
    one of ``only_a`` and ``only_b``, are the smaller ones of theirs.
    """
    rows = [
        {**name, "dataset": dataset.dataset, "run_a": a, "run_b": b, **figures}
        for dataset in datasets
        for name, runs in by_run(of_measure(dataset, "alone"))
        for a, b in itertools.combinations(sorted(runs), 2)
        for figures in _complement(runs[a], runs[b], settings.confidence, dataset.draws.clusters)
    ]
    return table_of(rows, COMPLEMENTS)


def _complement(
    a: Floats, b: Floats, confidence: float, clusters: Clusters | None
) -> Iterator[Mapping[str, object]]:
    """Yield each quantity with its share, of two columns [num_queries] of 0, 1 and NaN."""
    known = ~np.isnan(a + b)
    in_a, in_b, count = a == 1, b == 1, int(known.sum())
    events = (in_a, in_b, in_a & ~in_b, in_b & ~in_a, in_a | in_b)
    shares = [share_of(np.where(known, event, np.nan), confidence, clusters) for event in events]
    # what A or B has beyond the better one is what the worse one alone has
    ends = zip(shares[2], shares[3], strict=True)
    gain = [None if one is None or other is None else min(one, other) for one, other in ends]
    for quantity, (share, low, high) in zip(COMPLEMENT_QUANTITIES, [*shares, gain], strict=True):
        figures = {"quantity": quantity, "share": share, "low": low, "high": high}
        yield {**figures, "num_queries": count, "num_dropped": len(a) - count}


def show_complements(view: View) -> Iterator[Table]:
    """Yield what each run of a pair retrieves that the other does not, per depth, largest possible gain first."""
    keys = ["depth", "run_a", "run_b"]
    gain = pl.col("share").filter(pl.col("quantity") == "gain").first().over(*keys)
    descending = [True, True, False, False]
    ordered = view.rows(COMPLEMENTS).sort(
        *("depth", gain, "run_a", "run_b"), descending=descending, nulls_last=True, maintain_order=True
    )
    groups = [
        ((str(a), str(b), str(depth), part["num_queries"][0]), part)
        for (depth, a, b), part in ordered.group_by(keys, maintain_order=True)
    ]
    if groups:
        yield crosstab(
            groups,
            (*names("run A", "run B", "documents"), Column("questions", Format.COUNT)),
            "quantity",
            COMPLEMENT_QUANTITIES,
            functools.partial(estimate, name="share"),
            caption="Share of questions with a sufficient single document among the first, with "
            f"{view.results.confidence:.0%} Wilson intervals. Fusing gains at most: in A or B, minus the better of "
            "the two; a fused list of the same length may lose some of it.",
            **view.about("complements", "which two retrievers to fuse"),
        )


OF_COMPLEMENTS = Analysis(
    schema=COMPLEMENTS,
    sources=(CELLS, QUERIES),
    settings=TESTED,
    make=per_dataset(complements, columns_of_cells),
    show=show_complements,
    group=LISTS,
)
