"""Tables of the agreement of each label with end-to-end utility, over queries and over runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from erag_ray.annotators import ANNOTATORS
from erag_ray.report.formats import counted, number, p_number
from erag_ray.report.model import Table, Value
from erag_ray.report.tables.sorting import by_measure
from erag_ray.report.values import across, columns, estimate, names, part_name, plain

FEW_VARIED = 20
MIN_VARIED = 5
"""With fewer questions that differ from the rest an agreement says nothing: one alone can make it 1 or 0."""
BY_DEFINITION = "with 1 document this label is the end-to-end score"
COUNTS = ("num_varied", "num_queries")
FIGURES = ("value", "low", "high", "ceiling", "p_value")
STATISTIC_NAMES = {"kendall_tau_b": "tau", "spearman_rho": "rho"}


def correlation_table(
    correlations: pl.DataFrame, dataset: str, depth: int, statistic: str, runs: Sequence[str]
) -> Table:
    """Return one statistic of each measure with utility at the same depth: annotators and measures by runs.

    The paper's Table 1 with intervals and ceilings (Salemi & Zamani, SIGIR 2024).
    """
    selected = at_full_depth(correlations, dataset, "queries", depth).filter(pl.col("statistic") == statistic)
    rows = []
    for annotator, name, part in by_measure(selected):
        cells = {row["run_id"]: agreement(row) for row in part.iter_rows(named=True)}
        rows.append((*plain(annotator, name), *across(cells, runs)))
    symbol, documents = STATISTIC_NAMES.get(statistic, statistic), counted(depth, "document")
    return Table(
        name=part_name("correlations", dataset, depth, statistic),
        title=f"{dataset}: {symbol} of each measure with the end-to-end utility, over queries, {documents}",
        columns=(*names("annotator", "measure"), *columns(runs)),
        rows=tuple(rows),
        caption=f"{symbol} [interval] /ceiling, the most {symbol} that the ties in these data allow. "
        f"{few_varied(selected)}{reasons(selected)}Other cut-offs are in the table correlations.",
        dataset=dataset,
    )


def informative(correlations: pl.DataFrame) -> pl.DataFrame:
    """Return CORRELATIONS, with a reason instead of a value where agreement says nothing.

    Where fewer than `MIN_VARIED` questions differ from the rest in the measure or in the utility, or where a label of
    one document is the end-to-end score by definition.
    """
    same = [name for name, annotator in ANNOTATORS.items() if annotator.is_utility_of_one]
    is_same = pl.col("annotator").is_in(same) & (pl.col("depth") == 1)
    is_few = (pl.col("over") == "queries") & (pl.col("num_varied") < MIN_VARIED)
    few = pl.format("{} of {} questions differ from the rest, fewer than {}", *COUNTS, pl.lit(MIN_VARIED))
    has_value = pl.col("value").is_not_null()
    reason = pl.when(has_value & is_same).then(pl.lit(BY_DEFINITION)).when(has_value & is_few).then(few)
    return correlations.with_columns(
        *(pl.when(~(is_same | is_few)).then(name).alias(name) for name in FIGURES),
        reason=reason.otherwise("reason"),
    )


def at_full_depth(correlations: pl.DataFrame, dataset: str, over: str, depth: int) -> pl.DataFrame:
    """Return the rows of one dataset over queries or over runs, at one depth and with the cut-off equal to it."""
    return correlations.filter(
        pl.col("dataset") == dataset,
        pl.col("over") == over,
        pl.col("depth") == depth,
        pl.col("cutoff") == depth,
    )


def agreement(row: Mapping[str, Any]) -> Value:
    """Return the statistic of a row with its interval, and its ceiling as note."""
    return estimate(row, note=f"/{number(row['ceiling'], 2)}")


def few_varied(rows: pl.DataFrame) -> str:
    """Return a warning about runs whose utility is equal for nearly all queries."""
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
    """Return why values or intervals are missing, the most frequent reasons first."""
    missing = rows.filter(pl.col("reason").is_not_null()).group_by("reason").len()
    ordered = missing.sort("len", "reason", descending=[True, False])
    listed = [f"{reason} ({counted(count, 'cell')})" for reason, count in ordered.head(3).iter_rows()]
    more = sum(ordered["len"].to_list()[3:])
    listed += [f"other reasons ({counted(more, 'cell')})"] if more else []
    return f"Missing: {'; '.join(listed)}. " if listed else ""


def across_runs_table(correlations: pl.DataFrame, dataset: str, depth: int) -> Table:
    """Return the agreement over runs: does each label rank the retrievers as end-to-end evaluation does?"""
    selected = at_full_depth(correlations, dataset, "runs", depth)
    statistics = selected["statistic"].unique(maintain_order=True).to_list()
    of_runs = counted(int(selected["num_runs"].max() or 0), "run")  # type: ignore[arg-type]
    counts = selected["num_queries"].unique().sort().to_list()
    queries = " to ".join(map(str, dict.fromkeys(counts[:1] + counts[-1:])))
    rows = []
    for annotator, name, part in by_measure(selected):
        cells = {row["statistic"]: _with_p(row) for row in part.iter_rows(named=True)}
        rows.append((*plain(annotator, name), *across(cells, statistics)))
    return Table(
        name=part_name("across_runs", dataset, depth),
        title=f"{dataset}: do the labels rank the {of_runs} as end-to-end does, {counted(depth, 'document')}",
        columns=(*names("annotator", "measure"), *columns(STATISTIC_NAMES.get(s, s) for s in statistics)),
        rows=tuple(rows),
        caption=f"/ceiling: the most that the ties in these means allow. Means over {queries} queries, the same for "
        f"every run; {of_runs}; p by permutation. With fewer than 8 runs there is no p-value, and hardly any "
        "certainty.",
        dataset=dataset,
    )


def _with_p(row: Mapping[str, Any]) -> Value:
    if row["value"] is None:
        return Value(reason=row["reason"] or "")
    p_value = row["p_value"]
    # over runs there is no interval
    note = f"/{number(row['ceiling'], 2)}" + ("" if p_value is None else f" (p = {p_number(p_value)})")
    return Value(row["value"], note=note, reason=row["reason"] or "")
