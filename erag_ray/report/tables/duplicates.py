"""How often the lists of each run repeat a text."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from erag_ray.report.model import Column, Format, Table, Value
from erag_ray.report.values import names, part_name
from erag_ray.runs import NEARLY_EQUAL, SHINGLE_WORDS

COUNTS = ("num_documents", "num_exact", "num_near")


def duplicate_table(
    duplicates: pl.DataFrame, queries: pl.DataFrame, dataset: str, runs: Sequence[str]
) -> Table:
    """Return the mean number of documents, and of those that repeat an earlier text, in each run's lists.

    Args:
        duplicates: LIST_DUPLICATES.
        queries: QUERIES.
        dataset: the dataset.
        runs: its runs, in the order of the rows.
    """
    of_dataset = duplicates.join(queries.filter(dataset=dataset), on="query_id", how="semi")
    means = of_dataset.group_by("run_id", "depth").agg(pl.col(COUNTS).mean()).sort("depth")
    rows = [
        (Value(run), Value(depth), *map(Value, counts))
        for run in runs
        for depth, *counts in means.filter(run_id=run).select("depth", *COUNTS).iter_rows()
    ]
    return Table(
        name=part_name("duplicates", dataset),
        title=f"{dataset}: how often lists repeat a text",
        columns=(
            *names("run"),
            Column("depth", Format.COUNT),
            Column("documents", Format.NUMBER),
            Column("equal", Format.NUMBER, "Documents whose text equals that of one before"),
            Column("nearly equal", Format.NUMBER, "Others whose text nearly equals that of one before"),
        ),
        rows=tuple(rows),
        caption="Means over the lists: documents, and those whose text (lower case, words alone) equals or nearly "
        "equals that of a document before it. Nearly: the Jaccard similarity of their shingles of "
        f"{SHINGLE_WORDS} words is at least {NEARLY_EQUAL}.",
        dataset=dataset,
    )
