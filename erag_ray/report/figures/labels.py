"""Figures of labels: useful and harmful documents by rank, agreement with utility, and the cost of labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import polars as pl

from erag_ray.agreement import wilson_interval
from erag_ray.annotators import ANNOTATORS, RequestSpec, no_documents, unrelated_pairs
from erag_ray.kinds import ANSWER, EARLY_STOPPED, VERDICT
from erag_ray.report.figures.scope import MAX_LABELLED, Scope
from erag_ray.report.figures.utility import in_order
from erag_ray.report.model import Figure
from erag_ray.report.tables.correlations import STATISTIC_NAMES
from erag_ray.report.tables.curves import table_depths, whole_lists
from erag_ray.report.tables.sorting import in_reading_order

PAIR = ["query_id", "doc_id"]
HARM = ("gain", "gain_likelihood")
"""Annotators whose negative labels mean harm."""
ANSWERED_BY = {ANSWER.name: [kind.name for kind in (ANSWER, EARLY_STOPPED, VERDICT)]}
"""Kind of request -> kinds that can replace it."""
AGREEMENT, CEILING = "agreement", "ceiling"


def shares_by_rank(
    labels: pl.DataFrame, runs: pl.DataFrame, queries: pl.DataFrame, scope: Scope
) -> Figure | None:
    """Plot the share of useful (erag > 0) and harmful (gain < 0) documents by rank, with Wilson intervals.

    Args:
        labels: LABELS.
        runs: RUNS.
        queries: QUERIES.
        scope: the selection to show.
    """
    of_dataset = queries.filter(dataset=scope.dataset, score=scope.score).select("query_id")
    lists = runs.filter(pl.col("run_id").is_in(scope.runs[:MAX_LABELLED])).join(
        of_dataset, on="query_id", how="semi"
    )
    judged = labels.filter(pl.col("annotator").is_in(["erag", *HARM]), reader=scope.reader).drop_nulls(
        "label"
    )
    selected = judged.join(of_dataset, on="query_id", how="semi")
    parts = [
        _counts(lists, selected.filter(annotator=annotator), condition).with_columns(documents=pl.lit(name))
        for annotator, name, condition in _judgements(selected)
    ]
    rows = pl.concat(parts) if parts else pl.DataFrame()
    if rows.is_empty():
        return None
    ordered = in_order(rows, scope.runs).sort("run_number", "rank", maintain_order=True)
    return Figure(
        name=scope.name("shares"),
        title=f"{scope.dataset}: useful{' and harmful' if len(parts) > 1 else ''} documents by rank",
        data=_with_wilson(ordered, scope.confidence).select(
            pl.col("run_id").alias("run"), "rank", "share", "low", "high", "documents", "positive", "judged"
        ),
        mark="line",
        x="rank",
        y="share",
        low="low",
        high="high",
        color="run",
        color_names=scope.color_names[:MAX_LABELLED],
        facet="documents",
        x_title="rank in the retrieved list",
        y_title="share of the documents at this rank",
        caption=_shares_caption(selected, scope),
        is_main=True,
        dataset=scope.dataset,
    )


def _judgements(labels: pl.DataFrame) -> Iterator[tuple[str, str, pl.Expr]]:
    """Yield each annotator of use or harm: its name, the name of the property, and its condition."""
    annotators = labels["annotator"].unique().to_list()
    if "erag" in annotators:
        yield "erag", "useful (erag > 0)", pl.col("label") > 0
    for name in HARM:
        if name in annotators:
            yield name, f"harmful ({name} < 0)", pl.col("label") < 0


def _counts(lists: pl.DataFrame, labels: pl.DataFrame, condition: pl.Expr) -> pl.DataFrame:
    """Count positive and judged documents: columns run_id, rank, positive, judged."""
    marked = labels.select(*PAIR, positive=condition)
    joined = lists.select("run_id", "rank", *PAIR).join(marked, on=PAIR)
    return joined.group_by("run_id", "rank").agg(pl.col("positive").sum().cast(pl.Int64), judged=pl.len())


def _with_wilson(rows: pl.DataFrame, confidence: float) -> pl.DataFrame:
    """Add share, low and high: ``positive`` / ``judged`` with its interval (Wilson, 1927)."""
    pairs = rows.select("positive", "judged").iter_rows()
    intervals = [wilson_interval(positive, judged, confidence) for positive, judged in pairs]
    schema = {"share": pl.Float64, "low": pl.Float64, "high": pl.Float64}
    return rows.hstack(pl.DataFrame(intervals, schema=schema, orient="row"))


def _shares_caption(labels: pl.DataFrame, scope: Scope) -> str:
    annotators = labels["annotator"].unique().to_list()
    missing = (
        "" if set(HARM) & set(annotators) else f" Harm is not shown: no annotator of {' and '.join(HARM)}."
    )
    closed = " gain is below 0 only on questions answered without passages." if "gain" in annotators else ""
    binary = labels.filter(annotator="erag")["label"].is_in([0.0, 1.0]).all()
    graded = "" if binary else f" Labels are graded ({scope.score}): any score above 0 counts as useful."
    bands = f"bands: {scope.confidence:.0%} Wilson interval."
    return f"Over the judged documents; {bands}{graded}{closed}{missing}{_best_runs(scope)}"


def _best_runs(scope: Scope) -> str:
    """Return a note on the shown runs, if not all are shown."""
    if scope.num_runs <= MAX_LABELLED:
        return scope.notes
    return f" The best {MAX_LABELLED} of {scope.num_runs} runs by utility."


def agreement_by_annotator(correlations: pl.DataFrame, scope: Scope) -> Figure | None:
    """Plot each annotator's agreement with utility, with interval and ceiling, a panel per run.

    Args:
        correlations: CORRELATIONS.
        scope: the selection to show.
    """
    best, symbol = best_measures(correlations, scope), _symbol(correlations)
    if best.is_empty():
        return None
    columns = ["label", "run", "value", "low", "high", "kind", "questions"]
    ceilings = best.drop_nulls("ceiling").with_columns(
        value="ceiling", low=None, high=None, kind=pl.lit(CEILING)
    )
    both = pl.concat([ceilings.select(columns), best.select(columns)], how="vertical_relaxed")
    return Figure(
        name=scope.name("agreement"),
        title=f"{scope.dataset}: how well each label agrees with end-to-end utility",
        data=both,
        mark="interval",
        x="value",
        y="label",
        low="low",
        high="high",
        color="kind",
        color_names=(AGREEMENT, CEILING),
        facet="run",
        rules={"no agreement": 0.0},
        x_title=f"{symbol} with end-to-end utility",
        y_title="annotator and measure",
        caption="Over questions. Of each annotator the measure that agrees best on average over the runs shown, with "
        f"{scope.interval}. ceiling: the most {symbol} that ties in these data allow.{_best_runs(scope)}",
        is_main=True,
        dataset=scope.dataset,
    )


def _statistic(correlations: pl.DataFrame) -> str:
    """Return Kendall's tau if it was computed, else the first statistic."""
    names = correlations["statistic"].unique().sort().to_list()
    return next((name for name in STATISTIC_NAMES if name in names), names[0] if names else "")


