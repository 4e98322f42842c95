"""Figures of end-to-end utility: by depth, between runs, and by question."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from erag_ray.report.figures.scope import Scope
from erag_ray.report.formats import counted
from erag_ray.report.model import Figure
from erag_ray.runs import END_TO_END, GOLD_PASSAGES, REFERENCE_NAMES, REFERENCES

MAX_BARS = 400
"""Maximum number of bars in the figure by question; with more questions a bar is a mean of neighbours."""
SIGNIFICANT, NOT_SIGNIFICANT = "significant (Holm)", "inconclusive"
EQUAL = "equal"


def utility_by_depth(means: pl.DataFrame, scope: Scope) -> Figure | None:
    """Plot mean utility by number of documents: a line and band per run; closed book and gold as reference lines.

    Args:
        means: MEANS.
        scope: the selection to show.
    """
    utility = means.filter(
        dataset=scope.dataset, annotator=END_TO_END, reader=scope.reader, score=scope.score
    ).drop_nulls("mean")
    selected = in_order(utility.filter(pl.col("run_id").is_in(scope.runs)), scope.runs).sort(
        "run_number", "depth", maintain_order=True
    )
    if selected.is_empty():
        return None
    names = {"run_id": "run", "depth": "documents", "mean": "utility", "num_queries": "questions"}
    references = utility.filter(pl.col("run_id").is_in(REFERENCES))
    return Figure(
        name=scope.name("utility"),
        title=f"{scope.dataset}: utility by number of documents",
        data=selected.rename(names).select("run", "documents", "utility", "low", "high", "questions"),
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
        f"{_gold_note(references, selected)}{scope.notes}",
        is_main=True,
        dataset=scope.dataset,
    )


def in_order(rows: pl.DataFrame, runs: tuple[str, ...]) -> pl.DataFrame:
    """Add ``run_number``, the index of ``run_id`` in ``runs``, and sort by it."""
    numbers = pl.DataFrame(
        {"run_id": runs, "run_number": range(len(runs))}, schema={"run_id": pl.String, "run_number": pl.Int64}
    )
    return rows.join(numbers, on="run_id", how="left", maintain_order="left").sort(
        "run_number", maintain_order=True
    )


def _gold_note(references: pl.DataFrame, utility: pl.DataFrame) -> str:
    """Return a note if fewer questions have gold passages."""
    counts = references.filter(run_id=GOLD_PASSAGES)["num_queries"].to_list()
    most = utility["num_queries"].max()
    return (
        f" Gold passages: {counts[0]:,} of {int(str(most)):,} questions."
        if counts and counts[0] != most
        else ""
    )


def run_differences(comparisons: pl.DataFrame, scope: Scope) -> Figure | None:
    """Plot the difference in utility of all pairs of runs with its interval, a panel per depth, the largest first.

    A pair is named ``better - worse`` and sorted by its difference at the largest depth of its comparisons.

    Args:
        comparisons: COMPARISONS.
        scope: the selection to show.
    """
    pairs = comparisons.filter(
        pl.col("run_a").is_in(scope.runs) & pl.col("run_b").is_in(scope.runs),
        dataset=scope.dataset,
        annotator=END_TO_END,
        reader=scope.reader,
        score=scope.score,
    )
    compared = pairs.drop_nulls("difference")
    if compared.is_empty():
        return None
    num_missing = pairs.height - compared.height
    missing = f" Not compared: {num_missing} of {pairs.height} (too few questions)." if num_missing else ""
    return Figure(
        name=scope.name("differences"),
        title=f"{scope.dataset}: differences of runs by utility (mean {scope.score})",
        data=_oriented(compared, 1 - scope.confidence),
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
        caption=f"Paired over questions; sorted by the difference at the largest depth. Intervals ({scope.interval} "
        "where one pair is compared) and p by sign flips, with Holm's correction over all pairs of runs and depths: an "
        f"interval excludes 0 exactly if the pair is significant.{missing}{scope.notes}",
        is_main=True,
        dataset=scope.dataset,
    )


def _oriented(pairs: pl.DataFrame, alpha: float) -> pl.DataFrame:
    """Put the better run of each pair first, and sort by the difference at the largest depth, descending."""
    pair = ["run_a", "run_b"]
    deepest = pairs.sort("depth").group_by(pair).agg(size=pl.col("difference").last())
    joined = pairs.join(deepest, on=pair)
    is_reversed = pl.col("size") < 0
    p_value = pl.col("p_adjusted")
    return (
        joined.sort(pl.col("size").abs(), *pair, "depth", descending=[True, False, False, False])
        .select(
            pair=pl.when(is_reversed)
            .then(pl.format("{} - {}", "run_b", "run_a"))
            .otherwise(pl.format("{} - {}", "run_a", "run_b")),
            documents=pl.format("k = {}", "depth"),
            difference=_signed("difference", "difference", is_reversed),
            low=_signed("low_adjusted", "high_adjusted", is_reversed),
            high=_signed("high_adjusted", "low_adjusted", is_reversed),
            test=pl.when(p_value <= alpha).then(pl.lit(SIGNIFICANT)).otherwise(pl.lit(NOT_SIGNIFICANT)),
            p=p_value,
            depth="depth",
        )
        .sort("depth", maintain_order=True)
        .drop("depth")
    )


def _signed(column: str, opposite: str, is_reversed: pl.Expr) -> pl.Expr:
    return pl.when(is_reversed).then(-pl.col(opposite)).otherwise(pl.col(column))


def gain_by_question(utility: pl.DataFrame, queries: pl.DataFrame, scope: Scope) -> Figure | None:
    """Plot the difference in utility between the best and the second run, question by question, sorted.

    Args:
        utility: UTILITY.
        queries: QUERIES.
        scope: the selection to show.
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
    """Return query and difference of the questions judged with both runs at the largest depth, descending."""
    of_dataset = queries.filter(dataset=scope.dataset).select("query_id")
    scores = utility.filter(reader=scope.reader, score=scope.score, depth=scope.depth).drop_nulls("value")
    first, second = (
        scores.filter(run_id=run).join(of_dataset, on="query_id", how="semi") for run in scope.runs[:2]
    )
    both = first.join(second.select("query_id", other="value"), on="query_id")
    return both.select(query="query_id", difference=pl.col("value") - pl.col("other")).sort(
        "difference", "query", descending=[True, False]
    )


def _bars(values: pl.DataFrame, names: Mapping[int, str]) -> pl.DataFrame:
    """Return place, difference, better, questions, query: a bar per question, or per group of neighbours."""
    num_bars = min(values.height, MAX_BARS)
    bar = pl.int_range(pl.len()) * num_bars // values.height + 1
    bars = (
        values.with_columns(place=bar)
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
        f"With {counted(scope.depth, 'document')}, {best} serves the reader better on {counts[best]:,} questions, "
        f"{second} on {counts[second]:,}; equal on {counts[EQUAL]:,} of {total:,}.{grouped}"
    )
