"""Useful and harmful documents by rank: a figure of labels."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from erag_ray.analyses.contract import LABELLING, Analysis, View
from erag_ray.analyses.order import in_run_order
from erag_ray.analyses.parts.model import Figure
from erag_ray.analyses.parts.shapes import present
from erag_ray.analyses.scope import MAX_LABELLED, Scope
from erag_ray.annotators import PAIR
from erag_ray.measures.agreement import wilson_interval
from erag_ray.store.schemas import LABELS, QUERIES, RUNS

HARM = ("gain", "gain_likelihood")
"""Annotators whose negative labels mean harm."""


def shares_by_rank(
    labels: pl.DataFrame, runs: pl.DataFrame, queries: pl.DataFrame, scope: Scope
) -> Figure | None:
    """Plot the share of useful (erag > 0) and harmful (gain < 0) documents by rank, with Wilson intervals.

    Args:
        labels: LABELS.
        runs: RUNS.
        queries: QUERIES.
        scope: the selection to show.
    """
    of_dataset = queries.filter(dataset=scope.dataset, score=scope.score).select("query_id")
    lists = runs.filter(pl.col("run_id").is_in(scope.runs[:MAX_LABELLED])).join(
        of_dataset, on="query_id", how="semi"
    )
    judged = labels.filter(pl.col("annotator").is_in(["erag", *HARM]), reader=scope.reader).drop_nulls(
        "label"
    )
    selected = judged.join(of_dataset, on="query_id", how="semi")
    parts = [
        _counts(lists, selected.filter(annotator=annotator), condition).with_columns(documents=pl.lit(name))
        for annotator, name, condition in _judgements(selected)
    ]
    rows = pl.concat(parts) if parts else pl.DataFrame()
    if rows.is_empty():
        return None
    ordered = in_run_order(rows, scope.runs).sort("run_number", "rank", maintain_order=True)
    return Figure(
        name=scope.name("shares"),
        title=f"{scope.dataset}: useful{' and harmful' if len(parts) > 1 else ''} documents by rank",
        data=_with_wilson(ordered, scope.confidence).select(
            pl.col("run_id").alias("run"), "rank", "share", "low", "high", "documents", "positive", "judged"
        ),
        mark="line",
        x="rank",
        y="share",
        low="low",
        high="high",
        color="run",
        color_names=scope.color_names[:MAX_LABELLED],
        facet="documents",
        x_title="rank in the retrieved list",
        y_title="share of the documents at this rank",
        caption=_shares_caption(selected, scope),
        is_main=True,
        dataset=scope.dataset,
    )


def _judgements(labels: pl.DataFrame) -> Iterator[tuple[str, str, pl.Expr]]:
    """Yield each annotator of use or harm: its name, the name of the property, and its condition."""
    annotators = labels["annotator"].unique().to_list()
    if "erag" in annotators:
        yield "erag", "useful (erag > 0)", pl.col("label") > 0
    for name in HARM:
        if name in annotators:
            yield name, f"harmful ({name} < 0)", pl.col("label") < 0


def _counts(lists: pl.DataFrame, labels: pl.DataFrame, condition: pl.Expr) -> pl.DataFrame:
    """Count positive and judged documents: columns run_id, rank, positive, judged."""
    marked = labels.select(*PAIR, positive=condition)
    joined = lists.select("run_id", "rank", *PAIR).join(marked, on=PAIR)
    return joined.group_by("run_id", "rank").agg(pl.col("positive").sum().cast(pl.Int64), judged=pl.len())


def _with_wilson(rows: pl.DataFrame, confidence: float) -> pl.DataFrame:
    """Add share, low and high: ``positive`` / ``judged`` with its interval (Wilson, 1927)."""
    pairs = rows.select("positive", "judged").iter_rows()
    intervals = [wilson_interval(positive, judged, confidence) for positive, judged in pairs]
    schema = {"share": pl.Float64, "low": pl.Float64, "high": pl.Float64}
    return rows.hstack(pl.DataFrame(intervals, schema=schema, orient="row"))


def _shares_caption(labels: pl.DataFrame, scope: Scope) -> str:
    annotators = labels["annotator"].unique().to_list()
    missing = (
        "" if set(HARM) & set(annotators) else f" Harm is not shown: no annotator of {' and '.join(HARM)}."
    )
    closed = " gain is below 0 only on questions answered without passages." if "gain" in annotators else ""
    binary = labels.filter(annotator="erag")["label"].is_in([0.0, 1.0]).all()
    graded = "" if binary else f" Labels are graded ({scope.score}): any score above 0 counts as useful."
    bands = f"bands: {scope.confidence:.0%} Wilson interval."
    return f"Over the judged documents; {bands}{graded}{closed}{missing}{scope.best(MAX_LABELLED)}"


def show(view: View) -> Iterator[Figure]:
    """Yield the figure, if there are labels."""
    results = view.results
    if view.scope is not None:
        yield from present(shares_by_rank(results[LABELS], results[RUNS], results[QUERIES], view.scope))


ANALYSIS = Analysis(shows=(LABELS, RUNS, QUERIES), show=show, group=LABELLING)
