"""The data of the paper's Figure 1: how agreement with the end-to-end utility changes with the number of documents."""

from __future__ import annotations

import polars as pl

from erag_ray.evaluate import ANY, OWN_LIST
from erag_ray.report.order import in_reading_order

CURVE_COLUMNS = ["annotator", "measure", "depth", "value", "low", "high", "num_queries"]


def agreement_by_depth(correlations: pl.DataFrame, dataset: str, run: str, statistic: str) -> pl.DataFrame:
    """For each annotator the measure that agrees best over all depths, and its agreement at each depth.

    The paper's Figure 1 (Salemi & Zamani, SIGIR 2024): there the best measure of each annotator too. Measures are taken
    over the whole list, ideals over the run's own; best is the highest mean over the depths at which it has a value.

    Returns:
        Columns `CURVE_COLUMNS`, annotators in reading order, depths ascending; a missing value is null.
    """
    own = correlations.filter(
        pl.col("over") == "queries",
        pl.col("dataset") == dataset,
        pl.col("run_id") == run,
        pl.col("statistic") == statistic,
        pl.col("cutoff") == pl.col("depth"),
        pl.col("ideal").is_in([ANY, OWN_LIST]),
    )
    means = own.group_by("annotator", "measure").agg(mean=pl.col("value").mean())
    best = means.sort("mean", "measure", descending=[True, False], nulls_last=True).unique(
        "annotator", keep="first", maintain_order=True
    )
    kept = own.join(best, on=["annotator", "measure"], how="semi")
    return in_reading_order(kept.sort("depth")).select(CURVE_COLUMNS)
