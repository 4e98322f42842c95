"""CONTRASTS of labels: how much better one annotator's measure agrees with utility than another's."""

import functools
import itertools
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from erag_ray.analyses.columns import DatasetColumns, measured_and_used, same_list, table_of
from erag_ray.analyses.contract import LABELLING, OF_COLUMNS, RESAMPLED, Analysis, View, per_dataset
from erag_ray.analyses.correlations import CORRELATIONS, informative
from erag_ray.analyses.order import by_measure, run_columns, symbol_of
from erag_ray.analyses.parts.formats import counted, number, with_interval
from erag_ray.analyses.parts.model import Finding, Part, Table, Value
from erag_ray.analyses.parts.shapes import crosstab, estimate, names, rows_of
from erag_ray.analyses.settings import ANY, OWN_LIST, Settings
from erag_ray.analyses.standing import Standing
from erag_ray.annotators import agreement_sign, annotator_named
from erag_ray.measures.agreement import Resampled, difference_of, holm, resampled_agreement
from erag_ray.measures.lists import MEASURES
from erag_ray.store.schemas import table_schema

CONTRASTS = table_schema(
    "contrasts",
    "dataset* reader* score* annotator_a* annotator_b* run_id* depth* measure* cutoff* ideal* statistic* "
    "difference? low? high? p_value? num_queries num_dropped",
)
NUM_AGREEMENTS = 4
"""Annotators whose agreement is named."""
Row = Mapping[str, object]


def contrasts(dataset: DatasetColumns, settings: Settings) -> pl.DataFrame:
    """CONTRASTS: how much better one annotator's measure agrees with utility than another's, for every two of them.

    Where less of a label, measure or score is better, its agreement is taken with the other sign.
    Over the queries that both have judged, at the cut-off that equals the depth; a resample draws the same queries for
    both. A measure that is constant there has no contrast. An annotator with measures of its own is contrasted with
    all measures of the others, and ``measure`` names both: "nDCG / UDCG".
    """
    rows = [{"dataset": dataset.dataset, **row} for row in _contrasts_of(dataset, settings)]
    return table_of(rows, CONTRASTS)


def _contrasts_of(dataset: DatasetColumns, settings: Settings) -> Iterator[Row]:
    measured, ends = measured_and_used(dataset.of_runs)
    whole = [item for item in measured if item[0]["cutoff"] == item[0]["depth"]]
    for (target, y), statistic in itertools.product(ends, settings.statistics):
        # eRAG's first: the others are its baselines
        of_list = sorted(
            (item for item in whole if same_list(item[0], target)),
            key=lambda item: (item[0]["annotator"] != "erag", str(item[0]["annotator"])),
        )
        resampled: dict[tuple[int, bytes], Resampled | None] = {}
        for (name, a), (other, b) in itertools.combinations(of_list, 2):
            if not _are_contrasted(name, other):
                continue
            is_judged = ~np.isnan(a + b + y)
            key_a, key_b = ((id(column), is_judged.tobytes()) for column in (a, b))
            # each is resampled once, whichever others it is compared with
            for key, column in ((key_a, a), (key_b, b)):
                if key not in resampled:
                    both, draws = (column[is_judged], y[is_judged]), dataset.draws.among(is_judged)
                    resampled[key] = resampled_agreement(*both, statistic, draws.weights, draws.num_units)
            signs = [
                agreement_sign(str(one["annotator"]), str(one["measure"]), str(target["score"]))
                for one in (name, other)
            ]
            difference, low, high, p_value = difference_of(
                resampled[key_a], resampled[key_b], signs, settings.confidence
            )
            yield {
                **name,
                "annotator_a": name["annotator"],
                "annotator_b": other["annotator"],
                "measure": " / ".join(dict.fromkeys((str(name["measure"]), str(other["measure"])))),
                "ideal": other["ideal"] if name["ideal"] == ANY else name["ideal"],
                "reader": target["reader"],
                "score": target["score"],
                "statistic": statistic,
                "difference": difference,
                "low": low,
                "high": high,
                "p_value": p_value,
                "num_queries": int(is_judged.sum()),
                "num_dropped": int((~is_judged).sum()),
            }


def _are_contrasted(first: Row, second: Row) -> bool:
    """Return whether two columns have one measure, or one a measure that only its annotator has; ideals must agree."""
    if first["measure"] == second["measure"]:
        return first["ideal"] == second["ideal"]
    ideals = {first["ideal"], second["ideal"]} - {ANY}
    defaults = [name for name, measure in MEASURES.items() if measure.by_default]
    is_special = any(
        name["measure"] in annotator_named(str(name["annotator"])).measures
        and name["measure"] not in defaults
        for name in (first, second)
    )
    return is_special and first["annotator"] != second["annotator"] and len(ideals) < 2


def show(view: View) -> Iterator[Part]:
    """Yield how much better eRAG agrees with utility than each other annotator, and which label agrees best."""
    correlations = informative(view.rows(CORRELATIONS))
    rows = view.rows(CONTRASTS)
    if correlations.height and "erag" in view.results[CONTRASTS]["annotator_a"]:
        depth = max(correlations["depth"])
        for statistic in view.results[CORRELATIONS]["statistic"].unique(maintain_order=True):
            at = {"depth": depth, "statistic": statistic}
            yield contrast_table(view, rows.filter(**at), correlations.filter(**at), depth)
    if view.standing is not None:
        yield from agreement_of_labels(correlations, rows, view.standing, view.results.alpha)


