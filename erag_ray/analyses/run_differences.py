"""Differences of runs by utility: a figure of COMPARISONS."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from erag_ray.analyses.comparisons import COMPARISONS
from erag_ray.analyses.contract import Analysis, View
from erag_ray.analyses.parts.model import Figure
from erag_ray.analyses.parts.shapes import present
from erag_ray.analyses.scope import Scope
from erag_ray.data.runs.references import END_TO_END

SIGNIFICANT, NOT_SIGNIFICANT = "significant (Holm)", "inconclusive"


def show(view: View) -> Iterator[Figure]:
    """Yield the figure, if runs are compared."""
    if view.scope is not None:
        yield from present(run_differences(view.rows(COMPARISONS), view.scope))


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


ANALYSIS = Analysis(shows=(COMPARISONS,), show=show)
