"""The distinct pairs of runs."""

from __future__ import annotations

import polars as pl


def pairs(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the distinct (query_id, doc_id) of all runs, sorted: the pairs to label."""
    return runs.select("query_id", "doc_id").unique().sort("query_id", "doc_id")
