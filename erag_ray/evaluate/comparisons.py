"""PER_QUERY and UTILITY -> COMPARISONS of runs, BEST_DEPTHS and CONTRASTS of annotators, paired over queries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.agreement import (
    TIE_DIGITS,
    Interval,
    Resampled,
    detectable_difference,
    difference_of,
    effect_size,
    holm,
    mean_intervals,
    paired_differences,
    randomisation_p_values,
    resampled_agreement,
    sign_flips,
)
from erag_ray.annotators import annotator_named
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
from erag_ray.schemas import BEST_DEPTHS, COMPARISONS, CONTRASTS

COLUMNS_AT_A_TIME = 500
NO_VARIATION = "no variation: the difference is the same for every query"
"""Why a pair that is compared has no effect size and no detectable difference."""
TOO_FEW = "fewer than 2 queries are judged in both runs"
Row = tuple[object, ...]


def comparisons(datasets: Sequence[DatasetColumns], settings: Settings) -> pl.DataFrame:
    """COMPARISONS of every two runs, by utility and by each measure of each annotator.

    p-values by paired randomisation, adjusted by Holm over all pairs of runs within one dataset, reader, quantity and
    depth. ``difference`` is run_a's mean minus run_b's over the ``num_queries`` judged in both, or over all with the
    estimates of an auxiliary label. Measures whose ideal is the run's own list are left out: they compare no runs. A
    run that never scored above 0 end to end is not compared.
    """
    rows: list[Row] = []
    for dataset in datasets:
        families = list(_families(dataset))
        flips = sign_flips(dataset.draws.weights.shape[1], settings.num_flips, settings.seed)
        for batch in _batched(families):
            differences = np.concatenate([family.differences for family in batch], axis=1)
            p_values = randomisation_p_values(differences, flips)
            intervals = mean_intervals(differences, dataset.draws.weights, settings.confidence)
            for family in batch:
                count = len(family.pairs)
                family_rows = list(_rows(family, p_values[:count], intervals[:count]))
                rows += ((dataset.dataset, *row) for row in family_rows)
                p_values, intervals = p_values[count:], intervals[count:]
    return table_of(rows, COMPARISONS)


def _batched(families: Sequence[_Family]) -> Iterator[list[_Family]]:
    """Yield families in batches, so that the flips, by far the largest array, are passed over seldom."""
    batch: list[_Family] = []
    for family in families:
        batch.append(family)
        if sum(len(one.pairs) for one in batch) >= COLUMNS_AT_A_TIME:
            yield batch
            batch = []
    if batch:
        yield batch


@dataclass(frozen=True, kw_only=True)
class _Family:
    """All pairs of runs by one quantity; they are corrected together."""

    name: Mapping[str, object]
    pairs: Sequence[tuple[str, str]]
    judged: Floats
    """[num_queries, num_pairs], the differences of what was judged; NaN where one of the two was not."""
    differences: Floats
    """The same, with the estimates of an auxiliary label in place of what it predicts."""
    reasons: Sequence[str | None]
    """Why a pair is not compared."""


def _families(dataset: DatasetColumns) -> Iterator[_Family]:
    of_judged = _comparable(dataset.columns)
    of_estimates = _comparable(dataset.estimated) if dataset.estimates else of_judged
    for (name, runs), (_, estimates) in zip(of_judged, of_estimates, strict=True):
        if len(runs) > 1:
            yield _family(name, runs, estimates)


def _comparable(columns: Sequence[NamedColumn]) -> list[tuple[Mapping[str, object], dict[str, Floats]]]:
    """Return the columns that compare runs: the name of each, and run_id -> values."""
    return by_run([item for item in without_references(columns) if item[0]["ideal"] != OWN_LIST])


def _family(
    name: Mapping[str, object], runs: Mapping[str, Floats], estimates: Mapping[str, Floats]
) -> _Family:
    pairs = list(itertools.combinations(sorted(runs), 2))
    judged = _differences(runs, pairs)
    differences = judged if estimates is runs else _differences(estimates, pairs)
    silent = {run for run, column in runs.items() if _never_scored(name, column)}
    reasons = [_why_not(pair, silent, column) for pair, column in zip(pairs, judged.T, strict=True)]
    return _Family(name=name, pairs=pairs, judged=judged, differences=differences, reasons=reasons)


def _differences(runs: Mapping[str, Floats], pairs: Sequence[tuple[str, str]]) -> Floats:
    return np.stack([paired_differences(runs[a], runs[b]) for a, b in pairs], axis=1)


def _rows(family: _Family, p_values: Floats, intervals: Sequence[Interval]) -> Iterator[Row]:
    is_out = np.array([reason is not None for reason in family.reasons])
    adjusted = holm(np.where(is_out, np.nan, p_values))
    name = family.name
    last = (name["depth"], name["measure"], name["cutoff"], name["ideal"])
    for index, (pair, reason) in enumerate(zip(family.pairs, family.reasons, strict=True)):
        column, estimates = family.judged[:, index], family.differences[:, index]
        judged = column[~np.isnan(column)]
        tests = (float(p_values[index]), float(adjusted[index]))
        size = effect_size(judged)
        figures = (*intervals[index], *tests, size, detectable_difference(estimates[~np.isnan(estimates)]))
        shown = figures if reason is None else (None,) * len(figures)
        reason = reason or (NO_VARIATION if size is None else None)
        first = (name["reader"], name["score"], name["annotator"], *pair)
        yield (*first, *last, *shown, len(judged), len(column) - len(judged), reason)


def _never_scored(name: Mapping[str, object], column: Floats) -> bool:
    return name["annotator"] == END_TO_END and not (column > 0).any()


def _why_not(pair: tuple[str, str], silent: set[str], column: Floats) -> str | None:
    if np.isfinite(column).sum() < 2:
        return TOO_FEW
    never = [run for run in pair if run in silent]
    return f"{', '.join(never)} never scored above 0" if never else None


def best_depths(datasets: Sequence[DatasetColumns], settings: Settings) -> pl.DataFrame:
    """BEST_DEPTHS: how many documents serve the reader best in each run, of ties the fewest.

    ``difference`` is the mean utility at that depth minus the one at the deepest lists, paired over queries.
    """
    rows: list[Row] = []
    for columns in datasets:
        _, ends = measured_and_used(columns.of_runs)
        runs: dict[Row, dict[int, Floats]] = {}
        for name, column in ends:
            key = (name["reader"], name["score"], name["run_id"])
            runs.setdefault(key, {})[int(str(name["depth"]))] = column
        for run, utilities in runs.items():
            rows.append((columns.dataset, *run, *_best_depth(utilities, columns.draws, settings.confidence)))
    return table_of(rows, BEST_DEPTHS)


def _best_depth(utilities: Mapping[int, Floats], draws: Draws, confidence: float) -> Row:
    """Best depth, deepest depth, difference with its interval, number of queries; by depth -> [num_queries]."""
    depths = sorted(utilities)
    table = np.stack([utilities[depth] for depth in depths])
    table[:, np.isnan(table).any(axis=0)] = np.nan
    num_judged = int((~np.isnan(table[0])).sum())
    means = np.round(np.nanmean(table, axis=1), TIE_DIGITS) if num_judged else np.zeros(len(depths))
    best = int(np.argmax(means))
    differences = paired_differences(table[best], table[-1])
    (interval,) = mean_intervals(differences[:, None], draws.weights, confidence)
    return (depths[best], depths[-1], *interval, num_judged)


def contrasts(datasets: Sequence[DatasetColumns], settings: Settings) -> pl.DataFrame:
    """CONTRASTS: how much better one annotator's measure agrees with utility than another's, for every two of them.

    Over the queries that both have judged, at the cut-off that equals the depth; a resample draws the same queries for
    both. A measure that is constant there has no contrast. An annotator with measures of its own is contrasted with
    all measures of the others, and ``measure`` names both: "nDCG / UDCG".
    """
    rows: list[Row] = []
    for dataset in datasets:
        measured, ends = measured_and_used(dataset.of_runs)
        whole = [item for item in measured if item[0]["cutoff"] == item[0]["depth"]]
        for (target, y), statistic in itertools.product(ends, settings.statistics):
            of_list = [item for item in whole if same_list(item[0], target)]
            sides = _Sides(y, statistic, dataset.draws)
            for first, second in itertools.combinations(_in_order(of_list), 2):
                if _are_contrasted(first[0], second[0]):
                    figures = sides.contrast(first[1], second[1], settings.confidence)
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

    def contrast(self, a: Floats, b: Floats, confidence: float) -> tuple[float | int | None, ...]:
        """Difference, low, high, num_queries and num_dropped, over the queries judged in both."""
        is_judged = ~np.isnan(a + b + self._y)
        difference = difference_of(self._side(a, is_judged), self._side(b, is_judged), confidence)
        return (*difference, int(is_judged.sum()), int((~is_judged).sum()))

    def _side(self, column: Floats, is_judged: npt.NDArray[np.bool_]) -> Resampled | None:
        key = id(column), is_judged.tobytes()
        if key not in self._known:
            weights = self._draws.among(is_judged).weights
            resampled = resampled_agreement(column[is_judged], self._y[is_judged], self._statistic, weights)
            self._known[key] = resampled
        return self._known[key]
