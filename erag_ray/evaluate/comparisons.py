"""PER_QUERY and UTILITY -> COMPARISONS of runs, BEST_DEPTHS and CONTRASTS of annotators, paired over queries."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.agreement import (
    TIE_DIGITS,
    AdjustedTest,
    Family,
    Resampled,
    detectable_difference,
    difference_of,
    effect_size,
    paired_differences,
    paired_test,
    resampled_agreement,
    round_up,
)
from erag_ray.annotators import agreement_sign, annotator_named
from erag_ray.evaluate.columns import (
    DatasetColumns,
    Draws,
    NamedColumn,
    by_run,
    measured_and_used,
    same_list,
    table_of,
    without_references,
)
from erag_ray.evaluate.common import ANY, OWN_LIST, Floats, Settings
from erag_ray.measures import MEASURES
from erag_ray.runs import END_TO_END
from erag_ray.schemas import BEST_DEPTHS, COMPARISONS, CONTRASTS, TableSchema
from erag_ray.scores import score_sign

NO_VARIATION = "no variation: the difference is the same for every query"
"""Why a pair that is compared has no effect size and no detectable difference."""
NOT_JUDGED = "no query is judged in both runs"
OF_ANY_DEPTH = ("reader", "score", "annotator", "measure", "ideal")
QUANTITY = (*OF_ANY_DEPTH, "depth", "cutoff")
Row = tuple[object, ...]


def comparisons(datasets: Sequence[DatasetColumns], settings: Settings) -> pl.DataFrame:
    """COMPARISONS of every two runs, by utility and by each measure of each annotator.

    p-values by `erag_ray.agreement.paired_test`, adjusted by Holm over all pairs of runs within one dataset and
    quantity: utility at all depths of a reader, or a measure of an annotator at a depth. ``difference`` is run_a's mean
    minus run_b's over the ``num_queries`` judged in both, or over all with the estimates of an auxiliary label.
    ``low`` and ``high`` agree with ``p_value``, ``low_adjusted`` and ``high_adjusted`` with ``p_adjusted``. Measures
    whose ideal is the run's own list are left out: they compare no runs.
    """
    return compare_runs([({}, dataset) for dataset in datasets], settings, COMPARISONS)


FIGURES = (
    "difference",
    "low",
    "high",
    "p_value",
    "low_adjusted",
    "high_adjusted",
    "p_adjusted",
    "effect_size",
    "detectable",
    "num_needed",
)


def compare_runs(
    parts: Iterable[tuple[Mapping[str, str], DatasetColumns]],
    settings: Settings,
    schema: TableSchema,
    least: int = 1,
) -> pl.DataFrame:
    """Return COMPARISONS over several parts of the queries, corrected over all parts of a dataset.

    Args:
        parts: columns that name each, such as slice and value, and its DatasetColumns.
        settings: whose confidence is taken.
        schema: COMPARISONS, with the columns that name the parts.
        least: pairs with fewer queries judged in both are not tested.
    """
    alpha = 1 - settings.confidence
    families: dict[Row, Family] = {}
    pairs: list[_Pair] = []
    for part, dataset in parts:
        of_judged = _comparable(dataset.columns)
        of_estimates = _comparable(dataset.estimated) if dataset.estimates else of_judged
        for (name, runs), (_, estimates) in zip(of_judged, of_estimates, strict=True):
            names = {**part, "dataset": dataset.dataset, **{key: name[key] for key in QUANTITY}}
            of_depth = () if name["annotator"] == END_TO_END else (name["depth"], name["cutoff"])
            key = (dataset.dataset, *(name[one] for one in OF_ANY_DEPTH), *of_depth)
            family = families.setdefault(key, Family())
            for a, b in itertools.combinations(sorted(runs), 2):
                row, differences = _judged(runs[a], runs[b], least)
                test = None
                if not row["reason"]:
                    if estimates is not runs:
                        differences = paired_differences(estimates[a], estimates[b])
                    test = family.add(differences, tuple(part.values()))
                    row["detectable"] = detectable_difference(differences[~np.isnan(differences)], alpha)
                pairs.append(_Pair({**names, "run_a": a, "run_b": b, **row}, family, test))
    adjusted = {family: family.adjusted(alpha) for family in families.values()}
    rows = [
        pair.row if pair.test is None else _tested(pair.row, adjusted[pair.family][pair.test], alpha)
        for pair in pairs
    ]
    return table_of([tuple(row[name] for name in schema.columns.names) for row in rows], schema)


class _Pair(NamedTuple):
    """Two runs: what is known without the other pairs, and the test in its family (None: there is none)."""

    row: dict[str, Any]
    family: Family
    test: int | None


def _comparable(columns: Sequence[NamedColumn]) -> list[tuple[Mapping[str, object], dict[str, Floats]]]:
    """Return the columns that compare runs: the name of each, and run_id -> values."""
    return by_run([item for item in without_references(columns) if item[0]["ideal"] != OWN_LIST])


def _judged(a: Floats, b: Floats, least: int) -> tuple[dict[str, Any], Floats]:
    """Return what is known of two runs without a test, and their differences."""
    differences = paired_differences(a, b)
    is_judged = ~np.isnan(differences)
    judged = differences[is_judged]
    row = {
        **dict.fromkeys(FIGURES),
        "difference": float(judged.mean()) if len(judged) else None,
        "effect_size": effect_size(judged),
        "num_queries": len(judged),
        "num_dropped": len(differences) - len(judged),
        "reason": _why_not(a[is_judged], b[is_judged], least),
    }
    return row, differences


def _tested(row: dict[str, Any], adjusted: AdjustedTest, alpha: float) -> dict[str, Any]:
    """Return the row of a pair with the figures that its test gives."""
    test, level = adjusted.test, adjusted.level
    low, high = test.interval(alpha)
    low_adjusted, high_adjusted = (low, high) if level == alpha else test.interval(level)
    needed = test.num_needed(level) if test.p_value > level else None
    return {
        **row,
        "difference": test.mean,
        "low": low,
        "high": high,
        "p_value": test.p_value,
        "low_adjusted": low_adjusted,
        "high_adjusted": high_adjusted,
        "p_adjusted": adjusted.p_adjusted,
        # where an auxiliary label predicts the rest, the queries to be judged grow in proportion
        "num_needed": needed and round_up(needed * row["num_queries"] / test.count),
        "reason": NO_VARIATION if row["effect_size"] is None else None,
    }


def _why_not(a: Floats, b: Floats, least: int) -> str | None:
    if not len(a):
        return NOT_JUDGED
    if len(a) < least:
        return f"{len(a)} questions, fewer than {least}: no test"
    if (a == a[0]).all() and (b == a[0]).all():
        return f"both runs score {a[0]:g} for every query"
    return None


def best_depths(datasets: Sequence[DatasetColumns], settings: Settings) -> pl.DataFrame:
    """BEST_DEPTHS: how many documents serve the reader best in each run, of ties the fewest.

    ``difference`` is the mean utility at that depth minus the one at the deepest lists, paired over queries. Its
    interval is at the level alpha divided by the numbers of runs and of depths to choose from (Bonferroni), so that all
    of a reader hold together. A score that is neither better nor worse with more has no best depth but the deepest.
    """
    rows: list[Row] = []
    for columns in datasets:
        _, ends = measured_and_used(columns.of_runs)
        runs: dict[Row, dict[int, Floats]] = {}
        for name, column in ends:
            key = (name["reader"], name["score"], name["run_id"])
            runs.setdefault(key, {})[int(str(name["depth"]))] = column
        for run, utilities in runs.items():
            level = (1 - settings.confidence) / (len(runs) * max(1, len(utilities) - 1))
            sign = score_sign(str(run[1]))
            rows.append((columns.dataset, *run, *_best_depth(utilities, sign, level)))
    return table_of(rows, BEST_DEPTHS)


def _best_depth(utilities: Mapping[int, Floats], sign: int, level: float) -> Row:
    """Best depth, deepest depth, difference with its interval, number of queries; by depth -> [num_queries]."""
    depths = sorted(utilities, reverse=not sign)
    table = np.stack([utilities[depth] for depth in depths])
    table = table[:, ~np.isnan(table).any(axis=0)]
    if not table.size:
        return (depths[0], max(depths), None, None, None, 0)
    best = int(np.argmax(np.round(sign * table.mean(axis=1), TIE_DIGITS)))
    test = paired_test(paired_differences(table[best], table[depths.index(max(depths))]))
    interval = test.interval(level) if test.count > 1 else (None, None)
    return (depths[best], max(depths), test.mean, *interval, test.count)


def contrasts(datasets: Sequence[DatasetColumns], settings: Settings) -> pl.DataFrame:
    """CONTRASTS: how much better one annotator's measure agrees with utility than another's, for every two of them.

    Where less of a label, measure or score is better, its agreement is taken with the other sign.
    Over the queries that both have judged, at the cut-off that equals the depth; a resample draws the same queries for
    both. A measure that is constant there has no contrast. An annotator with measures of its own is contrasted with
    all measures of the others, and ``measure`` names both: "nDCG / UDCG".
    """
    rows: list[Row] = []
    for dataset in datasets:
        measured, ends = measured_and_used(dataset.of_runs)
        whole = [item for item in measured if item[0]["cutoff"] == item[0]["depth"]]
        for (target, y), statistic in itertools.product(ends, settings.statistics):
            score = str(target["score"])
            of_list = [item for item in whole if same_list(item[0], target)]
            sides = _Sides(y, statistic, dataset.draws)
            for first, second in itertools.combinations(_in_order(of_list), 2):
                if _are_contrasted(first[0], second[0]):
                    signs = [
                        agreement_sign(str(n["annotator"]), str(n["measure"]), score)
                        for n, _ in (first, second)
                    ]
                    figures = sides.contrast(first[1], second[1], signs, settings.confidence)
                    names = _names(first[0], second[0], target)
                    rows.append((dataset.dataset, *names, statistic, *figures))
    return table_of(rows, CONTRASTS)


def _are_contrasted(first: Mapping[str, object], second: Mapping[str, object]) -> bool:
    """Return whether two columns have one measure, or one a measure that only its annotator has; ideals must agree."""
    if first["measure"] == second["measure"]:
        return first["ideal"] == second["ideal"]
    ideals = {first["ideal"], second["ideal"]} - {ANY}
    is_special = any(_is_special(str(name["annotator"]), str(name["measure"])) for name in (first, second))
    return is_special and first["annotator"] != second["annotator"] and len(ideals) < 2


def _is_special(annotator: str, measure: str) -> bool:
    """Return whether a measure is the annotator's own, and no default of others."""
    is_default = measure in MEASURES and MEASURES[measure].by_default
    return measure in annotator_named(annotator).measures and not is_default


