"""MEANS, COMPARISONS and UTILITY -> figures of end-to-end utility: over depth, between runs, by question."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from erag_ray.agreement import ALPHA
from erag_ray.report.figures.scope import Scope
from erag_ray.report.model import Figure
from erag_ray.runs import END_TO_END, GOLD_PASSAGES, REFERENCE_NAMES, REFERENCES

MAX_BARS = 400
"""Bars of the figure by question; with more questions a bar is the mean of neighbours."""
SIGNIFICANT, NOT_SIGNIFICANT = f"p < {ALPHA} (Holm)", "not significant"
EQUAL = "equal"


def utility_by_depth(means: pl.DataFrame, scope: Scope) -> Figure | None:
    """Plot mean utility over the number of documents: a line and band per run; closed book and gold as rules.

    Args:
        means: MEANS.
        scope: what is shown.
    """
    used = means.filter(
        dataset=scope.dataset, annotator=END_TO_END, reader=scope.reader, score=scope.score
    ).drop_nulls("mean")
    own = in_order(used.filter(pl.col("run_id").is_in(scope.runs)), scope.runs).sort(
        "place", "depth", maintain_order=True
    )
    if own.is_empty():
        return None
    names = {"run_id": "run", "depth": "documents", "mean": "utility", "num_queries": "questions"}
    references = used.filter(pl.col("run_id").is_in(REFERENCES))
    return Figure(
        name=scope.name("utility"),
        title=f"{scope.dataset}: utility by number of documents",
        data=own.rename(names).select("run", "documents", "utility", "low", "high", "questions"),
        mark="line",
        x="documents",
        y="utility",
        low="low",
        high="high",
        color="run",
        color_names=scope.color_names,
        rules={REFERENCE_NAMES[row["run_id"]]: row["mean"] for row in references.to_dicts()},
        x_title="documents in the prompt (k)",
        y_title=f"utility (mean {scope.score})",
        caption=f"Mean score of the reader's output with the first k documents; bands: {scope.interval}."
        f"{_gold_note(references, own)}{scope.notes}",
        is_main=True,
        dataset=scope.dataset,
    )


def in_order(rows: pl.DataFrame, runs: tuple[str, ...]) -> pl.DataFrame:
    """Add ``place``: that of ``run_id`` among the runs, best first; sorted by it."""
    places = pl.DataFrame(
        {"run_id": runs, "place": range(len(runs))}, schema={"run_id": pl.String, "place": pl.Int64}
    )
    return rows.join(places, on="run_id", how="left", maintain_order="left").sort(
        "place", maintain_order=True
    )


def _gold_note(references: pl.DataFrame, own: pl.DataFrame) -> str:
    """Whether gold passages are known of fewer questions."""
    counts = references.filter(run_id=GOLD_PASSAGES)["num_queries"].to_list()
    most = own["num_queries"].max()
    return (
        f" Gold passages: {counts[0]:,} of {int(str(most)):,} questions."
        if counts and counts[0] != most
        else ""
    )


def run_differences(comparisons: pl.DataFrame, scope: Scope) -> Figure | None:
    """Plot the difference of every two runs by utility with its interval, a panel per depth, the largest first.

    A pair is named ``better - worse`` and placed by its difference at the largest depth that it is compared at.

    Args:
        comparisons: COMPARISONS.
        scope: what is shown.
    """
    used = comparisons.filter(
        pl.col("run_a").is_in(scope.runs) & pl.col("run_b").is_in(scope.runs),
        dataset=scope.dataset,
        annotator=END_TO_END,
        reader=scope.reader,
        score=scope.score,
    )
    own = used.drop_nulls("difference")
    if own.is_empty():
        return None
    num_missing = used.height - own.height
    missing = (
        f" Not compared: {num_missing} of {used.height} (a run never scored above 0)." if num_missing else ""
    )
    return Figure(
        name=scope.name("differences"),
        title=f"{scope.dataset}: differences of runs by utility (mean {scope.score})",
        data=_oriented(own),
        mark="interval",
        x="difference",
        y="pair",
        low="low",
        high="high",
        color="test",
        color_names=(SIGNIFICANT, NOT_SIGNIFICANT),
        facet="documents",
        rules={"no difference": 0.0},
        x_title="difference of utility",
        y_title="runs",
        caption=f"Paired over questions, with {scope.interval}; sorted by the difference at the largest depth. p by "
        f"random sign flips with Holm's correction over all pairs of runs at that depth.{missing}{scope.notes}",
        is_main=True,
        dataset=scope.dataset,
    )


def _oriented(own: pl.DataFrame) -> pl.DataFrame:
    """The pairs with the better run first, by the difference at their largest depth, and the largest of these first."""
    pair = ["run_a", "run_b"]
    deepest = own.sort("depth").group_by(pair).agg(size=pl.col("difference").last())
    joined = own.join(deepest, on=pair)
    turned = pl.col("size") < 0
    p_value = pl.col("p_adjusted")
    return (
        joined.sort(pl.col("size").abs(), *pair, "depth", descending=[True, False, False, False])
        .select(
            pair=pl.when(turned)
            .then(pl.format("{} - {}", "run_b", "run_a"))
            .otherwise(pl.format("{} - {}", "run_a", "run_b")),
            documents=pl.format("k = {}", "depth"),
            difference=_turn("difference", "difference", turned),
            low=_turn("low", "high", turned),
            high=_turn("high", "low", turned),
            test=pl.when(p_value < ALPHA).then(pl.lit(SIGNIFICANT)).otherwise(pl.lit(NOT_SIGNIFICANT)),
            p=p_value,
            depth="depth",
        )
        .sort("depth", maintain_order=True)
        .drop("depth")
    )


def _turn(kept: str, other: str, turned: pl.Expr) -> pl.Expr:
    return pl.when(turned).then(-pl.col(other)).otherwise(pl.col(kept))


def gain_by_question(utility: pl.DataFrame, queries: pl.DataFrame, scope: Scope) -> Figure | None:
    """Plot by how much each question is answered better with the best run than with the second, sorted.

    Args:
        utility: UTILITY.
        queries: QUERIES.
        scope: what is shown.
    """
    if len(scope.runs) < 2:
        return None
    best, second = scope.runs[:2]
    values, names = (
        _differences(utility, queries, scope),
        {1: f"{best} better", -1: f"{second} better", 0: EQUAL},
    )
    if values.is_empty():
        return None
    counts = {
        name: values.filter(condition).height
        for name, condition in (
            (best, pl.col("difference") > 0),
            (second, pl.col("difference") < 0),
            (EQUAL, pl.col("difference") == 0),
        )
    }
    return Figure(
        name=scope.name("gain"),
        title=f"{scope.dataset}: {best} against {second}, question by question",
        data=_bars(values, names),
        mark="bar",
        x="place",
        y="difference",
        color="better",
        color_names=tuple(names.values()),
        x_title="questions, sorted by difference",
        y_title=f"difference of utility ({scope.score})",
        caption=_gain_caption(counts, values.height, scope),
        dataset=scope.dataset,
    )


def _differences(utility: pl.DataFrame, queries: pl.DataFrame, scope: Scope) -> pl.DataFrame:
    """query, difference: of the questions judged with both runs at the largest depth, the largest first."""
    of_dataset = queries.filter(dataset=scope.dataset).select("query_id")
    own = utility.filter(reader=scope.reader, score=scope.score, depth=scope.depth).drop_nulls("value")
    first, second = (
        own.filter(run_id=run).join(of_dataset, on="query_id", how="semi") for run in scope.runs[:2]
    )
    both = first.join(second, on="query_id", suffix="_second")
    return both.select(query="query_id", difference=pl.col("value") - pl.col("value_second")).sort(
        "difference", "query", descending=[True, False]
    )


def _bars(values: pl.DataFrame, names: Mapping[int, str]) -> pl.DataFrame:
    """place, difference, better, questions, query: a bar per question, or per neighbours where there are too many."""
    num_bars = min(values.height, MAX_BARS)
    place = pl.int_range(pl.len()) * num_bars // values.height + 1
    bars = (
        values.with_columns(place=place)
        .group_by("place", maintain_order=True)
        .agg(
            pl.col("difference").mean(),
            questions=pl.len(),
            query=pl.when(pl.len() == 1).then(pl.col("query").first()),
        )
    )
    sign = pl.col("difference").sign().cast(pl.Int64)
    return bars.with_columns(better=sign.replace_strict(names, return_dtype=pl.String))


def _gain_caption(counts: Mapping[str, int], total: int, scope: Scope) -> str:
    best, second = scope.runs[:2]
    grouped = (
        f" A bar is the mean of {total / MAX_BARS:.1f} neighbouring questions." if total > MAX_BARS else ""
    )
    return (
        f"With {scope.depth} documents, {best} serves the reader better on {counts[best]:,} questions, {second} on "
        f"{counts[second]:,}; equal on {counts[EQUAL]:,} of {total:,}.{grouped}"
    )