def contrast_table(view: View, rows: pl.DataFrame, correlations: pl.DataFrame, depth: int) -> Table:
    """Return the contrasts of eRAG with each other annotator, by measure and run, by one statistic at one depth.

    ``rows`` and ``correlations`` are its CONTRASTS and `informative` CORRELATIONS there: agreements that are not shown
    are not contrasted.
    """
    statistic = correlations["statistic"].first()
    agreements = set(correlations.drop_nulls("value").select("annotator", "run_id").rows())
    selected = rows.filter(annotator_a="erag").with_columns(annotator="annotator_b")
    symbol = symbol_of(str(statistic))
    title = f"how much better eRAG agrees with utility, {symbol}, {counted(depth, 'document')}"
    return crosstab(
        (((f"erag - {annotator}", name), part) for (annotator, name), part in by_measure(selected)),
        names("annotators", "measure"),
        "run_id",
        run_columns(view.runs),
        functools.partial(_contrast, agreements),
        caption=f"Difference of two {symbol} over the queries that both label, with its paired bootstrap interval: "
        "above 0 eRAG agrees better. - where a column is constant there, or hardly varies. Other "
        "depths are in the table contrasts.",
        **view.about("contrasts", title, depth, statistic),
    )


def _contrast(agreements: Container[tuple[str, str]], row: Mapping[str, Any]) -> Value:
    if not all((row[name], row["run_id"]) in agreements for name in ("annotator_a", "annotator_b")):
        return Value(reason="one of the two agreements says nothing")
    if row["difference"] is None:
        return Value(reason="a column is constant")
    return estimate(row, "difference")


def agreement_of_labels(
    correlations: pl.DataFrame, contrasts: pl.DataFrame, standing: Standing, alpha: float
) -> Iterator[Finding]:
    """Yield the agreement over queries of P with utility, per annotator, in the best run."""
    of_best = correlations.filter(
        pl.col("ideal").is_in([ANY, OWN_LIST]),
        over="queries",
        run_id=standing.runs[0],
        depth=standing.deepest,
        cutoff=standing.deepest,
        measure="P",
    )
    for statistic in of_best["statistic"].unique(maintain_order=True).head(1):
        defined = of_best.filter(statistic=statistic).drop_nulls("value")
        rows = sorted(rows_of(defined), key=lambda row: (-_oriented(row), row["annotator"] != "erag"))
        if rows:
            head = f"(P@{standing.deepest}, lists of {standing.runs[0]}): {symbol_of(statistic)}"
            text = _ordered(rows[:NUM_AGREEMENTS], head, contrasts, alpha)
            yield Finding(topic="trust", text=text)
            return
    most_first = of_best.sort(-pl.col("num_queries"), pl.col("annotator") != "erag", maintain_order=True)
    for why in most_first["reason"].drop_nulls().head(1):
        text = f"no label's agreement with end-to-end is shown: {why}"
        yield Finding(topic="trust", text=text, is_warning=True)


def _oriented(row: Mapping[str, Any]) -> float:
    """Return an agreement such that more is better."""
    return float(row["value"]) * agreement_sign(row["annotator"], row["measure"], row["score"])


def _ordered(rows: Sequence[Mapping[str, Any]], head: str, contrasts: pl.DataFrame, alpha: float) -> str:
    """Format agreements, highest first, each with what is known of it against the first (Holm)."""
    first, others = rows[0], rows[1:]
    advantages = [_how_much_better(first, row, contrasts) for row in others]
    p_values = holm(np.array([p for _, p in advantages]))
    name = "eRAG" if first["annotator"] == "erag" else first["annotator"]
    best = " best" if others else ""
    parts = [f"{name}'s label predicts the answers{best} {head} {_agreement(first)}"]
    for row, (difference, _), p in zip(others, advantages, p_values, strict=True):
        is_equal = round(_oriented(first) - _oriented(row), 10) == 0
        known = "worse" if difference > 0 else "better on the questions that both label"
        known = f"significantly {known}" if p <= alpha else "equal here" if is_equal else "not settled"
        parts.append(f"then {row['annotator']} {_agreement(row)} ({known})")
    return "; ".join(parts)


def _how_much_better(
    row: Mapping[str, Any], other: Mapping[str, Any], contrasts: pl.DataFrame
) -> tuple[float, float]:
    """Return how much better the first agrees than the other where both label, and the p-value; NaN if unknown."""
    keys = ("run_id", "depth", "cutoff", "measure", "ideal", "statistic")
    annotators = [row["annotator"], other["annotator"]]
    of_pair = contrasts.filter(
        *(pl.col(key) == row[key] for key in keys),
        pl.col("annotator_a").is_in(annotators),
        pl.col("annotator_b").is_in(annotators),
    )
    for one in of_pair.drop_nulls("p_value").head(1).iter_rows(named=True):
        is_first = one["annotator_a"] == row["annotator"]
        return one["difference"] if is_first else -one["difference"], one["p_value"]
    return math.nan, math.nan


def _agreement(row: Mapping[str, Any]) -> str:
    value = with_interval(row["value"], row["low"], row["high"], 2, drop_zero=True)
    if agreement_sign(row["annotator"], row["measure"], row["score"]) < 0:
        return f"{value} (less is better)"
    return f"{value} of at most {number(row['ceiling'], 2, drop_zero=True)}"


ANALYSIS = Analysis(
    schema=CONTRASTS,
    sources=OF_COLUMNS,
    settings=("statistics", *RESAMPLED),
    code=("annotators", "scores"),
    make=per_dataset(contrasts),
    shows=(CORRELATIONS,),
    show=show,
    group=LABELLING,
)
