"""Figures 1 to 3 of the papers (Salemi & Zamani, SIGIR 2024), each with a table of its values and intervals."""

from collections.abc import Iterator, Mapping

import polars as pl

from erag_ray.analyses.agreement import best_measures
from erag_ray.analyses.order import in_reading_order, symbol_of, whole_lists
from erag_ray.analyses.parts.model import Column, Figure, Table
from erag_ray.analyses.parts.shapes import crosstab, names, part_name

VALUES = ["value", "low", "high", "num_queries"]
CURVE_COLUMNS = ["annotator", "measure", "depth", *VALUES]
ENDS = ("value", "low", "high")
BEST_IN_TABLE_1 = "The measure of each annotator that agrees best in Table 1, with its interval."
BEST_OF_READERS = "The measure that agrees best over these readers, with its interval."


def agreement_by_depth(correlations: pl.DataFrame, dataset: str, run: str, statistic: str) -> pl.DataFrame:
    """Return each annotator's agreement at each depth, by the measure that agrees best in Table 1.

    The paper's Figure 1 (Salemi & Zamani, SIGIR 2024). Measures are taken over the whole list, ideals over the run's
    own. For the depth of Table 1 see `table_depths`. Columns are `CURVE_COLUMNS`, annotators in reading order, depths
    ascending; a missing value is null.
    """
    selected = whole_lists(correlations).filter(dataset=dataset, run_id=run, statistic=statistic)
    chosen = selected.join(best_measures(selected, [run]), on=["annotator", "measure"], how="semi")
    return in_reading_order(chosen.sort("depth")).select(CURVE_COLUMNS)


def agreement_by_reader(jobs: Mapping[str, pl.DataFrame], depth: int, statistic: str) -> pl.DataFrame:
    """Return eRAG's agreement at one depth for several readers, by the measure that agrees best over all.

    The paper's Figures 2 and 3 (Salemi & Zamani, SIGIR 2024), for every run. ``jobs``: name of a reader -> CORRELATIONS
    of a job with it. Columns are dataset, run_id, measure, reader and `VALUES`, for datasets and runs of every job. A
    measure that lacks a value for a reader is chosen only if every measure does.
    """
    selection = {"annotator": "erag", "depth": depth, "statistic": statistic}
    parts = [
        whole_lists(table).filter(**selection).with_columns(reader=pl.lit(name))
        for name, table in jobs.items()
    ]
    key = ["dataset", "run_id", "measure"]
    rows = pl.concat(parts).select(*key, "reader", *VALUES)
    shared = rows.filter(pl.col("reader").n_unique().over("dataset", "run_id") == len(jobs))
    # null unless every reader has a value
    means = shared.group_by(key).agg(
        mean=pl.when(pl.col("value").count() == len(jobs)).then(pl.col("value").mean())
    )
    ordered = means.sort(*key[:2], "mean", "measure", descending=[False, False, True, False], nulls_last=True)
    best = ordered.unique(key[:2], keep="first", maintain_order=True)
    return best.drop("mean").join(shared, on=key, maintain_order="left")


def figure_1(curves: pl.DataFrame, run: str, statistic: str) -> Iterator[Table | Figure]:
    """Yield agreement with utility by number of documents: a line per annotator, a panel per dataset; then its values.

    ``curves`` are `agreement_by_depth` of all datasets of one run, with a column dataset. Without a value, the figure
    is left out.
    """
    title = f"Figure 1: {run}, {symbol_of(statistic)} with the end-to-end utility by number of documents"
    data = curves.drop_nulls("value").select(
        "dataset", "annotator", "measure", pl.col("depth").alias("documents"), *ENDS, questions="num_queries"
    )
    if data.height:
        yield Figure(
            name=part_name("figure_1", run),
            title=title,
            data=data,
            mark="line",
            x="documents",
            y="value",
            low="low",
            high="high",
            color="annotator",
            color_names=tuple(data["annotator"].unique(maintain_order=True)),
            facet="dataset",
            x_title="documents (k)",
            y_title=f"{symbol_of(statistic)} with end-to-end utility",
            caption=BEST_IN_TABLE_1,
            is_main=True,
        )
    groups = curves.group_by("dataset", "annotator", "measure", maintain_order=True)
    yield crosstab(
        (((str(dataset), f"{annotator}, {measure}"), part) for (dataset, annotator, measure), part in groups),
        names("dataset", "annotator, measure"),
        "depth",
        {depth: Column(f"k = {depth}") for depth in sorted(curves["depth"].unique())},
        name=part_name("figure_1", run, statistic),
        title=title,
        caption=BEST_IN_TABLE_1,
    )


def agreement_of_readers(rows: pl.DataFrame, head: str, statistic: str) -> Iterator[Table | Figure]:
    """Yield `agreement_by_reader` (Figures 2 and 3): a point per reader, a panel per dataset and run; then its values.

    The head is one such as ``Figure 2, 50 documents``. Without a value, the figure is left out.
    """
    title = f"{head}: {symbol_of(statistic)} of eRAG with the end-to-end utility"
    data = rows.drop_nulls("value").select(
        "reader", *ENDS, "measure", lists=pl.format("{}: {}", "dataset", "run_id"), questions="num_queries"
    )
    if data.height:
        yield Figure(
            name=part_name(head.split(",")[0].lower().replace(" ", "_")),
            title=title,
            data=data,
            mark="interval",
            x="value",
            y="reader",
            low="low",
            high="high",
            facet="lists",
            x_title=f"{symbol_of(statistic)} with end-to-end utility",
            caption=BEST_OF_READERS,
            is_main=True,
        )
    yield crosstab(
        rows.group_by("dataset", "run_id", "measure", maintain_order=True),
        names("dataset", "run", "measure"),
        "reader",
        {reader: Column(reader) for reader in rows["reader"].unique(maintain_order=True)},
        name=part_name(head),
        title=title,
        caption=BEST_OF_READERS,
    )
