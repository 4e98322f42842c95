"""The data of the paper's Figures 1 to 3: agreement with the end-to-end utility by documents, and by reader."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from erag_ray.evaluate import ANY, OWN_LIST
from erag_ray.report.tables.sorting import in_reading_order

VALUES = ["value", "low", "high", "num_queries"]
CURVE_COLUMNS = ["annotator", "measure", "depth", *VALUES]


def agreement_by_depth(correlations: pl.DataFrame, dataset: str, run: str, statistic: str) -> pl.DataFrame:
    """For each annotator the measure that agrees best in Table 1, and its agreement at each depth.

    The paper's Figure 1 (Salemi & Zamani, SIGIR 2024). Measures are taken over the whole list, ideals over the run's
    own. For the depth of Table 1 see `table_depths`.

    Returns:
        Columns `CURVE_COLUMNS`, annotators in reading order, depths ascending; a missing value is null.
    """
    own = whole_lists(correlations).filter(dataset=dataset, run_id=run, statistic=statistic)
    at = own.join(table_depths(own), on=["annotator", "depth"], how="semi").drop_nulls("value")
    best = at.sort("value", "measure", descending=[True, False]).unique(
        "annotator", keep="first", maintain_order=True
    )
    kept = own.join(best, on=["annotator", "measure"], how="semi")
    return in_reading_order(kept.sort("depth")).select(CURVE_COLUMNS)


def table_depths(rows: pl.DataFrame) -> pl.DataFrame:
    """The depth of each annotator's Table 1: columns annotator and depth.

    The largest of those at which most queries have a value: a judge that was asked about ten documents of each list has
    values of deeper lists only where these are short.
    """
    counts = rows.drop_nulls("value").group_by("annotator", "depth").agg(pl.col("num_queries").max())
    most = counts.sort("num_queries", "depth", descending=True)
    return most.unique("annotator", keep="first", maintain_order=True).select("annotator", "depth")


def whole_lists(correlations: pl.DataFrame) -> pl.DataFrame:
    """The rows over queries whose measure looks at the whole list, ideals over the run's own: the paper's."""
    return correlations.filter(
        pl.col("over") == "queries",
        pl.col("cutoff") == pl.col("depth"),
        pl.col("ideal").is_in([ANY, OWN_LIST]),
    )


def agreement_by_reader(
    jobs: Mapping[str, pl.DataFrame], depth: int, statistic: str, annotator: str = "erag"
) -> pl.DataFrame:
    """One annotator's agreement at one depth for several readers, by the measure that agrees best over all of them.

    The paper's Figures 2 and 3 (Salemi & Zamani, SIGIR 2024), for every run.

    Args:
        jobs: what to call a reader -> CORRELATIONS of a job with it.
        depth: number of documents.
        statistic: a key of `agreement.STATISTICS`.
        annotator: whose labels.

    Returns:
        Columns dataset, run_id, measure, reader and `VALUES`; datasets and runs that every job has. A measure
        without a value for one of the readers is not the best while another has all.
    """
    wanted = {"annotator": annotator, "depth": depth, "statistic": statistic}
    parts = [
        whole_lists(table).filter(**wanted).with_columns(reader=pl.lit(name)) for name, table in jobs.items()
    ]
    place = ["dataset", "run_id", "measure"]
    rows = pl.concat(parts).select(*place, "reader", *VALUES)
    shared = rows.filter(pl.col("reader").n_unique().over("dataset", "run_id") == len(jobs))
    # a mean of all of them, not of those that have a value
    means = shared.group_by(place).agg(
        mean=pl.when(pl.col("value").count() == len(jobs)).then(pl.col("value").mean())
    )
    ordered = means.sort(
        *place[:2], "mean", "measure", descending=[False, False, True, False], nulls_last=True
    )
    best = ordered.unique(place[:2], keep="first", maintain_order=True)
    return best.drop("mean").join(shared, on=place, maintain_order="left")
