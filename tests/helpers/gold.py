"""PROVENANCE of a few questions."""

from collections.abc import Sequence

import polars as pl

from erag_ray.store.schemas import PROVENANCE

Pairs = Sequence[tuple[str, str]]


def gold_of(pages: Pairs = (), documents: Pairs = ()) -> pl.DataFrame:
    """Return PROVENANCE of pairs of a question and its gold page, and of a question and its gold document."""
    parts = [
        pl.DataFrame(rows, schema={"query_id": pl.String, name: pl.String}, orient="row")
        for name, rows in (("doc_id", documents), ("page_id", pages))
    ]
    rank = (pl.int_range(pl.len()).over("query_id") + 1).cast(pl.Int32)
    gold = pl.concat(parts, how="diagonal").with_columns(rank=rank)
    return gold.select(PROVENANCE.columns.names).sort("query_id", "rank")
