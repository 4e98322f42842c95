"""Tables of measured values for the papers' figures and for the reproduction, with intervals."""

from __future__ import annotations

import polars as pl

from erag_ray.analyses.order import STATISTIC_NAMES, symbol_of, whole_lists
from erag_ray.analyses.parts.formats import MISSING, counted, number
from erag_ray.analyses.parts.model import Column, Format, Table, Value
from erag_ray.analyses.parts.shapes import across, columns, crosstab, estimate, names, part_name, plain
from erag_ray.data.runs.references import END_TO_END

REPRODUCED = ("P", "Success")


def figure_1_table(curves: pl.DataFrame, run: str, statistic: str) -> Table:
    """Return agreement with utility by number of documents.

    Args:
        curves: `agreement_by_depth` of all datasets, with a column dataset.
        run: the run.
        statistic: statistic of agreement.
    """
    groups = curves.group_by("dataset", "annotator", "measure", maintain_order=True)
    return crosstab(
        (((str(dataset), f"{annotator}, {measure}"), part) for (dataset, annotator, measure), part in groups),
        names("dataset", "annotator, measure"),
        "depth",
        {depth: Column(f"k = {depth}") for depth in sorted(curves["depth"].unique())},
        name=part_name("figure_1", run, statistic),
        title=f"Figure 1: {run}, {symbol_of(statistic)} with the end-to-end utility by number of documents",
        caption="The measure of each annotator that agrees best in Table 1, with its interval.",
    )


def by_reader_table(rows: pl.DataFrame, title: str, statistic: str) -> Table:
    """Return `agreement_by_reader` as a table: datasets and runs down, readers across."""
    return crosstab(
        rows.group_by("dataset", "run_id", "measure", maintain_order=True),
        names("dataset", "run", "measure"),
        "reader",
        {reader: Column(reader) for reader in rows["reader"].unique(maintain_order=True)},
        name=part_name(title),
        title=f"{title}: {symbol_of(statistic)} of eRAG with the end-to-end utility",
        caption="The measure that agrees best over these readers, with its interval.",
    )


REPRODUCTION_COLUMNS = (
    *names("dataset", "run", "measure"),
    *columns(STATISTIC_NAMES.values()),
    Column("mean", Format.NUMBER_4),
    Column("queries", Format.COUNT),
    Column("end to end", Format.TEXT),
)


def reproduction_table(correlations: pl.DataFrame, means: pl.DataFrame, depth: int) -> Table:
    """Return the table of the reproduction per dataset and run: agreement of eRAG's P and Success, and the means.

    Args:
        correlations: CORRELATIONS.
        means: MEANS.
        depth: number of documents; 40 in the reproduction.
    """
    selected = whole_lists(correlations).filter(
        pl.col("annotator") == "erag",
        pl.col("depth") == depth,
        pl.col("measure").is_in(REPRODUCED),
        pl.col("statistic").is_in(list(STATISTIC_NAMES)),
    )
    at_depth = means.filter(pl.col("depth") == depth, pl.col("cutoff") == depth)
    utility = {
        (row["dataset"], row["run_id"]): row for row in at_depth.filter(annotator=END_TO_END).to_dicts()
    }
    measured = {
        (row["dataset"], row["run_id"], row["measure"]): row["mean"]
        for row in at_depth.filter(annotator="erag").to_dicts()
    }
    rows = []
    keys = ("dataset", "run_id", "measure")
    for (dataset, run, measure), part in selected.sort(keys).group_by(keys, maintain_order=True):
        end_to_end = utility.get((dataset, run), {})
        rows.append(
            (
                *plain(str(dataset), str(run), f"{measure}@{depth}"),
                *across({row["statistic"]: estimate(row) for row in part.to_dicts()}, STATISTIC_NAMES),
                Value(measured.get((dataset, run, measure))),
                Value(end_to_end.get("num_queries", MISSING)),
                Value(f"{end_to_end.get('score', '')} {number(end_to_end.get('mean'), 4)}"),
            )
        )
    return Table(
        name="reproduction",
        title=f"The reproduction's table: eRAG, {counted(depth, 'document')}",
        columns=REPRODUCTION_COLUMNS,
        rows=tuple(rows),
        caption="With intervals; if nearly no answer is right, agreement is not meaningful.",
    )
