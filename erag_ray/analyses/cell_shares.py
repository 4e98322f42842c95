"""CELL_SHARES: how often a list helps, how often eRAG's label and the list disagree, in all and by slice."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from erag_ray.analyses.cells import CELL_NAMES, CELL_WORDS, CELLS, CELLS_MEANING, columns_of_cells, of_measure
from erag_ray.analyses.columns import DatasetColumns, table_of
from erag_ray.analyses.contract import LISTS, TESTED, Analysis, View, per_dataset
from erag_ray.analyses.order import in_run_order
from erag_ray.analyses.parts.formats import counted
from erag_ray.analyses.parts.model import Column, Figure, Finding, Format, Part, Plain, Table, Value
from erag_ray.analyses.parts.shapes import crosstab, estimate, names, rows_of
from erag_ray.analyses.settings import Floats, Settings
from erag_ray.analyses.slices import slices_of, with_slices
from erag_ray.analyses.standing import Standing
from erag_ray.annotators import SUFFICES
from erag_ray.measures.agreement import Clusters, share_of, wilson_interval
from erag_ray.store.schemas import QUERIES, SLICES, STRING, table_schema

CELL_SHARES = table_schema(
    "cell_shares",
    "dataset* reader* score* run_id* depth* slice* value* cell* share? low? high? num_positive "
    "num_queries num_dropped",
    value=STRING,
)
"""Shares among all questions (slice ""), or among those of a slice; two rows are `RATES`."""
RATES: Mapping[str, tuple[Collection[str], Collection[str]]] = {
    "combined_given_list": (("combined",), ("found", "kept", "combined", "list_only")),
    "distracted_given_alone": (
        ("distracted", "distracted_known"),
        ("found", "kept", "distracted", "distracted_known"),
    ),
}
"""Rate -> its event, and the questions that it is taken over, both as cells."""
RATE_HEADS = {
    "combined_given_list": Column(
        "only together / list suffices",
        Format.SHARE,
        "Of the questions where the list suffices: no single document of it does, and the reader does not know the "
        "answer. eRAG's label cannot see what helped there.",
    ),
    "distracted_given_alone": Column(
        "lost in the list / a document suffices",
        Format.SHARE,
        "Of the questions where a single document suffices: the list does not. eRAG's label overestimates the list "
        "there.",
    ),
}
CELL_COLUMNS = {
    **{cell: Column(CELL_WORDS[cell], Format.SHARE, text) for cell, text in CELLS_MEANING.items()},
    "questions": Column("questions", Format.COUNT),
}


def cell_shares(datasets: Sequence[DatasetColumns], slices: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """CELL_SHARES: the share of each cell and the two rates, with Wilson intervals; of all questions and by slice.

    Shares are over the questions that have a cell.
    """
    rows = [
        {"dataset": dataset.dataset, **name, "slice": slice, "value": value, **figures}
        for whole in datasets
        for slice, value, dataset in [("", "", whole), *with_slices(whole, slices)]
        for name, column in of_measure(dataset, "cell")
        for figures in _shares(column, settings.confidence, dataset.draws.clusters)
    ]
    return table_of(rows, CELL_SHARES)


def _shares(column: Floats, confidence: float, clusters: Clusters | None) -> Iterator[Mapping[str, object]]:
    """Yield each cell or rate, its share with the interval, and the counts behind it."""
    known = column[~np.isnan(column)].astype(np.int64)
    counts = dict(zip(CELL_NAMES, np.bincount(known, minlength=len(CELL_NAMES)).tolist(), strict=True))
    every = {name: ((name,), CELL_NAMES) for name in CELL_NAMES}
    for name, (event, among) in {**every, **RATES}.items():
        positive, count = sum(counts[cell] for cell in event), sum(counts[cell] for cell in among)
        if clusters is None:
            share, low, high = wilson_interval(positive, count, confidence)
        else:
            places, counting = ([CELL_NAMES.index(cell) for cell in cells] for cells in (event, among))
            events = np.where(np.isin(column, counting), np.isin(column, places), np.nan)
            share, low, high = share_of(events, confidence, clusters)
        figures = {"cell": name, "share": share, "low": low, "high": high, "num_positive": positive}
        yield {**figures, "num_queries": count, "num_dropped": len(column) - len(known)}


def show(view: View) -> Iterator[Part]:
    """Yield the shares of cells and the two rates of every run, and the shares by slice."""
    rows = _of_lists(view)
    of_all, of_slices = rows.filter(slice=""), rows.filter(pl.col("slice") != "")
    if of_all.height:
        yield from _bars(view, of_all)
        yield cell_table(view, of_all)
        yield rate_table(view, of_all)
    if of_slices.height:
        yield cell_slice_table(view, of_slices.filter(pl.col("depth") == pl.col("depth").max()))
    if view.standing is not None:
        yield from failures_of_labels(of_all, view.standing)


def _of_lists(view: View) -> pl.DataFrame:
    """Return the judged rows of a dataset, runs in reading order, depths ascending."""
    selected = view.rows(CELL_SHARES).filter(pl.col("run_id").is_in(view.runs))
    judged = selected.filter(pl.col("share").is_not_null().any().over("run_id", "depth"))
    numbered = in_run_order(judged.with_row_index("row"), view.runs)
    return numbered.sort(pl.col("row").min().over("slice", "value"), "run_number", "depth", "row")


def _groups(rows: pl.DataFrame, keys: Sequence[str]) -> Iterator[tuple[tuple[Plain, ...], pl.DataFrame]]:
    """Yield what names a list, and its rows, with one for the number of questions that have a cell."""
    for key, part in rows.group_by(keys, maintain_order=True):
        questions = part.filter(cell="found").with_columns(cell=pl.lit("questions"))
        yield tuple(map(str, key)), pl.concat([part, questions])


def _share(row: Mapping[str, Any]) -> Value:
    if row["cell"] == "questions":
        return Value(row["num_queries"])
    if row["share"] is None:
        return Value(reason="no question counts for it")
    return estimate(row, "share", note=f"n={row['num_queries']}" if row["cell"] in RATES else "")


def cell_table(view: View, rows: pl.DataFrame) -> Table:
    """Return the share of every cell, per run and depth."""
    threshold = view.results.threshold
    least, most = SUFFICES if threshold is None else threshold, max(rows["num_dropped"], default=0)
    dropped = f"Left out, since something was not judged: up to {counted(most, 'question')}. " if most else ""
    return crosstab(
        _groups(rows, ["run_id", "depth"]),
        names("run", "documents"),
        "cell",
        CELL_COLUMNS,
        _share,
        caption="Share of questions, by whether a single document, the whole list, and the reader without documents "
        f"suffice (a label or a score of at least {least:g}), with {view.results.confidence:.0%} Wilson intervals. "
        + "; ".join(f"{CELL_WORDS[cell]}: {text}" for cell, text in CELLS_MEANING.items())
        + f". {dropped}Question by question in the table cells.",
        is_main=True,
        **view.about("cells", "where a list helps, and where eRAG's label fails"),
    )


def rate_table(view: View, rows: pl.DataFrame) -> Table:
    """Return the two rates at which the label and the list disagree, per run and depth."""
    return crosstab(
        _groups(rows, ["run_id", "depth"]),
        names("run", "documents"),
        "cell",
        RATE_HEADS,
        _share,
        caption=f"With {view.results.confidence:.0%} Wilson intervals and the number of questions that each is taken "
        "over. Only together: what helped lies in several documents, so no label of one document shows it. Lost "
        "in the list: a single document suffices, and its list does not. If both are rare, labels of single documents "
        "represent the list well.",
        is_main=True,
        **view.about("label-failures", "how often eRAG's label and the list disagree"),
    )


def cell_slice_table(view: View, rows: pl.DataFrame) -> Table:
    """Return the shares of cells by slice, at the largest depth."""
    documents = counted(max(rows["depth"], default=0), "document")
    return crosstab(
        _groups(rows, ["slice", "value", "run_id"]),
        names("slice", "value", "run"),
        "cell",
        CELL_COLUMNS,
        _share,
        caption=f"As the table of all questions, for lists of {documents}, with {view.results.confidence:.0%} Wilson "
        "intervals. Other depths are in the table cell_shares.",
        **view.about("cells-by-slice", "where a list helps, by slice of the questions"),
    )


OUTCOMES = {
    "a document was enough, and the list": ("found", "kept"),
    "a document was enough, the list lost it": ("distracted", "distracted_known"),
    "only the list was enough": ("combined", "list_only"),
    "nothing was enough": ("missing", "lost"),
}
"""What a figure shows -> the cells of it."""


def _bars(view: View, rows: pl.DataFrame) -> Iterator[Figure]:
    """Yield a bar for each run: what becomes of its questions at the largest depth."""
    deepest = rows.filter(
        pl.col("depth") == pl.col("depth").max(), pl.col("cell").is_in(list(CELLS_MEANING))
    ).drop_nulls("share")
    outcome_of = {cell: outcome for outcome, cells in OUTCOMES.items() for cell in cells}
    outcome = pl.col("cell").replace_strict(outcome_of, return_dtype=pl.String)
    summed = deepest.group_by("run_id", outcome=outcome, maintain_order=True).agg(
        pl.col("share").sum(), questions=pl.col("num_positive").sum()
    )
    if summed.height:
        yield Figure(
            data=summed.select("outcome", "share", "questions", run="run_id"),
            mark="bar",
            x="share",
            y="run",
            color="outcome",
            color_names=tuple(OUTCOMES),
            grey=("nothing was enough",),
            x_title="share of the questions",
            caption=f"With {counted(int(deepest['depth'][0]), 'document')}. Intervals, and which of these the "
            "reader answers without documents, are in the table below.",
            is_main=True,
            **view.about("outcomes", "what becomes of the questions"),
        )


def failures_of_labels(rows: pl.DataFrame, standing: Standing) -> Iterator[Finding]:
    """Yield how often the list and the labels of single documents disagree, in the best run."""
    best = rows.filter(run_id=standing.runs[0], depth=standing.deepest).drop_nulls("share")
    rates = {row["cell"]: row for row in rows_of(best.filter(pl.col("cell").is_in(list(RATES))))}
    parts = [
        text.format(f"{rates[rate]['share']:.0%} [{rates[rate]['low']:.0%}, {rates[rate]['high']:.0%}]")
        for rate, text in (
            ("combined_given_list", "only the list was enough for {} of the answered questions"),
            ("distracted_given_alone", "the list lost {} of those for which a document was enough"),
        )
        if rate in rates
    ]
    if parts:
        yield Finding(topic="trust", text="; ".join(parts))


ANALYSIS = Analysis(
    schema=CELL_SHARES,
    sources=(CELLS, SLICES, QUERIES),
    settings=("slices", *TESTED),
    make=per_dataset(cell_shares, columns_of_cells, slices_of),
    show=show,
    group=LISTS,
)
