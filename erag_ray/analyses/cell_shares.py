"""CELL_SHARES: how often a list helps, how often eRAG's label and the list disagree, in all and by slice."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from erag_ray.analyses.cells import CELL_NAMES, CELL_WORDS, CELLS, CELLS_MEANING, columns_of_cells, of_measure
from erag_ray.analyses.columns import DatasetColumns, table_of
from erag_ray.analyses.contract import LISTS, TESTED, Analysis, View, per_dataset
from erag_ray.analyses.order import in_run_order
from erag_ray.analyses.parts.formats import counted
from erag_ray.analyses.parts.model import Column, Figure, Finding, Format, Part, Table, Value
from erag_ray.analyses.parts.shapes import crosstab, estimate, names, rows_of
from erag_ray.analyses.settings import Floats, Settings
from erag_ray.analyses.slices import slices_of, with_slices
from erag_ray.analyses.standing import Standing
from erag_ray.annotators import SUFFICES
from erag_ray.measures.agreement import Clusters, share_of
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


def cell_shares(whole: DatasetColumns, slices: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """CELL_SHARES: the share of each cell and the two rates, with Wilson intervals; of all questions and by slice.

    Shares are over the questions that have a cell.
    """
    rows = [
        {"dataset": dataset.dataset, **name, "slice": slice, "value": value, **figures}
        for slice, value, dataset in [("", "", whole), *with_slices(whole, slices)]
        for name, column in of_measure(dataset, "cell")
        for figures in _shares(column, settings.confidence, dataset.draws.clusters)
    ]
    return table_of(rows, CELL_SHARES)


def _shares(column: Floats, confidence: float, clusters: Clusters | None) -> Iterator[Mapping[str, object]]:
    """Yield each cell or rate, its share with the interval, and the counts behind it."""
    cells = {name: ((name,), CELL_NAMES) for name in CELL_NAMES}
    for name, (event, among) in {**cells, **RATES}.items():
        is_event, is_counted = (np.isin(column, [*map(CELL_NAMES.index, of)]) for of in (event, among))
        events = np.where(is_counted, is_event, np.nan)
        counts = np.nansum(events), (~np.isnan(events)).sum(), np.isnan(column).sum()
        figures = (name, *share_of(events, confidence, clusters), *map(int, counts))
        yield dict(zip(CELL_SHARES.columns.names[-7:], figures, strict=True))


def show(view: View) -> Iterator[Part]:
    """Yield the shares of cells and the two rates of every run, and the shares by slice at the largest depth."""
    selected = view.rows(CELL_SHARES).filter(pl.col("run_id").is_in(view.runs))
    judged = selected.filter(pl.col("share").is_not_null().any().over("run_id", "depth"))
    numbered = in_run_order(judged.with_row_index("row"), view.runs)
    rows = numbered.sort(pl.col("row").min().over("slice", "value"), "run_number", "depth", "row")
    of_all, of_slices = rows.filter(slice=""), rows.filter(pl.col("slice") != "")
    intervals = f"{view.results.confidence:.0%} Wilson intervals"
    if of_all.height:
        yield from _bars(view, of_all)
        threshold = view.results.threshold
        least, most = SUFFICES if threshold is None else threshold, max(of_all["num_dropped"], default=0)
        dropped = (
            f"Left out, since something was not judged: up to {counted(most, 'question')}. " if most else ""
        )
        yield _crosstab(
            of_all,
            {"run_id": "run", "depth": "documents"},
            CELL_COLUMNS,
            caption="Share of questions, by whether a single document, the whole list, and the reader without "
            f"documents suffice (a label or a score of at least {least:g}), with {intervals}. "
            + "; ".join(f"{CELL_WORDS[cell]}: {text}" for cell, text in CELLS_MEANING.items())
            + f". {dropped}Question by question in the table cells.",
            is_main=True,
            **view.about("cells", "where a list helps, and where eRAG's label fails"),
        )
        yield _crosstab(
            of_all,
            {"run_id": "run", "depth": "documents"},
            RATE_HEADS,
            caption=f"With {intervals} and the number of questions that each is taken over. Only together: what "
            "helped lies in several documents, so no label of one document shows it. Lost in the list: a single "
            "document suffices, and its list does not. If both are rare, labels of single documents represent the "
            "list well.",
            is_main=True,
            **view.about("label-failures", "how often eRAG's label and the list disagree"),
        )
    if of_slices.height:
        deepest = of_slices.filter(pl.col("depth") == pl.col("depth").max())
        yield _crosstab(
            deepest,
            {"slice": "slice", "value": "value", "run_id": "run"},
            CELL_COLUMNS,
            caption=f"As the table of all questions, for lists of {counted(deepest['depth'][0], 'document')}, with "
            f"{intervals}. Other depths are in the table cell_shares.",
            **view.about("cells-by-slice", "where a list helps, by slice of the questions"),
        )
    if view.standing is not None:
        yield from failures_of_labels(of_all, view.standing)


def _crosstab(
    rows: pl.DataFrame, keys: Mapping[str, str], cells: Mapping[str, Column], **about: Any
) -> Table:
    """Return shares by cell or rate, with a row for each of the keys: column of ``rows`` -> its header."""
    # the number of questions that have a cell is a column like the shares
    questions = rows.filter(cell="found").with_columns(cell=pl.lit("questions"))
    groups = pl.concat([rows, questions]).group_by(list(keys), maintain_order=True)
    named = ((tuple(map(str, key)), part) for key, part in groups)
    return crosstab(named, names(*keys.values()), "cell", cells, _share, **about)


def _share(row: Mapping[str, Any]) -> Value:
    if row["cell"] == "questions":
        return Value(row["num_queries"])
    if row["share"] is None:
        return Value(reason="no question counts for it")
    return estimate(row, "share", note=f"n={row['num_queries']}" if row["cell"] in RATES else "")


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
