"""MEANS over queries: which retriever serves the reader best, and how each label measures it."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from erag_ray.analyses import order
from erag_ray.analyses.answer import listed_and
from erag_ray.analyses.columns import DatasetColumns, table_of
from erag_ray.analyses.contract import OF_COLUMNS, RESAMPLED, Analysis, Results, View, estimated, per_dataset
from erag_ray.analyses.parts.formats import counted, number
from erag_ray.analyses.parts.model import Column, Figure, Finding, Format, Part, Table, Value
from erag_ray.analyses.parts.shapes import crosstab, estimate, names
from erag_ray.analyses.settings import Settings
from erag_ray.analyses.standing import Standing
from erag_ray.annotators import ANNOTATORS
from erag_ray.data.runs.references import END_TO_END, GOLD_PASSAGES, NO_PASSAGES, REFERENCE_NAMES, REFERENCES
from erag_ray.measures.agreement import TIE_DIGITS, score_intervals
from erag_ray.store.schemas import GIVEN, QUERIES, RUNS, UTILITY, table_schema

MEANS = table_schema(
    "means",
    "dataset* reader* score* annotator* run_id* depth* measure* cutoff* ideal* mean? low? high? "
    "num_queries num_dropped num_estimated",
)
MISSING = 0.01
"""Share of a run's questions without a list from which there is a warning; some retrievers find nothing for a few."""
UTILITY_MEANING = "utility@k: score of the reader's output with the first k documents. "


def means(dataset: DatasetColumns, settings: Settings) -> pl.DataFrame:
    """MEANS of PER_QUERY and UTILITY over ``num_queries`` judged and ``num_estimated`` others, with intervals."""
    if not dataset.columns:
        return MEANS.empty()
    judged, known = (
        np.stack([column for _, column in part], axis=1) for part in (dataset.columns, dataset.estimated)
    )
    draws = dataset.draws
    signed = [(name["annotator"], name["measure"]) == ("gain", "P") for name, _ in dataset.columns]
    intervals = score_intervals(judged, known, draws.weights, settings.confidence, draws.clusters, signed)
    counts = zip(*((~np.isnan(table)).sum(axis=0).tolist() for table in (judged, known)), strict=True)
    rows = [
        (dataset.dataset, *name.values(), *interval, num, len(column) - num, of_all - num)
        for (name, column), interval, (num, of_all) in zip(dataset.columns, intervals, counts, strict=True)
    ]
    return table_of(rows, MEANS)


def show(view: View) -> Iterator[Part]:
    """Yield utility by depth, every mean at full depth, and what the reader scores without retrieval."""
    rows = _with_estimates(view.rows(MEANS))
    if view.standing is not None:
        yield from utility_by_depth(view, rows, view.standing.score)
    yield which_retriever(view, rows)
    if view.standing is not None:
        yield from _reader(view.standing)


def which_retriever(view: View, rows: pl.DataFrame) -> Table:
    """Return utility at every depth, then each measure at full depth, for every run."""
    num_queries = count_queries(rows)
    title = f"which retriever serves the reader best ({counted(num_queries, 'query')})"
    return crosstab(
        [*order.by_utility(rows), *order.by_measure(order.at_full_depth(rows))],
        names("annotator", "mean"),
        "run_id",
        order.run_columns([*view.runs, *order.references_of(rows)]),
        functools.partial(_value, num_queries),
        # labels have no reference runs
        absent=Value(""),
        caption=f"Mean over queries with its {view.results.confidence:.0%} interval. Best run first. "
        f"{UTILITY_MEANING}(list), (pool): the ideal is the run's own list, or the "
        "union of all runs (only the latter compares runs). n: over so many queries only; the others have no gold "
        "passages or pages, or were not judged.",
        is_main=view.is_only,
        **view.about("retrievers", title),
    )


def count_queries(means: pl.DataFrame) -> int:
    return int(means.filter(pl.col("annotator") == END_TO_END)["num_queries"].max() or 0)  # type: ignore[arg-type]


def _value(num_queries: int, row: Mapping[str, Any]) -> Value:
    if row["mean"] is None:
        return Value(reason="not judged for any query")
    note = "" if row["num_queries"] in (0, num_queries) else f"n={row['num_queries']}"
    return estimate(row, "mean", note)


def utility_by_depth(view: View, means: pl.DataFrame, score: str) -> Iterator[Figure]:
    """Plot mean utility by number of documents: a line and band per run; closed book and gold as reference lines."""
    utility = means.filter(annotator=END_TO_END).drop_nulls("mean")
    of_runs = order.in_run_order(utility.filter(pl.col("run_id").is_in(view.shown)), view.shown)
    selected = of_runs.sort("run_number", "depth", maintain_order=True)
    references = utility.filter(pl.col("run_id").is_in(REFERENCES))
    columns = {"run_id": "run", "depth": "documents", "mean": "utility", "num_queries": "questions"}
    if selected["depth"].n_unique() < 2:
        # the first picture of the page shows one depth
        return
    most, gold = max(selected["num_queries"]), references.filter(run_id=GOLD_PASSAGES)["num_queries"]
    counts = f" Gold passages: {gold[0]:,} of {most:,} questions." if len(gold) and gold[0] != most else ""
    yield Figure(
        data=selected.rename(columns).select("run", "documents", "utility", "low", "high", "questions"),
        mark="line",
        x="documents",
        y="utility",
        low="low",
        high="high",
        color="run",
        color_names=view.color_names,
        rules={REFERENCE_NAMES[row["run_id"]]: row["mean"] for row in references.to_dicts()},
        x_title="documents in the prompt (k)",
        y_title=f"utility (mean {score})",
        caption=f"Mean score of the reader's output with the first k documents; bands: {view.results.interval}."
        f"{counts}{view.not_shown()}",
        is_main=True,
        **view.about("utility", "utility by number of documents"),
    )