def _symbol(correlations: pl.DataFrame) -> str:
    return STATISTIC_NAMES.get(_statistic(correlations), _statistic(correlations))


def best_measures(correlations: pl.DataFrame, scope: Scope) -> pl.DataFrame:
    """Return each annotator's measure that agrees best on average over the runs shown, a row per run.

    Measures are over the whole list at the depth of Table 1 (`table_depths`), as in the paper's Figures 1 to 3.

    Returns:
        Columns annotator, label, run, value, low, high, ceiling, kind, questions; annotators in reading order.
    """
    selected = whole_lists(correlations).filter(
        pl.col("run_id").is_in(scope.runs[:MAX_LABELLED]),
        dataset=scope.dataset,
        reader=scope.reader,
        score=scope.score,
        statistic=_statistic(correlations),
    )
    key = ["annotator", "measure"]
    candidates = selected.join(table_depths(selected), on=["annotator", "depth"], how="semi").drop_nulls(
        "value"
    )
    # prefer measures with a value for every run
    means = candidates.group_by(key).agg(mean=pl.col("value").mean(), count=pl.len())
    ordered = means.sort("count", "mean", "measure", descending=[True, True, False])
    best = ordered.unique("annotator", keep="first", maintain_order=True)
    rows = in_reading_order(candidates.join(best, on=key, how="semi"))
    return in_order(rows, scope.runs).select(
        "annotator",
        pl.format("{}: {}@{}", *key, "depth").alias("label"),
        pl.col("run_id").alias("run"),
        "value",
        "low",
        "high",
        "ceiling",
        pl.lit(AGREEMENT).alias("kind"),
        pl.col("num_queries").alias("questions"),
    )


