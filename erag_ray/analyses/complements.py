"""COMPLEMENTS: how often one run has a useful document where another has none, and what fusing two can gain."""

import functools
import itertools
from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

from erag_ray.analyses.cells import CELLS, columns_of_cells, of_measure
from erag_ray.analyses.columns import DatasetColumns, by_run, table_of
from erag_ray.analyses.contract import LISTS, TESTED, Analysis, View, per_dataset
from erag_ray.analyses.parts.model import Column, Format, Table
from erag_ray.analyses.parts.shapes import crosstab, estimate, names
from erag_ray.analyses.settings import Floats, Settings
from erag_ray.measures.agreement import Clusters, share_of
from erag_ray.store.schemas import QUERIES, table_schema

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


def complements(dataset: DatasetColumns, settings: Settings) -> pl.DataFrame:
    """COMPLEMENTS of every two runs at each depth, over the questions where both are judged.

    A document is useful if it suffices by itself. Intervals are Wilson's; the ends of ``gain``, which is the smaller
    one of ``only_a`` and ``only_b``, are the smaller ones of theirs.
    """
    rows = [
        {**name, "dataset": dataset.dataset, "run_a": a, "run_b": b, **figures}
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


def show(view: View) -> Iterator[Table]:
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


ANALYSIS = Analysis(
    schema=COMPLEMENTS,
    sources=(CELLS, QUERIES),
    settings=TESTED,
    make=per_dataset(complements, columns_of_cells),
    show=show,
    group=LISTS,
)
