"""Tables of the eight cells (where a list helps, where eRAG's label fails), two rates, and complements of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from erag_ray.annotators import SUFFICES
from erag_ray.evaluate import CELLS_MEANING, COMPLEMENT_QUANTITIES, RATES
from erag_ray.report.formats import counted
from erag_ray.report.model import Column, Format, Table, Value
from erag_ray.report.tables.differences import TEST_COLUMNS, test_values
from erag_ray.report.values import estimate, names, part_name, plain

CELL_HEADS = {name: name.replace("_", " ") for name in CELLS_MEANING}
RATE_HEADS = {
    "combined_given_list": Column(
        "combined / list suffices",
        Format.SHARE,
        "Of the questions where the list suffices: no single document of it does, and the reader does not know the "
        "answer. eRAG's label cannot see what helped there.",
    ),
    "distracted_given_alone": Column(
        "distracted / a document suffices",
        Format.SHARE,
        "Of the questions where a single document suffices: the list does not. eRAG's label overestimates the list "
        "there.",
    ),
}
QUANTITY_HEADS = {
    "useful_a": "in A",
    "useful_b": "in B",
    "only_a": "in A only",
    "only_b": "in B only",
    "either": "in A or B",
    "gain": "fusing gains at most",
}
LIST = ["run_id", "depth"]


def cell_tables(
    shares: pl.DataFrame,
    comparisons: pl.DataFrame,
    complements: pl.DataFrame,
    dataset: str,
    runs: Sequence[str],
    confidence: float,
    threshold: float | None = None,
) -> list[Table]:
    """Return the tables of one dataset, in reading order; empty ones are left out.

    Args:
        shares: CELL_SHARES.
        comparisons: CELL_COMPARISONS.
        complements: COMPLEMENTS.
        dataset: the dataset.
        runs: in reading order.
        confidence: of the intervals.
        threshold: as in `evaluate.cells`.
    """
    tables = [
        cell_table(shares, dataset, runs, confidence, threshold),
        rate_table(shares, dataset, runs, confidence),
        cell_slice_table(shares, dataset, runs, confidence),
        cell_comparison_table(comparisons, dataset),
        complement_table(complements, dataset, confidence),
    ]
    return [table for table in tables if table.rows]


def cell_table(
    shares: pl.DataFrame, dataset: str, runs: Sequence[str], confidence: float, threshold: float | None = None
) -> Table:
    """Return the share of every cell, per run and depth."""
    selected = _of_lists(shares, dataset, runs).filter(slice="")
    rows = [
        (*_list_names(part), *(_share(part, cell) for cell in CELLS_MEANING), *_counted(part))
        for _, part in selected.group_by(LIST, maintain_order=True)
    ]
    least = SUFFICES if threshold is None else threshold
    return Table(
        name=part_name("cells", dataset),
        title=f"{dataset}: where a list helps, and where eRAG's label fails",
        columns=(
            *names("run", "documents"),
            *(Column(CELL_HEADS[cell], Format.SHARE, text) for cell, text in CELLS_MEANING.items()),
            Column("questions", Format.COUNT),
        ),
        rows=tuple(rows),
        caption="Share of questions, by whether a single document, the whole list, and the reader without documents "
        f"suffice (a label or a score of at least {least:g}), with {confidence:.0%} Wilson intervals. "
        + "; ".join(f"{CELL_HEADS[cell]}: {text}" for cell, text in CELLS_MEANING.items())
        + f". {_dropped(selected)}Question by question in the table cells.",
        is_main=True,
        dataset=dataset,
    )


def rate_table(shares: pl.DataFrame, dataset: str, runs: Sequence[str], confidence: float) -> Table:
    """Return the two rates at which the label and the list disagree, per run and depth."""
    selected = _of_lists(shares, dataset, runs).filter(slice="")
    rows = [
        (*_list_names(part), *(_share(part, rate, counted=True) for rate in RATES))
        for _, part in selected.group_by(LIST, maintain_order=True)
    ]
    return Table(
        name=part_name("label-failures", dataset),
        title=f"{dataset}: how often eRAG's label and the list disagree",
        columns=(*names("run", "documents"), *RATE_HEADS.values()),
        rows=tuple(rows),
        caption=f"With {confidence:.0%} Wilson intervals and the number of questions that each is taken over. "
        "Combined: what helped lies in several documents, so no label of one document shows it. Distracted: a "
        "single document suffices, and its list does not. If both are rare, labels of single documents represent the "
        "list well.",
        is_main=True,
        dataset=dataset,
    )


def cell_slice_table(shares: pl.DataFrame, dataset: str, runs: Sequence[str], confidence: float) -> Table:
    """Return the shares of cells by slice, at the largest depth."""
    selected = _of_lists(shares, dataset, runs).filter(
        pl.col("slice") != "", pl.col("depth") == pl.col("depth").max()
    )
    keys = ["slice", "value", "run_id"]
    documents = counted(max(selected["depth"], default=0), "document")
    rows = [
        (*plain(*map(str, key)), *(_share(part, cell) for cell in CELLS_MEANING), *_counted(part))
        for key, part in selected.group_by(keys, maintain_order=True)
    ]
    return Table(
        name=part_name("cells-by-slice", dataset),
        title=f"{dataset}: where a list helps, by slice of the questions",
        columns=(
            *names("slice", "value", "run"),
            *(Column(CELL_HEADS[cell], Format.SHARE, text) for cell, text in CELLS_MEANING.items()),
            Column("questions", Format.COUNT),
        ),
        rows=tuple(rows),
        caption=f"As the table of all questions, for lists of {documents}, with {confidence:.0%} Wilson intervals. "
        "Other depths are in the table cell_shares.",
        dataset=dataset,
    )


def cell_comparison_table(comparisons: pl.DataFrame, dataset: str) -> Table:
    """Compare all pairs of runs by every cell and rate, at every depth; pairs without a difference are left out."""
    selected = comparisons.filter(pl.col("dataset") == dataset)
    order = [*CELLS_MEANING, *RATES]
    differing = selected.filter(pl.col("effect_size").is_not_null()).with_columns(
        position=pl.col("cell").replace_strict(order, range(len(order)), return_dtype=pl.Int64)
    )
    return Table(
        name=part_name("cell-comparisons", dataset),
        title=f"{dataset}: which runs differ by cell",
        columns=(
            *names("runs", "cell", "documents"),
            *TEST_COLUMNS,
            Column("questions", Format.COUNT),
        ),
        rows=tuple(
            _comparison_row(row)
            for row in differing.sort("position", "depth", "run_a", "run_b").iter_rows(named=True)
        ),
        caption="Difference of the shares, paired over questions, with its interval; p by the exact sign test. Holm: "
        "both corrected over all pairs of runs by this cell at this depth. A rate is compared over the questions "
        "that count for it in both runs. Pairs that do not differ in any question are left out.",
        dataset=dataset,
    )


def _comparison_row(row: dict[str, Any]) -> tuple[Value, ...]:
    head = RATE_HEADS[row["cell"]].name if row["cell"] in RATES else CELL_HEADS[row["cell"]]
    return (
        *plain(f"{row['run_a']} - {row['run_b']}", head, str(row["depth"])),
        *test_values(row),
        *plain(row["num_queries"]),
    )


def complement_table(complements: pl.DataFrame, dataset: str, confidence: float) -> Table:
    """Return what each run of a pair retrieves that the other does not, per depth, largest possible gain first."""
    selected = complements.filter(pl.col("dataset") == dataset)
    gain = pl.col("share").filter(pl.col("quantity") == "gain").first()
    keys = ["depth", "run_a", "run_b"]
    ordered = selected.with_columns(most=gain.over(*keys)).sort(
        "depth",
        "most",
        "run_a",
        "run_b",
        descending=[True, True, False, False],
        nulls_last=True,
        maintain_order=True,
    )
    rows = [
        (
            *plain(str(part["run_a"][0]), str(part["run_b"][0]), str(part["depth"][0])),
            *(estimate(_row_of(part, "quantity", name), "share") for name in QUANTITY_HEADS),
            Value(int(part["num_queries"][0])),
        )
        for _, part in ordered.group_by(keys, maintain_order=True)
    ]
    return Table(
        name=part_name("complements", dataset),
        title=f"{dataset}: which two retrievers to fuse",
        columns=(
            *names("run A", "run B", "documents"),
            *(
                Column(head, Format.SHARE, COMPLEMENT_QUANTITIES[name])
                for name, head in QUANTITY_HEADS.items()
            ),
            Column("questions", Format.COUNT),
        ),
        rows=tuple(rows),
        caption="Share of questions with a sufficient single document among the first, with "
        f"{confidence:.0%} Wilson intervals. Fusing gains at most: in A or B, minus the better of the two; a fused "
        "list of the same length may lose some of it.",
        dataset=dataset,
    )


def _of_lists(shares: pl.DataFrame, dataset: str, runs: Sequence[str]) -> pl.DataFrame:
    """Return the judged rows of one dataset, runs in reading order, depths ascending."""
    order = {run: position for position, run in enumerate(runs)}
    selected = shares.filter(pl.col("dataset") == dataset, pl.col("run_id").is_in(list(order)))
    judged = selected.filter(pl.col("share").is_not_null().any().over("run_id", "depth"))
    position = pl.col("run_id").replace_strict(order, return_dtype=pl.Int64)
    numbered = judged.with_columns(position=position).with_row_index("row")
    first = pl.col("row").min().over("slice", "value")
    return numbered.sort(first, "position", "depth", "row")


def _list_names(part: pl.DataFrame) -> tuple[Value, ...]:
    return plain(str(part["run_id"][0]), str(part["depth"][0]))


def _share(part: pl.DataFrame, cell: str, *, counted: bool = False) -> Value:
    row = _row_of(part, "cell", cell)
    if row["share"] is None:
        return Value(reason="no question counts for it")
    return estimate(row, "share", note=f"n={row['num_queries']}" if counted else "")


def _counted(part: pl.DataFrame) -> tuple[Value]:
    """Return the number of questions that have a cell."""
    return (Value(_row_of(part, "cell", "found")["num_queries"]),)


def _row_of(part: pl.DataFrame, column: str, value: str) -> dict[str, Any]:
    """Return the only row with this value in a column."""
    return part.row(by_predicate=pl.col(column) == value, named=True)


def _dropped(rows: pl.DataFrame) -> str:
    most = max(rows["num_dropped"], default=0)
    return f"Left out, since something was not judged: up to {counted(most, 'question')}. " if most else ""
