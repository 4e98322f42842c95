"""How well each label agrees with utility at its best, and what it costs: two figures, and a table of all datasets."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from erag_ray.analyses import order
from erag_ray.analyses.contract import LABELLING, Analysis, Results, View
from erag_ray.analyses.correlations import CORRELATIONS, agreement, informative
from erag_ray.analyses.parts.formats import MISSING
from erag_ray.analyses.parts.model import Figure, Table
from erag_ray.analyses.parts.shapes import crosstab, names, part_name
from erag_ray.annotators import ANNOTATORS, PAIR, RequestSpec, agreement_sign, no_documents
from erag_ray.store.schemas import LABELS, QUERIES, REQUESTS

AGREEMENT, CEILING = "agreement", "ceiling"
INTERVALS: Mapping[str, Any] = {
    "mark": "interval",
    **{"x": "value", "y": "label", "low": "low", "high": "high"},
    "rules": {"no agreement": 0.0},
}
"""Fields of `Figure` of agreements with their intervals."""


def show(view: View) -> Iterator[Figure]:
    """Yield each label's agreement with utility, and what it costs."""
    best, symbol = _of_shown(view)
    if best.height:
        yield from agreement_by_annotator(view, best, symbol)
        yield from cost_against_agreement(view, best.filter(run=view.shown[0]), symbol)


def agreement_by_annotator(view: View, best: pl.DataFrame, symbol: str) -> Iterator[Figure]:
    """Plot each annotator's agreement with utility, with interval and ceiling, a panel per run."""
    columns = ["label", "run", "value", "low", "high", "kind", "questions"]
    ceilings = best.drop_nulls("ceiling").with_columns(
        value="ceiling", low=None, high=None, kind=pl.lit(CEILING)
    )
    both = pl.concat([ceilings.select(columns), best.select(columns)], how="vertical_relaxed")
    yield Figure(
        **INTERVALS,
        data=both,
        color="kind",
        color_names=(AGREEMENT, CEILING),
        facet="run",
        x_title=f"{symbol} with end-to-end utility",
        caption="Over questions. Of each annotator the measure that agrees best on average over the runs shown, with "
        f"{view.results.interval}. ceiling: the most {symbol} that ties in these data allow.{view.not_shown()}",
        is_main=True,
        **view.about("agreement", "how well each label agrees with end-to-end utility"),
    )


def _of_shown(view: View) -> tuple[pl.DataFrame, str]:
    """Return `best_measures` of the runs in figures, with a label and the run, and the symbol of the statistic."""
    correlations = informative(view.rows(CORRELATIONS))
    computed = correlations["statistic"].unique().sort().to_list()
    # Kendall's tau if it was computed
    statistic = next(
        (name for name in order.STATISTIC_NAMES if name in computed), computed[0] if computed else ""
    )
    selected = correlations.filter(statistic=statistic)
    best = order.in_run_order(best_measures(selected, view.shown), view.shown)
    label = pl.format("{}: {}@{}", "annotator", "measure", "depth")
    named = best.with_columns(label=label, run="run_id", kind=pl.lit(AGREEMENT), questions="num_queries")
    return named, order.symbol_of(statistic)


def best_measures(correlations: pl.DataFrame, runs: Sequence[str]) -> pl.DataFrame:
    """Return each annotator's measure that agrees best on average over these runs, a row per run, in reading order.

    Measures are over the whole list at the depth of Table 1 (`table_depths`), as in the paper's Figures 1 to 3. One
    with a value for every run comes before others. ``correlations`` are `informative`, of one dataset and statistic.
    """
    selected = order.whole_lists(correlations).filter(pl.col("run_id").is_in(runs))
    key = ["annotator", "measure"]
    at_depth = selected.join(order.table_depths(selected), on=["annotator", "depth"], how="semi")
    candidates = at_depth.drop_nulls("value")
    signs = [agreement_sign(*names) for names in candidates.select(*key, "score").iter_rows()]
    better = pl.col("value") * pl.Series("sign", signs, dtype=pl.Int64)
    means = (
        candidates.with_columns(better=better).group_by(key).agg(mean=pl.col("better").mean(), count=pl.len())
    )
    ordered = means.sort("count", "mean", "measure", descending=[True, True, False])
    best = ordered.unique("annotator", keep="first", maintain_order=True)
    return order.in_reading_order(candidates.join(best, on=key, how="semi"))


