"""How far each label can be trusted: agreement with the end-to-end utility, over queries and over runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from erag_ray.report.formats import number, p_number
from erag_ray.report.model import Table, Value
from erag_ray.report.tables.sorting import by_measure
from erag_ray.report.values import across, columns, estimate, names, part_name, plain

FEW_VARIED = 20
STATISTIC_NAMES = {"kendall_tau_b": "tau", "spearman_rho": "rho"}


def correlation_table(
    correlations: pl.DataFrame, dataset: str, depth: int, statistic: str, runs: Sequence[str]
) -> Table:
    """Return annotators and measures down, runs across: one statistic against the utility at the same depth.

    The paper's Table 1 with intervals and ceilings (Salemi & Zamani, SIGIR 2024).
    """
    own = at_full_depth(correlations, dataset, "queries", depth).filter(pl.col("statistic") == statistic)
    rows = []
    for annotator, name, part in by_measure(own):
        cells = {row["run_id"]: agreement(row) for row in part.iter_rows(named=True)}
        rows.append((*plain(annotator, name), *across(cells, runs)))
    symbol = STATISTIC_NAMES.get(statistic, statistic)
    return Table(
        name=part_name("correlations", dataset, depth, statistic),
        title=f"{dataset}: {symbol} of each measure with the end-to-end utility, over queries, {depth} documents",
        columns=(*names("annotator", "measure"), *columns(runs)),
        rows=tuple(rows),
        caption=f"{symbol} [interval] /ceiling, the most {symbol} that the ties in these data allow. "
        f"{few_varied(own)}{reasons(own)}Other cut-offs are in the table correlations.",
        dataset=dataset,
    )


def at_full_depth(correlations: pl.DataFrame, dataset: str, over: str, depth: int) -> pl.DataFrame:
    """Return one dataset's rows over queries or over runs, at one depth and the cut-off that equals it."""
    return correlations.filter(
        pl.col("dataset") == dataset,
        pl.col("over") == over,
        pl.col("depth") == depth,
        pl.col("cutoff") == depth,
    )


def agreement(row: Mapping[str, Any]) -> Value:
    """Return a row's statistic with its interval, and its ceiling as the note."""
    return estimate(row, note=f"/{number(row['ceiling'], 2)}")


def few_varied(rows: pl.DataFrame) -> str:
    """Return a warning about runs whose utility is the same for nearly all queries."""
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


def reasons(rows: pl.DataFrame) -> str:
    """Return why figures or intervals are missing, the most frequent reasons first."""
    missing = rows.filter(pl.col("reason").is_not_null()).group_by("reason").len()
    ordered = missing.sort("len", "reason", descending=[True, False])
    listed = [f"{reason} ({count} cells)" for reason, count in ordered.head(3).iter_rows()]
    more = sum(ordered["len"].to_list()[3:])
    listed += [f"other reasons ({more} cells)"] if more else []
    return f"Missing: {'; '.join(listed)}. " if listed else ""


def across_runs_table(correlations: pl.DataFrame, dataset: str, depth: int) -> Table:
    """Return whether each label ranks the retrievers as end-to-end evaluation does."""
    own = at_full_depth(correlations, dataset, "runs", depth)
    statistics = own["statistic"].unique(maintain_order=True).to_list()
    num_runs = int(own["num_runs"].max() or 0)  # type: ignore[arg-type]
    counts = own["num_queries"].unique().sort().to_list()
    queries = " to ".join(map(str, dict.fromkeys(counts[:1] + counts[-1:])))
    rows = []
    for annotator, name, part in by_measure(own):
        cells = {row["statistic"]: _with_p(row) for row in part.iter_rows(named=True)}
        rows.append((*plain(annotator, name), *across(cells, statistics)))
    return Table(
        name=part_name("across_runs", dataset, depth),
        title=f"{dataset}: do the labels rank the {num_runs} runs as end-to-end does, {depth} documents",
        columns=(*names("annotator", "measure"), *columns(STATISTIC_NAMES.get(s, s) for s in statistics)),
        rows=tuple(rows),
        caption=f"Means over {queries} queries, the same for every run; {num_runs} runs; p by permutation. With fewer "
        "than 8 runs there is no p-value, and hardly any certainty.",
        dataset=dataset,
    )


def _with_p(row: Mapping[str, Any]) -> Value:
    p_value = row["p_value"]
    # over runs there is no interval
    note = "" if p_value is None else f"(p = {p_number(p_value)})"
    return Value(row["value"], note=note, reason=row["reason"] or "")
