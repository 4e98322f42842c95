"""Runs compared question by question: the tests of every pair, corrected together, and how a table shows them."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import polars as pl

from erag_ray.analyses.columns import DatasetColumns, by_run, table_of, without_references
from erag_ray.analyses.parts.formats import number
from erag_ray.analyses.parts.model import Format, Value
from erag_ray.analyses.parts.shapes import estimate, field
from erag_ray.analyses.settings import OWN_LIST, Floats, Settings
from erag_ray.data.runs.references import END_TO_END
from erag_ray.measures import agreement
from erag_ray.store.schemas import TableSchema

FIGURES = (
    *("difference", "low", "high", "p_value", "low_adjusted", "high_adjusted", "p_adjusted"),
    *("effect_size", "detectable", "num_needed"),
)
"""Columns that are null where a pair of runs is not compared."""
FIGURE_COLUMNS = f"{' '.join(f'{name}?' for name in FIGURES)} num_queries num_dropped reason?"
"""Columns of the schema of a table of compared runs, but for those that name a row."""
NO_VARIATION = "no variation: the difference is the same for every query"
"""Why a pair that is compared has no effect size and no detectable difference."""
OF_ANY_DEPTH = ("reader", "score", "annotator", "measure", "ideal")
QUANTITY = (*OF_ANY_DEPTH, "depth", "cutoff")


def compare_runs(
    parts: Iterable[tuple[Mapping[str, str], DatasetColumns]],
    settings: Settings,
    schema: TableSchema,
    least: int = 1,
) -> pl.DataFrame:
    """Return COMPARISONS over several parts of the queries, corrected over all parts of a dataset.

    A part has columns that name it, such as slice and value, which the schema has too. Pairs with fewer than ``least``
    queries judged in both are not tested.
    """
    alpha = 1 - settings.confidence
    families, numbers = dict[tuple[object, ...], list[tuple[Any, ...]]](), itertools.count()
    for part, dataset in parts:
        of_judged, of_estimates = (
            by_run([item for item in without_references(columns) if item[0]["ideal"] != OWN_LIST])
            for columns in (dataset.columns, dataset.estimated)
        )
        chosen = (tuple(part.values()), dataset.draws.clusters)
        for (name, runs), (_, estimates) in zip(of_judged, of_estimates, strict=True):
            names = {**part, "dataset": dataset.dataset, **{key: name[key] for key in QUANTITY}}
            of_depth = () if name["annotator"] == END_TO_END else (name["depth"], name["cutoff"])
            key = (dataset.dataset, *(name[one] for one in OF_ANY_DEPTH), *of_depth)
            member = (next(numbers), names, runs, dataset.estimates and estimates, chosen)
            families.setdefault(key, []).append(member)
    tables, positions = [table_of([], schema)], list[int]()
    # a family at a time, since its tests hold the differences of all pairs; then in the order of the parts
    for members in families.values():
        family, rows = agreement.Family(), list[dict[str, Any]]()
        for position, names, runs, estimates, chosen in members:
            for a, b in itertools.combinations(sorted(runs), 2):
                figures, differences = _judged(runs[a], runs[b], least)
                rows.append({**names, "run_a": a, "run_b": b, **figures})
                positions.append(position)
                if not figures["reason"]:
                    if estimates:
                        # each of the two was rounded, so equal ones may differ in the last digit
                        estimated = agreement.paired_differences(estimates[a], estimates[b])
                        differences = np.round(estimated, agreement.TIE_DIGITS - 1)
                    family.add(differences, *chosen)
        tested = [row for row in rows if not row["reason"]]
        for row, adjusted in zip(tested, family.adjusted(alpha), strict=True):
            row |= _tested(row, adjusted, alpha)
        tables.append(table_of(rows, schema))
    return pl.concat(tables)[np.argsort(np.array(positions, np.int64), kind="stable")]


def _judged(a: Floats, b: Floats, least: int) -> tuple[dict[str, Any], Floats]:
    """Return what is known of two runs without a test, and their differences."""
    differences = agreement.paired_differences(a, b)
    is_judged = ~np.isnan(differences)
    judged = differences[is_judged]
    row = {
        "difference": float(judged.mean()) if len(judged) else None,
        "effect_size": agreement.effect_size(judged),
        "num_queries": len(judged),
        "num_dropped": len(differences) - len(judged),
        "reason": _why_not(a[is_judged], b[is_judged], least),
    }
    return row, differences


def _tested(row: dict[str, Any], adjusted: agreement.AdjustedTest, alpha: float) -> dict[str, Any]:
    """Return the figures of a pair that its test gives."""
    test, level = adjusted.test, adjusted.level
    needed = test.num_needed(level) if test.p_value > level else None
    return {
        **adjusted.figures(alpha),
        "detectable": test.detectable(alpha),
        # the queries to be judged grow in proportion, where an auxiliary label predicts the rest, and with clusters
        "num_needed": needed and agreement.round_up(needed * row["num_queries"] / test.count),
        "reason": NO_VARIATION if row["effect_size"] is None else None,
    }


def _why_not(a: Floats, b: Floats, least: int) -> str | None:
    if not len(a):
        return "no query is judged in both runs"
    if len(a) < least:
        return f"{len(a)} questions, fewer than {least}: no test"
    if (a == a[0]).all() and (b == a[0]).all():
        return f"both runs score {a[0]:g} for every query"
    return None


def pair_name(row: Mapping[str, Any]) -> str:
    """Return the name of a pair of runs: ``A - B``."""
    return f"{row['run_a']} - {row['run_b']}"


def _adjusted_interval(row: Mapping[str, Any]) -> Value:
    ends = [row["low_adjusted"], row["high_adjusted"]]
    interval = None if None in ends else f"[{', '.join(map(number, ends))}]"
    return Value(interval, reason=row["reason"] or "")


def _effect_size(row: Mapping[str, Any]) -> Value:
    is_constant = row["p_value"] is not None and row["effect_size"] is None
    return Value("no variation" if is_constant else row["effect_size"], reason=row["reason"] or "")


DETECTABLE = field(
    "detectable",
    "detectable",
    meaning=f"The least true difference that one test would find in {agreement.POWER:.0%} of cases",
)
TEST_FIELDS = (
    field(
        "difference",
        lambda row: estimate(row, "difference"),
        meaning="Mean over queries of the difference, with its interval",
    ),
    field(
        "p", "p_value", Format.P_VALUE, "By sign flips; the interval excludes 0 exactly if it is significant"
    ),
    field(
        "interval (Holm)",
        _adjusted_interval,
        Format.TEXT,
        "The interval that excludes 0 exactly if p (Holm) is significant",
    ),
    field("p (Holm)", "p_adjusted", Format.P_VALUE, "Corrected over all pairs of runs by this quantity"),
)
DIFFERENCE_FIELDS = (
    *TEST_FIELDS,
    field("effect size", _effect_size, Format.NUMBER_2, "The difference in standard deviations"),
    DETECTABLE,
)


def paired_caption(confidence: float) -> str:
    return (
        "Paired over queries: mean difference with its interval; p by sign flips (scores of 0 and 1: the exact sign "
        "test). Holm: both corrected over all pairs of runs by this quantity, of utility at all depths; equal pairs "
        "count once, and those without any difference not at all. An interval excludes 0 exactly if its p "
        "is significant. Effect size: the difference in standard deviations; detectable: the least true difference "
        f"that one test would find in {agreement.POWER:.0%} of cases (alpha {number(1 - confidence, 2)}, two-sided). "
    )