def _in_order(columns: Sequence[NamedColumn]) -> list[NamedColumn]:
    """Return columns sorted by annotator, eRAG's first: the others are its baselines."""
    return sorted(columns, key=lambda item: (item[0]["annotator"] != "erag", str(item[0]["annotator"])))


def _names(
    name: Mapping[str, object], other: Mapping[str, object], target: Mapping[str, object]
) -> tuple[object, ...]:
    first = (target["reader"], target["score"], name["annotator"], other["annotator"], name["run_id"])
    measures = dict.fromkeys((str(name["measure"]), str(other["measure"])))
    ideal = other["ideal"] if name["ideal"] == ANY else name["ideal"]
    return (*first, name["depth"], " / ".join(measures), name["cutoff"], ideal)


class _Sides:
    """The measures' agreement with one utility; each is resampled once, whichever others it is compared with."""

    def __init__(self, y: Floats, statistic: str, draws: Draws) -> None:
        self._y = y
        self._statistic = statistic
        self._draws = draws
        self._known: dict[tuple[int, bytes], Resampled | None] = {}

    def contrast(
        self, a: Floats, b: Floats, signs: Sequence[int], confidence: float
    ) -> tuple[float | int | None, ...]:
        """Difference, low, high, p-value, num_queries and num_dropped, over the queries judged in both."""
        is_judged = ~np.isnan(a + b + self._y)
        first, second = (self._side(column, is_judged) for column in (a, b))
        difference = difference_of(first, second, signs, confidence)
        return (*difference, int(is_judged.sum()), int((~is_judged).sum()))

    def _side(self, column: Floats, is_judged: npt.NDArray[np.bool_]) -> Resampled | None:
        key = id(column), is_judged.tobytes()
        if key not in self._known:
            weights = self._draws.among(is_judged).weights
            resampled = resampled_agreement(column[is_judged], self._y[is_judged], self._statistic, weights)
            self._known[key] = resampled
        return self._known[key]