def _with_estimates(means: pl.DataFrame) -> pl.DataFrame:
    """Return MEANS whose ``num_queries`` count the queries with an estimate too."""
    more = pl.col("num_estimated")
    return means.with_columns(
        num_queries=pl.col("num_queries") + more, num_dropped=pl.col("num_dropped") - more
    )


def _reader(standing: Standing) -> Iterator[Finding]:
    without, gold = (standing.means.get(name, {}).get("mean") for name in (NO_PASSAGES, GOLD_PASSAGES))
    parts = [
        f"{number(value, drop_zero=True)} {name}"
        for value, name in ((without, "without passages"), (gold, "with the gold passages"))
        if value is not None
    ]
    if parts:
        best, sign = standing.best["mean"], standing.sign
        is_scored = without is not None and best != 0 and sign != 0
        worse = is_scored and round(sign * (without - best), TIE_DIGITS) >= 0
        tail = "; no run has a better mean than no passages at all" if worse else ""
        yield Finding(topic="reader", text=f"the reader scores {' and '.join(parts)}{tail}", is_warning=worse)


def missing_lists(view: View) -> Iterator[Finding]:
    """Yield the runs with a score on questions for which they have no list, if these are `MISSING` of them."""
    pair, lists = ["run_id", "query_id"], view.rows(RUNS)
    scored = view.rows(UTILITY).drop_nulls("value").select(pair).unique()
    without = scored.join(lists, on=pair, how="anti").join(lists, on="run_id", how="semi")
    totals = dict(scored["run_id"].value_counts().iter_rows())
    texts = [
        f"{run} on {count:,} of {counted(totals[run], 'question')}"
        for run, count in without["run_id"].value_counts().sort("run_id").iter_rows()
        if count >= MISSING * totals[run]
    ]
    if texts:
        text = f"no list, so that the score is of an answer without documents: {listed_and(texts)}"
        yield Finding(topic="missing", text=text, is_warning=True)


def show_all(results: Results) -> Iterator[Part]:
    """Yield what no run has, and the utility of the best runs and of the reference runs, by dataset and depth."""
    # inputs without evidence, such as passages without pages, have a note
    takes_answers = [END_TO_END, *(name for name, one in ANNOTATORS.items() if one.requests)]
    counts = results[MEANS].group_by("dataset", "annotator").agg(pl.col("mean").count()).filter(mean=0)
    of_answers = counts.filter(pl.col("annotator").is_in(takes_answers))
    failed = "all answers that it needs failed or cannot be read"
    why = "no output that it needs is given" if results.reader.get("kind") == GIVEN.name else failed
    for dataset, annotator, _ in of_answers.sort("dataset", "annotator").iter_rows():
        name = "score" if annotator == END_TO_END else f"label of {annotator}"
        text = f"{dataset}: no run has a {name}: {why}"
        yield Finding(topic="missing", text=text, is_warning=True)
    rows = _with_estimates(results[MEANS]).sort("dataset")
    if rows["dataset"].n_unique() < 2:
        return
    runs, groups = results.runs, []
    best = f"The {order.MAX_RUNS} best of {len(runs)} runs. " if len(runs) > order.MAX_RUNS else ""
    for (dataset,), part in rows.group_by("dataset", maintain_order=True):
        num_queries = count_queries(part)
        groups += [
            ((dataset, num_queries, *heads), of_depth.with_columns(all=pl.lit(num_queries)))
            for heads, of_depth in order.by_utility(part)
        ]
    yield crosstab(
        groups,
        (
            *names("dataset"),
            Column("queries", Format.COUNT),
            *(Column("score", Format.TEXT), Column("mean", Format.TEXT)),
        ),
        "run_id",
        order.run_columns([*runs[: order.MAX_RUNS], *order.references_of(rows)]),
        lambda row: _value(row["all"], row),
        name="utility",
        title="Which retriever serves the reader best",
        caption=f"Mean over queries with its {results.confidence:.0%} interval. {UTILITY_MEANING}"
        f"Runs by their mean rank. {best}n: over so many queries only.",
        is_main=True,
    )


ANALYSIS = Analysis(
    schema=MEANS,
    sources=OF_COLUMNS,
    settings=(*RESAMPLED, "auxiliary"),
    make=per_dataset(means, estimated),
    show=show,
    show_all=show_all,
)
OF_LISTS = Analysis(shows=(UTILITY, RUNS, QUERIES), is_optional=True, show=missing_lists)
