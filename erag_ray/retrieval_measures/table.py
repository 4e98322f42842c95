"""Report tables of RETRIEVAL_MEASURES."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from erag_ray.report import Column, Format, Table, Value, across, columns, names, part_name, plain

NAMES = {
    "gold_passage": "gold passage",
    "gold_page": "gold page",
    "contains_answer": "contains answer",
    "kilt_recall": "recall of pages (KILT)",
    "kilt_r_precision": "R-precision of pages (KILT)",
}


def retrieval_measures_tables(table: pl.DataFrame) -> list[Table]:
    """Return one table per dataset of RETRIEVAL_MEASURES: measures by runs."""
    return [_of_dataset(str(name[0]), part) for name, part in table.group_by("dataset", maintain_order=True)]


def _of_dataset(dataset: str, part: pl.DataFrame) -> Table:
    runs = part["run_id"].unique(maintain_order=True).to_list()
    rows = []
    for measure, label in NAMES.items():
        of_measure = part.filter(measure=measure).sort("cutoff")
        for (cutoff,), rows_of_cutoff in of_measure.group_by("cutoff", maintain_order=True):
            values = {row["run_id"]: _value(row) for row in rows_of_cutoff.iter_rows(named=True)}
            count = rows_of_cutoff.select(pl.col("num_queries") + pl.col("num_dropped")).row(0)[0]
            name = f"{label}@{cutoff}" if cutoff else label
            rows.append((*plain(name, count), *across(values, runs)))
    return Table(
        name=part_name("retrieval_measures", dataset),
        title=f"{dataset}: retrieval measures",
        columns=(*names("share of questions"), Column("questions", Format.COUNT), *columns(runs)),
        rows=tuple(rows),
        caption="gold passage, gold page, contains answer: among the first k passages. Of pages: a list's pages in "
        "order, without repeats. A question without a list counts 0. Documents without a page_id are not judged by "
        "page (n: the judged questions, if they are fewer).",
        is_main=True,
        dataset=dataset,
    )


def _value(row: Mapping[str, Any]) -> Value:
    if row["value"] is None:
        return Value(reason="the documents have no page_id")
    return Value(row["value"], note=f"n={row['num_queries']}" if row["num_dropped"] else "")
