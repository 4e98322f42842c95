"""Useful and harmful documents: a figure of labels by rank, and where gains can show that a document does harm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from erag_ray.analyses.contract import LABELLING, Analysis, Results, View
from erag_ray.analyses.order import in_run_order
from erag_ray.analyses.parts.model import Figure, Note
from erag_ray.analyses.scope import MAX_LABELLED, Scope
from erag_ray.annotators import PAIR, TAIL
from erag_ray.measures.agreement import wilson_interval
from erag_ray.store.schemas import LABELS, QUERIES, RUNS

HARM = ("gain", "gain_likelihood")
"""Annotators whose negative labels mean harm."""
JUDGEMENTS: Mapping[str, tuple[str, pl.Expr]] = {
    "erag": ("useful (erag > 0)", pl.col("label") > 0),
    **{name: (f"harmful ({name} < 0)", pl.col("label") < 0) for name in HARM},
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
    annotators = labels["annotator"].unique().to_list()
    missing = (
        "" if set(HARM) & set(annotators) else f" Harm is not shown: no annotator of {' and '.join(HARM)}."
    )
    closed = " gain is below 0 only on questions answered without passages." if "gain" in annotators else ""
    binary = labels.filter(annotator="erag")["label"].is_in([0.0, 1.0]).all()
    graded = "" if binary else f" Labels are graded ({scope.score}): any score above 0 counts as useful."
    bands = f"bands: {scope.confidence:.0%} Wilson interval."
    return f"Over the judged documents; {bands}{graded}{closed}{missing}{scope.best(MAX_LABELLED)}"


ANALYSIS = Analysis(shows=(LABELS, RUNS, QUERIES), show=shares_by_rank, group=LABELLING)


MIN_SHARE, MIN_QUESTIONS = 0.1, 20
"""Minimum share and number of questions answered closed-book. Below the share, `gain` misses nine of ten harmful
documents; below the number, the 95 % Wilson interval of a share is wider than 20 points either way."""
Rows = Sequence[Mapping[str, Any]]


def harm_notes(closed_book: Rows, noise: Rows) -> Iterator[str]:
    """Yield a line for each dataset and kind of gain.

    Args:
        closed_book: rows of `closed_book_answers`, if `gain` is among the annotators.
        noise: rows of `likelihood_noise`, if `gain_likelihood` is.
    """
    for row in closed_book:
        text = "gain can fall below 0 only on the questions that the reader answers without documents"
        yield f"{row['dataset']}: {text}, {_share(row)}"
    for row in (row for row in noise if row["num_pairs"]):
        yield (
            f"{row['dataset']}: gain_likelihood is 0 where the gold answers are {_factor(row['low'])} to "
            f"{_factor(row['high'])} times as likely as is usual with documents unrelated to the question: "
            f"the noise of {row['num_pairs']:,} such documents"
        )


def harm_warnings(closed_book: Rows, noise: Rows) -> Iterator[str]:
    """Yield warnings about datasets with too little data to detect harm; arguments as in `harm_notes`."""
    for row in closed_book:
        answered = row["num_answered"]
        if answered < MIN_QUESTIONS or answered < MIN_SHARE * row["num_questions"]:
            yield (
                f"{row['dataset']}: gain can show harm on {_share(row)} only: the reader answers no others without "
                "documents, and there gain is never below 0. gain_likelihood does not need such answers"
            )
    for row in noise:
        start, pairs = f"{row['dataset']}: gain_likelihood:", row["num_pairs"]
        if not pairs:
            yield f"{start} there are no documents unrelated to a question, so every label is null. Use more questions"
        elif pairs < TAIL - 1:
            yield (
                f"{start} the noise is estimated from {pairs} unrelated documents, fewer than {TAIL - 1}, so more than "
                "5 % of them exceed it. Use more questions"
            )


def _share(row: Mapping[str, Any]) -> str:
    answered, questions = row["num_answered"], row["num_questions"]
    return f"{answered:,} of {questions:,} questions ({answered / questions:.1%})"


def _factor(bound: float) -> str:
    return f"{math.exp(bound):#.3g}"


def show_notes(results: Results) -> Iterator[Note]:
    """Yield notes and warnings about the annotators ``gain`` and ``gain_likelihood``, if the job has them."""
    closed_book, noise = (results.config(LABELS).get(name, []) for name in ("closed_book", "noise"))
    yield from (Note(text=text) for text in harm_notes(closed_book, noise))
    yield from (Note(text=text, is_warning=True) for text in harm_warnings(closed_book, noise))


OF_HARM = Analysis(shows=(LABELS,), show_all=show_notes)
