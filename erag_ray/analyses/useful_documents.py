"""Useful and harmful documents: a figure of labels by rank, and where gains can show that a document does harm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from erag_ray.analyses.contract import LABELLING, Analysis, Results, View
from erag_ray.analyses.order import in_run_order
from erag_ray.analyses.parts.model import Figure, Note
from erag_ray.analyses.scope import MAX_LABELLED, Scope
from erag_ray.annotators import PAIR
from erag_ray.measures.agreement import wilson_interval
from erag_ray.store.schemas import LABELS, QUERIES, RUNS

JUDGEMENTS: Mapping[str, tuple[str, pl.Expr]] = {
    "erag": ("useful (erag > 0)", pl.col("label") > 0),
    "gain": ("harmful (gain < 0)", pl.col("label") < 0),
}
"""Annotator of use or harm -> the name of what it judges, and the condition of its labels."""


def shares_by_rank(view: View) -> Iterator[Figure]:
    """Plot the share of useful (erag > 0) and harmful (gain < 0) documents by rank, with Wilson intervals."""
    scope, results = view.scope, view.results
    if scope is None:
        return
    of_dataset = view.rows(QUERIES).filter(score=scope.score).select("query_id")
    lists = (
        results[RUNS]
        .filter(pl.col("run_id").is_in(scope.runs[:MAX_LABELLED]))
        .join(of_dataset, on="query_id", how="semi")
    )
    judged = (
        results[LABELS]
        .filter(pl.col("annotator").is_in(list(JUDGEMENTS)), reader=scope.reader)
        .drop_nulls("label")
    )
    selected = judged.join(of_dataset, on="query_id", how="semi")
    parts = [
        _counts(lists, selected.filter(annotator=annotator), condition).with_columns(documents=pl.lit(name))
        for annotator, (name, condition) in JUDGEMENTS.items()
        if annotator in selected["annotator"]
    ]
    rows = pl.concat(parts) if parts else pl.DataFrame()
    if rows.is_empty():
        return
    ordered = in_run_order(rows, scope.runs).sort("run_number", "rank", maintain_order=True)
    yield Figure(
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
        **view.about("shares", f"useful{' and harmful' if len(parts) > 1 else ''} documents by rank"),
    )


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
    harm = (
        " gain is below 0 only on questions answered without passages."
        if "gain" in labels["annotator"]
        else " Harm is not shown: the annotator gain is missing."
    )
    binary = labels.filter(annotator="erag")["label"].is_in([0.0, 1.0]).all()
    graded = "" if binary else f" Labels are graded ({scope.score}): any score above 0 counts as useful."
    bands = f"bands: {scope.confidence:.0%} Wilson interval."
    return f"Over the judged documents; {bands}{graded}{harm}{scope.best(MAX_LABELLED)}"


ANALYSIS = Analysis(shows=(LABELS, RUNS, QUERIES), show=shares_by_rank, group=LABELLING)


MIN_SHARE, MIN_QUESTIONS = 0.1, 20
"""Minimum share and number of questions answered closed-book. Below the share, `gain` misses nine of ten harmful
documents; below the number, the 95 % Wilson interval of a share is wider than 20 points either way."""


def harm_notes(closed_book: Sequence[Mapping[str, Any]]) -> Iterator[Note]:
    """Yield a note for each row of `closed_book_answers`, and a warning where they are too few to show harm."""
    for row in closed_book:
        dataset, answered, questions = row["dataset"], row["num_answered"], row["num_questions"]
        share = f"{answered:,} of {questions:,} questions ({answered / questions:.1%})"
        text = "gain can fall below 0 only on the questions that the reader answers without documents"
        yield Note(text=f"{dataset}: {text}, {share}")
        if answered < MIN_QUESTIONS or answered < MIN_SHARE * questions:
            reason = "the reader answers no others without documents, and there gain is never below 0"
            yield Note(text=f"{dataset}: gain can show harm on {share} only: {reason}", is_warning=True)


def show_notes(results: Results) -> Iterator[Note]:
    """Yield notes and warnings about the annotator ``gain``, if the job has it."""
    yield from harm_notes(results.config(LABELS).get("closed_book", []))


OF_HARM = Analysis(shows=(LABELS,), show_all=show_notes)
