"""The two best runs question by question: a figure of UTILITY."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from erag_ray.analyses.contract import Analysis, View
from erag_ray.analyses.parts.formats import with_documents
from erag_ray.analyses.parts.model import Figure
from erag_ray.measures.scores import score_sign
from erag_ray.store.schemas import QUERIES, UTILITY

MAX_BARS = 400
"""Maximum number of bars; with more questions a bar is a mean of neighbours."""
EQUAL = "equal"


def gain_by_question(view: View) -> Iterator[Figure]:
    """Plot the difference in utility between the best and the second run, question by question.

    Where the reader is right or wrong, one bar: the questions that either run gets better, and the others. Where its
    score has more values, a bar per question, sorted by difference.
    """
    if view.standing is None or len(view.scored) < 2:
        return
    (best, second), depth, score = view.scored[:2], view.standing.deepest, view.standing.score
    outcomes = {1: f"{best} better", 0: EQUAL, -1: f"{second} better"}
    sign = pl.col("difference").sign().cast(pl.Int64)
    better = sign.replace_strict(outcomes, return_dtype=pl.String)
    scores = view.rows(UTILITY).filter(depth=depth)
    values = _differences(scores, best, second, score_sign(score) or 1).with_columns(better=better)
    if values.is_empty():
        return
    counts = dict(values["better"].value_counts().iter_rows())
    won, equal, lost = (counts.get(name, 0) for name in outcomes.values())
    caption = (
        f"{with_documents(depth).capitalize()}, {best} serves the reader better on {won:,} questions, "
        f"{second} on {lost:,}; equal on {equal:,} of {values.height:,}."
    )
    if values["difference"].is_in([-1.0, 0.0, 1.0]).all():
        bar = pl.DataFrame(
            {
                "runs": f"{best} against {second}",
                "better": list(outcomes.values()),
                "questions": [won, equal, lost],
            }
        )
        data = bar.with_columns(share=pl.col("questions") / values.height)
        axes = {"x": "questions", "y": "runs", "x_title": "questions"}
    else:
        data = _bars(values, min(values.height, MAX_BARS)).with_columns(better=better)
        axes = {"x": "place", "y": "difference", "x_title": "questions, sorted by difference"}
        axes["y_title"] = f"difference of utility ({score})"
        if values.height > MAX_BARS:
            caption += f" A bar is the mean of {values.height / MAX_BARS:.1f} neighbouring questions."
    form: dict[str, Any] = {**axes, **view.about("gain", f"{best} against {second}, question by question")}
    yield Figure(
        data=data,
        mark="bar",
        color="better",
        color_names=tuple(outcomes.values()),
        grey=(EQUAL,),
        caption=caption,
        **form,
    )


def _differences(utility: pl.DataFrame, best: str, second: str, sign: int) -> pl.DataFrame:
    """Return query and difference of the questions that are judged with both runs, descending."""
    first, other = (utility.filter(run_id=run).drop_nulls("value") for run in (best, second))
    both = first.join(other.select("query_id", other="value"), on="query_id")
    differences = both.select(query="query_id", difference=(pl.col("value") - pl.col("other")) * sign)
    return differences.sort("difference", "query", descending=[True, False])


def _bars(values: pl.DataFrame, num_bars: int) -> pl.DataFrame:
    """Return place, difference, questions, query: a bar per question, or per group of neighbours."""
    bar = pl.int_range(pl.len()) * num_bars // values.height + 1
    bars = values.with_columns(place=bar).group_by("place", maintain_order=True)
    return bars.agg(
        pl.col("difference").mean(),
        questions=pl.len(),
        query=pl.when(pl.len() == 1).then(pl.col("query").first()),
    )


ANALYSIS = Analysis(shows=(UTILITY, QUERIES), show=gain_by_question)
