"""How far each label can be trusted: agreement with the end-to-end utility, over queries and over runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from erag_ray.report.grid import NOTHING, Grid, number, p_number, with_interval
from erag_ray.report.order import by_measure

FEW_VARIED = 20
STATISTIC_NAMES = {"kendall_tau_b": "tau", "spearman_rho": "rho"}


def correlation_grid(
    correlations: pl.DataFrame,
    dataset: str,
    depth: int,
    statistic: str,
    runs: Sequence[str],
    *,
    on_console: bool,
) -> Grid:
    """Annotators and measures down, runs across: one statistic against the utility at the same depth.

    The paper's Table 1 with intervals and ceilings (Salemi & Zamani, SIGIR 2024).
    """
    own = _at_full_depth(correlations, dataset, "queries", depth).filter(pl.col("statistic") == statistic)
    rows = []
    for annotator, name, part in by_measure(own):
        cells = {row["run_id"]: _correlation_cell(row) for row in part.iter_rows(named=True)}
        rows.append((annotator, name, *(cells.get(run, NOTHING) for run in runs)))
    symbol = STATISTIC_NAMES.get(statistic, statistic)
    return Grid(
        title=f"{dataset}: {symbol} of each measure with the end-to-end utility, over queries, {depth} documents",
        columns=("annotator", "measure", *runs),
        rows=tuple(rows),
        caption=f"{symbol} [interval] /ceiling, the most {symbol} that the ties in these data allow. "
        f"{_few_varied(own)}{reasons(own)}Other cut-offs are in the table correlations.",
        num_names=2,
        on_console=on_console,
    )


def _at_full_depth(correlations: pl.DataFrame, dataset: str, over: str, depth: int) -> pl.DataFrame:
    """One dataset's rows over queries or over runs, at one depth and the cut-off that equals it."""
    return correlations.filter(
        pl.col("dataset") == dataset,
        pl.col("over") == over,
        pl.col("depth") == depth,
        pl.col("cutoff") == depth,
    )


def _correlation_cell(row: Mapping[str, object]) -> str:
    value, low, high, ceiling = (_float(row[name]) for name in ("value", "low", "high", "ceiling"))
    return NOTHING if value is None else f"{with_interval(value, low, high)} /{number(ceiling, 2)}"


def _few_varied(rows: pl.DataFrame) -> str:
    """A warning about runs whose utility is the same for nearly all queries."""
    few = rows.filter((pl.col("num_varied") > 0) & (pl.col("num_varied") < FEW_VARIED))
    by_run = (
        few.group_by("run_id").agg(pl.col("num_varied").min(), pl.col("num_queries").max()).sort("run_id")
    )
    named = [f"{run}: {varied} of {queries}" for run, varied, queries in by_run.iter_rows()]
    if not named:
        return ""
    few_of = "; ".join(named)
    return (
        f"WARNING: these figures hang on few queries, those with another utility than the rest ({few_of}). "
    )


def _float(value: object) -> float | None:
    return value if isinstance(value, float) else None


def reasons(rows: pl.DataFrame) -> str:
    """Why figures or intervals are missing, the most frequent reasons first."""
    missing = rows.filter(pl.col("reason").is_not_null()).group_by("reason").len()
    ordered = missing.sort("len", "reason", descending=[True, False])
    listed = [f"{reason} ({count} cells)" for reason, count in ordered.head(3).iter_rows()]
    more = sum(ordered["len"].to_list()[3:])
    listed += [f"other reasons ({more} cells)"] if more else []
    return f"Missing: {'; '.join(listed)}. " if listed else ""


def across_runs_grid(correlations: pl.DataFrame, dataset: str, depth: int) -> Grid:
    """Whether each label ranks the retrievers as end-to-end evaluation does."""
    own = _at_full_depth(correlations, dataset, "runs", depth)
    statistics = own["statistic"].unique(maintain_order=True).to_list()
    num_runs = int(own["num_runs"].max() or 0)  # type: ignore[arg-type]
    counts = own["num_queries"].unique().sort().to_list()
    queries = " to ".join(map(str, dict.fromkeys(counts[:1] + counts[-1:])))
    rows = []
    for annotator, name, part in by_measure(own):
        found = {r["statistic"]: _with_p(r) for r in part.iter_rows(named=True)}
        rows.append((annotator, name, *(found.get(statistic, NOTHING) for statistic in statistics)))
    return Grid(
        title=f"{dataset}: do the labels rank the {num_runs} runs as end-to-end does, {depth} documents",
        columns=("annotator", "measure", *(STATISTIC_NAMES.get(s, s) for s in statistics)),
        rows=tuple(rows),
        caption=f"Means over {queries} queries, the same for every run; {num_runs} runs; p by permutation. With fewer "
        "than 8 runs there is no p-value, and hardly any certainty.",
        num_names=2,
    )


def _with_p(row: Mapping[str, object]) -> str:
    value, p_value = _float(row["value"]), _float(row["p_value"])
    return number(value) if p_value is None else f"{number(value)} (p = {p_number(p_value)})"
