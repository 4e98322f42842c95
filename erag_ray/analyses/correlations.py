"""CORRELATIONS of every measure with end-to-end utility: over queries, and over runs."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from erag_ray.analyses.columns import (
    DatasetColumns,
    Draws,
    NamedColumn,
    by_run,
    measured_and_used,
    same_list,
    table_of,
)
from erag_ray.analyses.contract import LABELLING, OF_COLUMNS, RESAMPLED, Analysis, View, per_dataset
from erag_ray.analyses.order import by_measure, reasons, run_columns, symbol_of
from erag_ray.analyses.parts.formats import counted, number, p_number
from erag_ray.analyses.parts.model import Column, Table, Value
from erag_ray.analyses.parts.shapes import crosstab, estimate, names
from erag_ray.analyses.settings import Floats, Settings
from erag_ray.annotators import ANNOTATORS
from erag_ray.measures.agreement import (
    MIN_FOR_P_VALUE,
    MIN_RUNS_FOR_P_VALUE,
    TIE_DIGITS,
    Agreement,
    agree,
    agree_over_runs,
    permutation_p_values,
)
from erag_ray.store.schemas import table_schema

CORRELATIONS = table_schema(
    "correlations",
    "dataset* reader* score* annotator* over* run_id* depth* measure* cutoff* ideal* statistic* value? "
    "low? high? ceiling? p_value? num_queries num_runs num_dropped num_varied reason?",
)
FEW_VARIED = 20
MIN_VARIED = 5
"""With fewer questions that differ from the rest an agreement says nothing: a single one can make it 1 or 0."""
BY_DEFINITION = "with 1 document this label is the end-to-end score"
COUNTS = ("num_varied", "num_queries")
FIGURES = ("value", "low", "high", "ceiling", "p_value")
Row = Mapping[str, object]


def correlations(dataset: DatasetColumns, settings: Settings) -> pl.DataFrame:
    """CORRELATIONS of every measure with the utility at the same depth: over queries in a run, and over runs.

    Over queries as in the paper (Salemi & Zamani, SIGIR 2024, section 3): one run, its queries. Over runs: the
    runs' means over the queries that have both values in every run, so that all means are of the same queries.
    ``num_dropped`` counts queries; ``num_runs`` leaves out runs in which nothing was judged; ``num_varied`` counts the
    queries (over runs: the runs) whose measure, or whose utility if these are fewer, is not the most frequent one: the
    correlation depends on them.
    """
    rows = [
        {"dataset": dataset.dataset, **row}
        for row in (*_over_queries(dataset, settings), *_over_runs(dataset, settings))
    ]
    return table_of(rows, CORRELATIONS)


def _over_queries(dataset: DatasetColumns, settings: Settings) -> Iterator[Row]:
    measured, ends = measured_and_used(dataset.of_runs)
    pairs = [(x, y) for x, y in itertools.product(measured, ends) if same_list(x[0], y[0])]
    p_values = _p_values(pairs, dataset.draws, settings)
    for index, ((name, x), (target, y)) in enumerate(pairs):
        is_judged = ~np.isnan(x + y)
        both, draws = (x[is_judged], y[is_judged]), dataset.draws.among(is_judged)
        for statistic in settings.statistics:
            agreement = agree(*both, statistic, draws.weights, settings.confidence, num_units=draws.num_units)
            if agreement.value is not None and agreement.num_queries >= MIN_FOR_P_VALUE:
                agreement = replace(agreement, p_value=p_values[index, statistic])
            yield {
                **_row(name, target, statistic, agreement),
                "over": "queries",
                "num_runs": 1,
                "num_dropped": len(x) - agreement.num_queries,
                "num_varied": _num_varied(*both),
            }


def _row(name: Row, target: Row, statistic: str, agreement: Agreement) -> Row:
    """Return the row of a measure and a utility, without what counts their queries and runs."""
    of_utility = {key: target[key] for key in ("reader", "score")}
    return {**name, **of_utility, "statistic": statistic, **vars(agreement)}


def _p_values(
    pairs: Sequence[tuple[NamedColumn, NamedColumn]], draws: Draws, settings: Settings
) -> dict[tuple[int, str], float]:
    """Return p-values by (index of the pair, statistic): measures with the same utility and queries at once."""
    families: dict[tuple[int, bytes], list[int]] = {}
    for index, ((_, x), (_, y)) in enumerate(pairs):
        families.setdefault((id(y), (~np.isnan(x + y)).tobytes()), []).append(index)
    p_values: dict[tuple[int, str], float] = {}
    for indices in families.values():
        (_, x), (_, y) = pairs[indices[0]]
        is_judged = ~np.isnan(x + y)
        columns = np.stack([pairs[index][0][1][is_judged] for index in indices], axis=1)
        for statistic in settings.statistics:
            values = permutation_p_values(columns, y[is_judged], statistic, draws.among(is_judged).orders)
            p_values |= {(index, statistic): float(p) for index, p in zip(indices, values, strict=True)}
    return p_values


def _num_varied(*columns: Floats) -> int:
    """Return the number of values that differ from the most frequent one, in the column where it is smallest."""
    most = (np.unique(column, return_counts=True)[1].max(initial=0) for column in columns)
    return len(columns[0]) - int(max(most))


def _over_runs(columns: DatasetColumns, settings: Settings) -> Iterator[Row]:
    measured, ends = measured_and_used(columns.of_runs)
    for (name, measured_runs), (target, used) in itertools.product(by_run(measured), by_run(ends)):
        if name["depth"] != target["depth"]:
            continue
        x, y = _common(measured_runs, used)
        means_of_runs = _mean_of_each(x), _mean_of_each(y)
        for statistic in settings.statistics:
            agreement = agree_over_runs(*means_of_runs, statistic, settings.num_permutations, settings.seed)
            yield {
                **_row(name, target, statistic, agreement),
                "over": "runs",
                "run_id": "",
                "num_queries": x.shape[1],
                "num_runs": x.shape[0] if x.size else 0,
                "num_dropped": len(next(iter(measured_runs.values()))) - x.shape[1],
                "num_varied": _num_varied(*means_of_runs),
            }


def _common(measured: Mapping[str, Floats], used: Mapping[str, Floats]) -> tuple[Floats, Floats]:
    """Measure and utility, each [num_runs, num_queries]: of runs with any value, the queries judged in all."""
    runs = [run for run in measured if run in used and not np.isnan(measured[run] + used[run]).all()]
    if not runs:
        return np.empty((0, 0)), np.empty((0, 0))
    x, y = np.array([measured[run] for run in runs]), np.array([used[run] for run in runs])
    is_judged = ~np.isnan(x + y).any(axis=0)
    return x[:, is_judged], y[:, is_judged]


def _mean_of_each(rows: Floats) -> Floats:
    # 1/3 and 1/3 are less than 2/3 and 0 once they are rounded
    return np.round(rows.mean(axis=1), TIE_DIGITS) if rows.size else np.empty(0)


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


def show(view: View) -> Iterator[Table]:
    """Yield the agreement of each label with utility over queries, and over runs.

    Of several datasets, only at the largest depth: the paper's Table 1 (an extra) and the table have the smaller ones.
    """
    rows = informative(view.rows(CORRELATIONS))
    whole = rows.filter(pl.col("cutoff") == pl.col("depth"))
    depths = rows["depth"].unique().sort(descending=True).to_list()
    statistics = view.results[CORRELATIONS]["statistic"].unique(maintain_order=True).to_list()
    over_queries = whole.filter(over="queries")
    for depth, statistic in itertools.product(depths if view.is_only else depths[:1], statistics):
        yield correlation_table(view, over_queries.filter(depth=depth, statistic=statistic), depth, statistic)
    if depths and len(view.runs) > 1:
        yield across_runs_table(view, whole.filter(over="runs", depth=depths[0]), depths[0])


def correlation_table(view: View, rows: pl.DataFrame, depth: int, statistic: str) -> Table:
    """Return one statistic of each measure with utility at the same depth: annotators and measures by runs.

    The paper's Table 1 with intervals and ceilings (Salemi & Zamani, SIGIR 2024).
    """
    symbol, documents = symbol_of(statistic), counted(depth, "document")
    title = f"{symbol} of each measure with the end-to-end utility, over queries, {documents}"
    return crosstab(
        by_measure(rows),
        names("annotator", "measure"),
        "run_id",
        run_columns(view.runs),
        agreement,
        caption=f"{symbol} [interval] /ceiling, the most {symbol} that the ties in these data allow. "
        f"{_few_varied(rows)}{reasons(rows)}Other cut-offs are in the table correlations.",
        **view.about("correlations", title, depth, statistic),
    )


def agreement(row: Mapping[str, Any]) -> Value:
    """Return the statistic of a row with its interval, and its ceiling as note."""
    return estimate(row, note=f"/{number(row['ceiling'], 2)}")


def _few_varied(rows: pl.DataFrame) -> str:
    """Return a warning about runs whose utility is equal for nearly all queries."""
    few = rows.filter((pl.col("num_varied") > 0) & (pl.col("num_varied") < FEW_VARIED))
    counts = few.group_by("run_id").agg(pl.col("num_varied").min(), pl.col("num_queries").max())
    few_of = "; ".join(
        f"{run}: {varied} of {queries}" for run, varied, queries in counts.sort("run_id").iter_rows()
    )
    text = "WARNING: these figures hang on few queries, those with another utility than the rest"
    return f"{text} ({few_of}). " if few_of else ""


def across_runs_table(view: View, rows: pl.DataFrame, depth: int) -> Table:
    """Return the agreement over runs: does each label rank the retrievers as end-to-end evaluation does?"""
    of_runs = counted(int(rows["num_runs"].max() or 0), "run")  # type: ignore[arg-type]
    counts = rows["num_queries"].unique().sort().to_list()
    queries = " to ".join(map(str, dict.fromkeys(counts[:1] + counts[-1:])))
    title = f"do the labels rank the {of_runs} as end-to-end does, {counted(depth, 'document')}"
    return crosstab(
        by_measure(rows),
        names("annotator", "measure"),
        "statistic",
        {name: Column(symbol_of(name)) for name in rows["statistic"].unique(maintain_order=True)},
        _with_p,
        caption=f"/ceiling: the most that the ties in these means allow. Means over {queries} queries, the same for "
        f"every run; {of_runs}; p by permutation. With fewer than {MIN_RUNS_FOR_P_VALUE} runs there is no p-value, "
        "and hardly any certainty.",
        **view.about("across_runs", title, depth),
    )


def _with_p(row: Mapping[str, Any]) -> Value:
    # over runs there is no interval
    p_value = row["p_value"]
    note = f"/{number(row['ceiling'], 2)}" + ("" if p_value is None else f" (p = {p_number(p_value)})")
    return estimate({**row, "low": None, "high": None}, note=note)


ANALYSIS = Analysis(
    schema=CORRELATIONS,
    sources=OF_COLUMNS,
    settings=("statistics", "num_permutations", *RESAMPLED),
    make=per_dataset(correlations),
    show=show,
    group=LABELLING,
)
