"""COMPLEMENTS: what one run retrieves and another does not, so which two to fuse."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from erag_ray.analyses.cells import CELLS, columns_of_cells, of_measure
from erag_ray.analyses.columns import DatasetColumns, by_run, table_of
from erag_ray.analyses.contract import LISTS, TESTED, Analysis, View, per_dataset
from erag_ray.analyses.parts.model import Column, Format, Table
from erag_ray.analyses.parts.shapes import crosstab, estimate, names
from erag_ray.analyses.settings import Floats, Settings
from erag_ray.measures.agreement import wilson_interval
from erag_ray.store.schemas import QUERIES, table_schema

COMPLEMENTS = table_schema(
    "complements",
    "dataset* reader* score* run_a* run_b* depth* quantity* share? low? high? num_queries num_dropped",
)
COMPLEMENT_QUANTITIES: Mapping[str, str] = {
    "useful_a": "run A has a useful document",
    "useful_b": "run B has a useful document",
    "only_a": "run A has a useful document and run B has none",
    "only_b": "run B has a useful document and run A has none",
    "either": "A or B has a useful document",
    "gain": "A or B has a useful document, minus the share of the better one: the most that fusing the two can gain",
}
"""COMPLEMENTS.quantity -> what it is the share of."""
QUANTITY_HEADS = {
    "useful_a": "in A",
    "useful_b": "in B",
    "only_a": "in A only",
    "only_b": "in B only",
    "either": "in A or B",
    "gain": "fusing gains at most",
}


def complements(datasets: Sequence[DatasetColumns], settings: Settings) -> pl.DataFrame:
    """COMPLEMENTS of every two runs at each depth, over the questions where both are judged.

    A document is useful if it suffices by itself. Intervals are Wilson's; the ends of ``gain``, which is the smaller
    one of ``only_a`` and ``only_b``, are the smaller ones of theirs.

    Args:
        datasets: `cell_columns`.
        settings: whose confidence is taken.
    """
    rows = [
        (dataset.dataset, name["reader"], name["score"], a, b, name["depth"], *figures)
        for dataset in datasets
        for name, runs in by_run(of_measure(dataset, "alone"))
        for a, b in itertools.combinations(sorted(runs), 2)
        for figures in _complement(runs[a], runs[b], settings.confidence)
    ]
    return table_of(rows, COMPLEMENTS)


def _complement(a: Floats, b: Floats, confidence: float) -> Iterator[tuple[object, ...]]:
    """Quantity, share, low, high and counts, of two columns [num_queries] of 0, 1 and NaN."""
    known = ~np.isnan(a + b)
    in_a, in_b, count = a[known] == 1, b[known] == 1, int(known.sum())
    events = (in_a, in_b, in_a & ~in_b, in_b & ~in_a, in_a | in_b)
    shares = [wilson_interval(int(event.sum()), count, confidence) for event in events]
    # what A or B has beyond the better one is what the worse one alone has
    ends = zip(shares[2], shares[3], strict=True)
    gain = [None if one is None or other is None else min(one, other) for one, other in ends]
    for quantity, interval in zip(COMPLEMENT_QUANTITIES, [*shares, gain], strict=True):
        yield (quantity, *interval, count, len(a) - count)


def show(view: View) -> Iterator[Table]:
    """Yield what each run of a pair retrieves that the other does not, per depth, largest possible gain first."""
    keys = ["depth", "run_a", "run_b"]
    gain = pl.col("share").filter(pl.col("quantity") == "gain").first()
    ordered = (
        view.rows(COMPLEMENTS)
        .with_columns(most=gain.over(*keys))
        .sort(
            "depth",
            "most",
            "run_a",
            "run_b",
            descending=[True, True, False, False],
            nulls_last=True,
            maintain_order=True,
        )
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
            {
                name: Column(head, Format.SHARE, COMPLEMENT_QUANTITIES[name])
                for name, head in QUANTITY_HEADS.items()
            },
            lambda row: estimate(row, "share"),
            caption="Share of questions with a sufficient single document among the first, with "
            f"{view.results.confidence:.0%} Wilson intervals. Fusing gains at most: in A or B, minus the better of "
            "the two; a fused list of the same length may lose some of it.",
            **view.about("complements", "which two retrievers to fuse"),
        )


ANALYSIS = Analysis(
    schema=COMPLEMENTS,
    sources=(CELLS, QUERIES),
    settings=TESTED,
    make=per_dataset(complements, columns_of_cells),
    show=show,
    group=LISTS,
)