def cost_against_agreement(
    correlations: pl.DataFrame,
    labels: pl.DataFrame,
    requests: pl.DataFrame,
    queries: pl.DataFrame,
    scope: Scope,
) -> Figure | None:
    """Plot each annotator's agreement for the best run, sorted by the requests to a model that its labels take.

    Args:
        correlations: CORRELATIONS.
        labels: LABELS.
        requests: REQUESTS of all stages.
        queries: QUERIES.
        scope: the selection to show.
    """
    best = best_measures(correlations, scope).filter(run=scope.runs[0])
    costs = requests_by_annotator(labels, requests, queries, scope)
    rows = best.join(costs, on="annotator", maintain_order="left").sort("requests", maintain_order=True)
    # if all labels cost the same there is no trade-off to show
    if rows["requests"].n_unique() < 2:
        return None
    unknown = sorted(set(best["annotator"]) - set(costs["annotator"]))
    left_out = (
        f" Left out, since their numbers of requests are unknown: {', '.join(unknown)}." if unknown else ""
    )
    return Figure(
        name=scope.name("cost"),
        title=f"{scope.dataset}: agreement of each label against its cost",
        data=rows.select(_with_cost(), "requests", "value", "low", "high", "questions"),
        mark="interval",
        x="value",
        y="label",
        low="low",
        high="high",
        rules={"no agreement": 0.0},
        x_title=f"{_symbol(correlations)} with end-to-end utility",
        y_title="annotator and measure",
        caption=f"Run {scope.runs[0]}, with {scope.interval}; the cheapest label first. In brackets: distinct requests "
        "to a model for each question, for the documents of all runs, as if none were cached. Tokens and seconds are "
        f"measured for whole stages only, and not shown: annotators share requests.{left_out}",
        dataset=scope.dataset,
    )


def _with_cost() -> pl.Expr:
    """Return a label such as ``erag: P@50 (82.3 requests)``."""
    return pl.format("{} ({} requests)", "label", pl.col("requests").round(1)).alias("label")


def requests_by_annotator(
    labels: pl.DataFrame, requests: pl.DataFrame, queries: pl.DataFrame, scope: Scope
) -> pl.DataFrame:
    """Return the distinct requests per labelled question: columns annotator and requests.

    Annotators from outside the package, and those whose requests are missing, are left out.
    """
    of_dataset = queries.filter(dataset=scope.dataset, score=scope.score).select("query_id")
    single = (
        requests.filter(pl.col("doc_ids").list.len() <= 1)
        .join(of_dataset, on="query_id", how="semi")
        .with_columns(doc_id=pl.col("doc_ids").list.first())
    )
    rows = []
    for name in labels["annotator"].unique().sort():
        # one annotator at a time: two copies of all labels of a large job do not fit in memory
        pairs = labels.filter(pl.col("reader").is_in(["", scope.reader]), annotator=name).select(PAIR)
        selected = pairs.join(of_dataset, on="query_id", how="semi")
        count = _num_requests(name, selected, single)
        if count is not None and selected.height:
            rows.append((name, count / selected["query_id"].n_unique()))
    return pl.DataFrame(rows, schema={"annotator": pl.String, "requests": pl.Float64}, orient="row")


def _num_requests(name: str, labels: pl.DataFrame, single: pl.DataFrame) -> int | None:
    """Return the number of distinct requests for an annotator's labels; None if unknown."""
    if name not in ANNOTATORS:
        return None
    parts = [_requests_of(spec, labels, single) for spec in ANNOTATORS[name].requests]
    if any(part.is_empty() for part in parts):
        return None
    return pl.concat(parts).n_unique() if parts else 0


def _requests_of(spec: RequestSpec, labels: pl.DataFrame, single: pl.DataFrame) -> pl.DataFrame:
    """Return the keys of the requests of one kind: without documents, about unrelated or about labelled ones."""
    key = ["model", "question_key", "passages_key"]
    requests = single.filter(pl.col("kind").is_in(ANSWERED_BY.get(spec.kind.name, [spec.kind.name])))
    if spec.lists is no_documents:
        closed_book = requests.filter(pl.col("doc_id").is_null())
        return closed_book.join(labels, on="query_id", how="semi").select(key)
    with_document = requests.filter(pl.col("doc_id").is_not_null())
    how: Literal["anti", "semi"] = "anti" if spec.lists is unrelated_pairs else "semi"
    return with_document.join(labels, on=PAIR, how=how).select(key)
