"""Data of the paper's Figures 1 to 3: agreement with end-to-end utility by number of documents, and by reader."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from erag_ray.evaluate import ANY, OWN_LIST
from erag_ray.report.tables.sorting import in_reading_order

VALUES = ["value", "low", "high", "num_queries"]
CURVE_COLUMNS = ["annotator", "measure", "depth", *VALUES]


def agreement_by_depth(correlations: pl.DataFrame, dataset: str, run: str, statistic: str) -> pl.DataFrame:
    """Return each annotator's agreement at each depth, by the measure that agrees best in Table 1.

    The paper's Figure 1 (Salemi & Zamani, SIGIR 2024). Measures are taken over the whole list, ideals over the run's
    own. For the depth of Table 1 see `table_depths`.

    Returns:
        Columns `CURVE_COLUMNS`, annotators in reading order, depths ascending; a missing value is null.
    """
    selected = whole_lists(correlations).filter(dataset=dataset, run_id=run, statistic=statistic)
    candidates = selected.join(table_depths(selected), on=["annotator", "depth"], how="semi").drop_nulls(
        "value"
    )
    best = candidates.sort("value", "measure", descending=[True, False]).unique(
        "annotator", keep="first", maintain_order=True
    )
    chosen = selected.join(best, on=["annotator", "measure"], how="semi")
    return in_reading_order(chosen.sort("depth")).select(CURVE_COLUMNS)


def table_depths(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the depth of Table 1 for each annotator: columns annotator and depth.

    It is the largest depth at which the number of queries with a value is largest. A judge that graded ten documents of
    each list has values at larger depths only for short lists.
    """
    counts = rows.drop_nulls("value").group_by("annotator", "depth").agg(pl.col("num_queries").max())
    most = counts.sort("num_queries", "depth", descending=True)
    return most.unique("annotator", keep="first", maintain_order=True).select("annotator", "depth")


def whole_lists(correlations: pl.DataFrame) -> pl.DataFrame:
    """Select, as in the paper, rows over queries with the cut-off at full depth and the run's own list as ideal."""
    return correlations.filter(
        pl.col("over") == "queries",
        pl.col("cutoff") == pl.col("depth"),
        pl.col("ideal").is_in([ANY, OWN_LIST]),
    )


def agreement_by_reader(
    jobs: Mapping[str, pl.DataFrame], depth: int, statistic: str, annotator: str = "erag"
) -> pl.DataFrame:
    """Return an annotator's agreement at one depth for several readers, by the measure that agrees best over all.

    The paper's Figures 2 and 3 (Salemi & Zamani, SIGIR 2024), for every run.

    Args:
        jobs: name of a reader -> CORRELATIONS of a job with it.
        depth: number of documents.
        statistic: a key of `agreement.STATISTICS`.
        annotator: the annotator.

    Returns:
        Columns dataset, run_id, measure, reader and `VALUES`; datasets and runs that every job has. A measure
        that lacks a value for a reader is chosen only if every measure does.
    """
    selection = {"annotator": annotator, "depth": depth, "statistic": statistic}
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