def cost_against_agreement(view: View, best: pl.DataFrame, symbol: str) -> Iterator[Figure]:
    """Plot each annotator's agreement for the best run, sorted by the requests to a model that its labels take."""
    costs = requests_by_annotator(view)
    rows = best.join(costs, on="annotator", maintain_order="left").sort("requests", maintain_order=True)
    # if all labels cost the same there is no trade-off to show
    if rows["requests"].n_unique() < 2:
        return
    # such as erag: P@50 (82.3 requests)
    with_cost = pl.format("{} ({} requests)", "label", pl.col("requests").round(1))
    columns = ("label", "requests", "value", "low", "high", "questions")
    unknown = sorted(set(best["annotator"]) - set(costs["annotator"]))
    left_out = (
        f" Left out, since their numbers of requests are unknown: {', '.join(unknown)}." if unknown else ""
    )
    yield Figure(
        **INTERVALS,
        data=rows.with_columns(label=with_cost).select(*columns),
        x_title=f"{symbol} with end-to-end utility",
        caption=f"Run {view.shown[0]}, with {view.results.interval}; the cheapest label first. In brackets: distinct "
        "requests to a model for each question, for the documents of all runs, as if none were cached. Tokens and "
        f"seconds are measured for whole stages only, and not shown: annotators share requests.{left_out}",
        **view.about("cost", "agreement of each label against its cost"),
    )


def requests_by_annotator(view: View) -> pl.DataFrame:
    """Return the distinct requests per labelled question: columns annotator and requests.

    Annotators from outside the package, and those whose requests are missing, are left out.
    """
    labels, of_dataset, rows = view.results[LABELS], view.rows(QUERIES).select("query_id"), []
    single = (
        view.results[REQUESTS]
        .filter(pl.col("doc_ids").list.len() <= 1)
        .join(of_dataset, on="query_id", how="semi")
        .with_columns(doc_id=pl.col("doc_ids").list.first())
    )
    for name in labels["annotator"].unique().sort():
        # one annotator at a time: two copies of all labels of a large job do not fit in memory
        pairs = labels.filter(annotator=name).select(PAIR)
        selected = pairs.join(of_dataset, on="query_id", how="semi")
        count = _num_requests(name, selected, single)
        if count is not None and selected.height:
            rows.append((name, count / selected["query_id"].n_unique()))
    return pl.DataFrame(rows, schema={"annotator": pl.String, "requests": pl.Float64}, orient="row")


def _num_requests(name: str, labels: pl.DataFrame, single: pl.DataFrame) -> int | None:
    if name not in ANNOTATORS:
        return None
    parts = [_requests_of(spec, labels, single) for spec in ANNOTATORS[name].requests]
    if any(part.is_empty() for part in parts):
        return None
    return pl.concat(parts).n_unique() if parts else 0


def _requests_of(spec: RequestSpec, labels: pl.DataFrame, single: pl.DataFrame) -> pl.DataFrame:
    """Return the keys of the requests of one kind: without documents, or about labelled ones."""
    key = ["model", "question_key", "passages_key"]
    requests = single.filter(kind=spec.kind.name)
    if spec.lists is no_documents:
        closed_book = requests.filter(pl.col("doc_id").is_null())
        return closed_book.join(labels, on="query_id", how="semi").select(key)
    return requests.join(labels, on=PAIR, how="semi").select(key)


def show_all(results: Results) -> Iterator[Table]:
    """Yield each annotator's measure with the best agreement with utility, by dataset, runs across.

    By the first statistic. An annotator without any value has a row that says why.
    """
    rows, runs = informative(results[CORRELATIONS]), results.runs[: order.MAX_RUNS]
    for statistic in rows["statistic"].unique(maintain_order=True).head(1):
        whole = order.whole_lists(rows).filter(pl.col("run_id").is_in(runs), statistic=statistic)
        groups = []
        for (dataset,), part in whole.sort("dataset").group_by("dataset", maintain_order=True):
            best = best_measures(part, runs)
            of_annotators = best.group_by("annotator", maintain_order=True)
            groups += [
                ((dataset, name, order.measure_name(of_one.row(0, named=True))), of_one)
                for (name,), of_one in of_annotators
            ]
            without = part.filter(pl.col("annotator").is_in(best["annotator"].implode()).not_())
            groups += [
                ((dataset, name, MISSING), of_one.unique("run_id", keep="first", maintain_order=True))
                for (name,), of_one in without.sort("annotator").group_by("annotator", maintain_order=True)
            ]
        symbol = order.symbol_of(statistic)
        yield crosstab(
            groups,
            names("dataset", "annotator", "measure"),
            "run_id",
            order.run_columns(runs),
            agreement,
            name=part_name("agreement", statistic),
            title=f"How well each label agrees with the end-to-end utility, {symbol} over queries",
            caption=f"{symbol} [interval] /ceiling, of the measure of each annotator that agrees best over these runs; "
            "since it is chosen by the same queries, its agreement is a little too high.",
            is_main=True,
        )


ANALYSIS = Analysis(
    shows=(CORRELATIONS, LABELS, REQUESTS, QUERIES), show=show, show_all=show_all, group=LABELLING
)
