"""RETRIEVAL_SECONDS: how long retrieval takes, next to the utility that it brings."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from erag_ray.analyses.contract import READER, Analysis, View
from erag_ray.analyses.means import MEANS
from erag_ray.analyses.order import in_run_order
from erag_ray.analyses.parts.model import Format, Table
from erag_ray.analyses.parts.shapes import estimate, field, listing, name_field, rows_of
from erag_ray.data.runs.references import END_TO_END
from erag_ray.store.schemas import QUERIES, RETRIEVAL_SECONDS

MILLISECONDS = 1000
HIGH_QUANTILE = 0.95


def show(view: View) -> Iterator[Table]:
    """Yield utility at the largest depth, and median and 95th percentile of the latency, for every run.

    Only if the lists of any run bring seconds.
    """
    milliseconds = pl.col("seconds") * MILLISECONDS
    latencies = (
        view.rows(RETRIEVAL_SECONDS)
        .group_by("run_id")
        .agg(
            median=milliseconds.median(),
            high_quantile=milliseconds.quantile(HIGH_QUANTILE, interpolation="linear"),
            count=pl.len(),
        )
    )
    utility = view.rows(MEANS).filter(annotator=END_TO_END)
    depth = max(utility["depth"], default=0)
    deepest = utility.filter(depth=depth).select("run_id", "mean", "low", "high")
    runs = pl.DataFrame({"run_id": view.runs}, schema={"run_id": pl.String})
    rows = runs.join(deepest, on="run_id", how="left").join(latencies, on="run_id", how="left")
    unknown = pl.when(pl.col("count").is_null()).then(pl.lit("the lists bring no seconds"))
    if view.results[RETRIEVAL_SECONDS].height:
        yield listing(
            rows_of(in_run_order(rows.with_columns(reason=unknown), view.runs)),
            (
                name_field("run", "run_id"),
                field(f"utility@{depth}", lambda row: estimate({**row, "reason": None}, "mean")),
                field("median (ms)", "median", Format.TENTHS),
                field("p95 (ms)", "high_quantile", Format.TENTHS),
                field("questions", "count", Format.COUNT, "Questions whose latency is known"),
            ),
            caption="Latency of retrieval: milliseconds from the question to its list, as the run brings them; median "
            "and 95th percentile over questions. utility@k: mean score of the reader's output with the first k "
            "documents. Latencies of runs that were made on different machines, or under different load, do not "
            "compare.",
            is_main=view.is_only,
            **view.about("latency", "how long retrieval takes"),
        )


ANALYSIS = Analysis(shows=(RETRIEVAL_SECONDS, MEANS, QUERIES), is_optional=True, show=show, group=READER)
