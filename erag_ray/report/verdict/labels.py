"""Sentences on labels: which run they put first, how well they agree with the end-to-end score, where they fail."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from erag_ray.agreement import holm
from erag_ray.annotators import agreement_sign, label_sign
from erag_ray.evaluate import ANY, OWN_LIST, RATES
from erag_ray.report.formats import counted, number, with_interval
from erag_ray.report.load import Results
from erag_ray.report.model import Finding
from erag_ray.report.tables.correlations import STATISTIC_NAMES
from erag_ray.report.verdict.answer import listed_and
from erag_ray.report.verdict.standing import Pairs, Standing
from erag_ray.runs import END_TO_END

NUM_AGREEMENTS = 4
"""Annotators whose agreement is named."""
_number = functools.partial(number, drop_zero=True)
_with_interval = functools.partial(with_interval, drop_zero=True)


def labels_first(results: Results, standing: Standing) -> Iterator[Finding]:
    """Yield which annotators put the same run first, by P over the whole list and over the same questions."""
    if len(standing.leaders) > 1 or len(standing.runs) < 2 or not standing.sign or standing.is_useless:
        return
    depth = standing.deepest
    rows = results.comparisons.filter(
        pl.col("annotator") != END_TO_END,
        dataset=standing.dataset,
        depth=depth,
        measure="P",
        cutoff=depth,
        ideal=ANY,
    ).drop_nulls("difference")
    compared = min((one.num_queries for one in standing.rivals), default=0)
    same, another, several, fewer = list[str](), list[str](), list[str](), list[str]()
    for annotator in sorted(rows["annotator"].unique(), key=lambda name: (name != "erag", name)):
        part, sign = rows.filter(annotator=annotator), label_sign(annotator, standing.score)
        runs = sorted({*part["run_a"], *part["run_b"]})
        first, _ = Pairs(part, sign, results.alpha).leaders(runs, depth)
        num_queries = int(str(part["num_queries"].min()))
        if sign and num_queries != compared:
            fewer.append(f"{annotator} ({listed_and(first)}, {counted(num_queries, 'question')})")
        elif sign and len(first) > 1:
            several.append(f"{annotator} ({listed_and(first)})")
        elif sign and first == [standing.runs[0]]:
            same.append(annotator)
        elif sign:
            another.append(f"{annotator} ({first[0]})")
    heads = (
        "put the same run first",
        "another" if same else "put another run first",
        "several" if same or another else "put several runs first",
        "on other questions" if same or another or several else "put first, on other questions",
    )
    parts = [
        f"{head}: {', '.join(names)}"
        for head, names in zip(heads, (same, another, several, fewer), strict=True)
        if names
    ]
    if parts:
        yield Finding(topic="label", text=f"labels (P@{depth}) that {'; '.join(parts)}")


def agreement_of_labels(results: Results, standing: Standing) -> Iterator[Finding]:
    """Yield the agreement over queries of P with utility, per annotator, in the best run."""
    correlations = results.correlations.filter(
        pl.col("ideal").is_in([ANY, OWN_LIST]),
        over="queries",
        dataset=standing.dataset,
        run_id=standing.runs[0],
        depth=standing.deepest,
        cutoff=standing.deepest,
        measure="P",
    )
    for statistic in correlations["statistic"].unique(maintain_order=True).head(1):
        defined = correlations.filter(statistic=statistic).drop_nulls("value")
        rows = sorted(
            defined.iter_rows(named=True), key=lambda row: (-_oriented(row), row["annotator"] != "erag")
        )
        if rows:
            symbol = STATISTIC_NAMES.get(statistic, statistic)
            head = f"(P@{standing.deepest}, lists of {standing.runs[0]}): {symbol}"
            yield Finding(topic="trust", text=_ordered(rows[:NUM_AGREEMENTS], head, results))
            return
    for why in correlations["reason"].drop_nulls().head(1):
        text = f"no label's agreement with end-to-end is shown: {why}"
        yield Finding(topic="trust", text=text, is_warning=True)


def _oriented(row: Mapping[str, Any]) -> float:
    """Return an agreement such that more is better."""
    return float(row["value"]) * agreement_sign(row["annotator"], row["measure"], row["score"])


def _ordered(rows: Sequence[Mapping[str, Any]], head: str, results: Results) -> str:
    """Format agreements, highest first, each with what is known of it against the one before (Holm)."""
    neighbours = list(itertools.pairwise(rows))
    p_values = holm(np.array([_p_of_contrast(*pair, results.contrasts) for pair in neighbours]))
    name = "eRAG" if rows[0]["annotator"] == "erag" else rows[0]["annotator"]
    best = " best" if neighbours else ""
    parts = [f"{name}'s label predicts the answers{best} {head} {_agreement(rows[0])}"]
    for (row, following), p in zip(neighbours, p_values, strict=True):
        is_equal = round(_oriented(row) - _oriented(following), 10) == 0
        known = "significantly worse" if p <= results.alpha else "as good" if is_equal else "not settled"
        parts.append(f"then {following['annotator']} {_agreement(following)} ({known})")
    return "; ".join(parts)


def _p_of_contrast(row: Mapping[str, Any], following: Mapping[str, Any], contrasts: pl.DataFrame) -> float:
    """Return the p-value of the difference of two agreements; NaN without any."""
    keys = ("dataset", "run_id", "depth", "cutoff", "measure", "ideal", "statistic")
    names = [row["annotator"], following["annotator"]]
    of_pair = contrasts.filter(
        *(pl.col(key) == row[key] for key in keys),
        pl.col("annotator_a").is_in(names),
        pl.col("annotator_b").is_in(names),
    )
    p_values = of_pair["p_value"].drop_nulls()
    return float(p_values[0]) if len(p_values) else float("nan")


def _agreement(row: Mapping[str, Any]) -> str:
    value = _with_interval(row["value"], row["low"], row["high"], 2)
    if agreement_sign(row["annotator"], row["measure"], row["score"]) < 0:
        return f"{value} (less is better)"
    return value if row["ceiling"] is None else f"{value} of at most {_number(row['ceiling'], 2)}"


def failures_of_labels(shares: pl.DataFrame, standing: Standing) -> Iterator[Finding]:
    """Yield how often the list and the labels of single documents disagree, in the best run."""
    best = shares.filter(dataset=standing.dataset, run_id=standing.runs[0], depth=standing.deepest, slice="")
    rows = best.drop_nulls("share")
    rates = {row["cell"]: row for row in rows.filter(pl.col("cell").is_in(list(RATES))).iter_rows(named=True)}
    parts = [
        text.format(_share(rates[rate]))
        for rate, text in (
            ("combined_given_list", "only the list was enough for {} of the answered questions"),
            ("distracted_given_alone", "the list lost {} of those for which a document was enough"),
        )
        if rate in rates
    ]
    if parts:
        yield Finding(topic="trust", text="; ".join(parts))


def _share(row: Mapping[str, Any]) -> str:
    return f"{row['share']:.0%} [{row['low']:.0%}, {row['high']:.0%}]"
