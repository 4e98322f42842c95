"""Repeated answers: how far the score of a list moves from answer to answer, beside from question to question."""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from erag_ray.analyses.contract import READER, Analysis, View
from erag_ray.analyses.parts.model import Finding, Format, Part
from erag_ray.analyses.parts.shapes import field, listing, name_field, rows_of
from erag_ray.data.runs.references import REFERENCE_NAMES
from erag_ray.store.schemas import QUERIES, REPEATS, table_schema

REPEAT_SPREADS = table_schema(
    "repeat_spreads",
    "dataset* reader* score* run_a* run_b* depth* num_queries num_repeats mean sd_questions? sd_repeats "
    "share? standard_error? standard_error_once? standard_error_endless?",
)
LIST = ["dataset", "reader", "score", "depth"]
SPREADS = ("mean", "once", "noise", "count")
PAIR = [*LIST, "run_a", "run_b"]
DIGITS = 15
"""Decimal digits of a variance: what is left of equal scores by rounding is 0."""


def repeat_spreads(repeats: pl.DataFrame, queries: pl.DataFrame) -> pl.DataFrame:
    """REPEAT_SPREADS: spread between answers and between questions, of each run's mean and of each difference.

    Over the questions with at least two scores (of a difference: in both runs). A question's mean over its answers
    varies by the question and by the answers: ``sd_repeats`` is the standard deviation of one answer around that mean,
    ``sd_questions`` that of the questions without it (analysis of variance, one way; at least 0), ``share`` the part
    of the variance of the means of questions that comes from answers. The standard errors of the mean are as measured,
    with one answer, and with endlessly many. ``run_b`` is "" for a run's own mean.
    """
    by = [*LIST, "run_id", "query_id"]
    value = pl.col("value")
    scored = repeats.drop_nulls("value").join(queries.select("query_id", "dataset"), on="query_id")
    counts = scored.group_by(by).agg(
        mean=value.mean(), once=value.var(), count=pl.len(), noise=value.var() / pl.len()
    )
    of_each = counts.filter(pl.col("count") > 1).rename({"run_id": "run_a"}).with_columns(run_b=pl.lit(""))
    of_runs = of_each.filter(~pl.col("run_a").is_in(REFERENCE_NAMES)).drop("run_b")
    others = of_runs.rename({"run_a": "run_b"} | {name: f"{name}_b" for name in SPREADS})
    both = of_runs.join(others, on=[*LIST, "query_id"]).filter(pl.col("run_a") < pl.col("run_b"))
    differences = both.with_columns(
        mean=pl.col("mean") - pl.col("mean_b"),
        once=pl.col("once") + pl.col("once_b"),
        noise=pl.col("noise") + pl.col("noise_b"),
        count=pl.min_horizontal("count", "count_b"),
    )
    rows = pl.concat([of_each, differences.select(of_each.columns)]).sort(*PAIR, "query_id")
    of_all = rows.group_by(PAIR, maintain_order=True).agg(
        num_queries=pl.len().cast(pl.Int64),
        num_repeats=pl.col("count").max().cast(pl.Int64),
        mean=pl.col("mean").mean(),
        total=pl.col("mean").var().round(DIGITS),
        noise=pl.col("noise").mean(),
        once=pl.col("once").mean(),
    )
    total, noise, once, size = (pl.col(name) for name in ("total", "noise", "once", "num_queries"))
    between = (total - noise).clip(lower_bound=0.0).round(DIGITS)
    return of_all.with_columns(
        sd_questions=between.sqrt(),
        sd_repeats=once.sqrt(),
        share=pl.when(total > 0).then(pl.min_horizontal(noise / total, 1.0)),
        standard_error=(total / size).sqrt(),
        standard_error_once=((between + once) / size).sqrt(),
        standard_error_endless=(between / size).sqrt(),
    ).select(REPEAT_SPREADS.columns.names)


def show(view: View) -> Iterator[Part]:
    """Yield the spread between answers beside that between questions, and what one answer or more would change."""
    rows = view.rows(REPEAT_SPREADS)
    if rows.is_empty():
        return
    yield listing(
        rows_of(rows.sort(pl.col("run_b") != "", maintain_order=True)),
        (
            name_field("run", _name),
            field("documents", "depth", Format.COUNT),
            field("mean", "mean"),
            field("answers", "num_repeats", Format.COUNT, "Answers to each list"),
            field("sd questions", "sd_questions", meaning="Standard deviation between questions"),
            field("sd answers", "sd_repeats", meaning="Standard deviation between answers to a list"),
            field("share", "share", Format.SHARE, "Part of the variance of the mean that comes from answers"),
            field("if one", lambda row: _width(row, "once"), meaning="Width of the interval, of this one"),
            field(
                "if endless", lambda row: _width(row, "endless"), meaning="Width of the interval, of this one"
            ),
        ),
        caption="Of each run's mean score, and of the difference of two runs (a - b): standard deviations between "
        "questions and between answers to one list; the share of the mean's variance that comes from answers; and how "
        "wide the interval would be with one answer to each list, and with endlessly many, as a multiple of its width. "
        "All intervals of means and differences have both spreads in them.",
        **view.about("repeats", "spread between answers and between questions"),
    )
    yield from _findings(view, rows)


def _name(row: Mapping[str, Any]) -> str:
    return " - ".join(REFERENCE_NAMES.get(name, name) for name in (row["run_a"], row["run_b"]) if name)


def _width(row: Mapping[str, Any], answers: str) -> float | None:
    """Return how wide the interval would be, as a multiple of its width."""
    return row[f"standard_error_{answers}"] / row["standard_error"] if row["standard_error"] else None


def _findings(view: View, rows: pl.DataFrame) -> Iterator[Finding]:
    """Yield how much of the leading run's variance comes from answers, at the deepest lists."""
    if view.standing is None:
        return
    of_best = rows.filter(run_a=view.standing.runs[0], run_b="", depth=view.standing.deepest)
    for row in rows_of(of_best.head(1)):
        head = f"each list was answered {row['num_repeats']} times"
        if not row["sd_repeats"]:
            text = f"{head}, and all answers to a list of {row['run_a']} have one score"
        elif row["share"] is None:
            continue
        else:
            text = (
                f"{head}: {row['share']:.0%} of the variance of {row['run_a']}'s mean comes from its answers"
            )
            wider = _width(row, "once")
            if wider is not None and wider > 1:
                text += f"; with one answer each its interval would be {wider:.2f} times as wide"
        yield Finding(topic="certainty", text=text)


ANALYSIS = Analysis(
    schema=REPEAT_SPREADS,
    sources=(REPEATS, QUERIES),
    is_wanted=lambda config: config.repeats > 1,
    make=lambda evaluation, _: [repeat_spreads(evaluation.tables.read(REPEATS), evaluation.inputs.queries)],
    is_optional=True,
    show=show,
    group=READER,
)
