"""Columns of values -> means, comparisons, correlations, contrasts, best depths; of whole datasets and of slices."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from oracle import chance
from oracle.chance import Array, Draws, Flips, known
from oracle.inputs import World
from oracle.lists import ANY, END_TO_END, LIST, OWN, Columns, Name
from oracle.readings import REFERENCES, Row
from scipy import stats

MIN_IN_SLICE = 10
Rows = dict[Name, Array]
"""Column -> a value of each question, NaN: not judged."""


class Estimate(NamedTuple):
    """Values of all questions, estimated from those of a sample."""

    values: Array
    slope: float
    correlation: float | None


@dataclasses.dataclass
class Part:
    """Some questions of a dataset, their columns and their draws."""

    world: World
    dataset: str
    ids: list[str]
    columns: Rows
    draws: Draws
    weights: Array
    clusters: chance.Clusters
    slice: tuple[str, str] = ("", "")
    estimates: dict[Name, Estimate] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        of_runs = {name: row for name, row in self.columns.items() if name.run_id not in REFERENCES}
        self.ends = {name: row for name, row in of_runs.items() if name.annotator == END_TO_END}
        self.measured = {name: row for name, row in of_runs.items() if name.annotator != END_TO_END}
        self.confidence, self.statistics = self.world.config["confidence"], self.world.config["statistics"]

    def among(self, ids: list[str], of: tuple[str, str]) -> Part:
        """The same of a slice's questions."""
        places = [place for place, name in enumerate(self.ids) if name in {*ids}]
        columns = {name: row[places] for name, row in self.columns.items()}
        chosen = [self.ids[one] for one in places]
        draws = self.draws, self.weights[:, places], self.clusters_at(places)
        return Part(self.world, self.dataset, chosen, columns, *draws, of)

    def clusters_at(self, places: list[int]) -> chance.Clusters:
        return None if self.clusters is None else [self.clusters[one] for one in places]

    def number(self, places: list[int]) -> int:
        """How many questions or clusters these places are."""
        return len({*(self.clusters_at(places) or places)})

    def values(self, name: Name) -> Array:
        """A column, or its estimates."""
        return self.estimates[name].values if name in self.estimates else self.columns[name]

    def share(self, values: Sequence[float] | Array, places: list[int]) -> tuple[float | None, ...]:
        """The mean of these values from 0 to 1, such as events, at these places, and its interval."""
        return chance.wilson(values, self.confidence, self.clusters_at(places))


def parts_of(world: World, columns: Columns) -> list[Part]:
    """Each dataset's columns, over its questions in the order of their ids, or of their clusters."""
    found = []
    for dataset in world.datasets:
        ids, clusters = world.in_clusters(dataset)
        rows = {
            name: np.array([values.get(one) for one in ids], dtype=float).round(12)
            for name, values in columns.items()
            if name.dataset == dataset
        }
        draws = Draws(len(ids), world.config, clusters)
        found.append(Part(world, dataset, ids, rows, draws, draws.weights, clusters))
    return found


def means(part: Part) -> Iterator[Row]:
    for name, row in part.columns.items():
        values, counted = part.values(name), len(known(row))
        counts = counted, len(row) - counted, len(known(values)) - counted
        is_signed = (name.annotator, name.measure) == ("gain", "P")
        yield (*name, *_score_interval(part, row, values, is_signed), *counts)


def _score_interval(part: Part, row: Array, values: Array, is_signed: bool = False) -> Any:
    judged, places = known(row), known(values)
    scores = row[judged]
    if len(judged) > 1 and max(abs(scores)) <= 1 and (places == judged or len({*values[places]}) == 1):
        if is_signed or min(scores) < 0:
            return [2 * one - 1 for one in part.share((scores + 1) / 2, judged)]
        return part.share(scores, judged)
    drawn = part.weights[:, places], part.confidence, part.number(places)
    return chance.mean_interval(values[places], *drawn)


def _by_run(columns: Rows) -> dict[Name, dict[str, Array]]:
    found = collections.defaultdict[Name, dict[str, Array]](dict)
    for name, row in columns.items():
        found[name._replace(run_id="")][name.run_id] = row
    return found


def _fits(name: Name, target: Name) -> bool:
    """Whether a measure and a utility are of one run and depth, and of one reader."""
    return (name.run_id, name.depth) == (target.run_id, target.depth) and name.reader in ("", target.reader)


def correlations(part: Part) -> Iterator[Row]:
    """CORRELATIONS over the queries of a run, with resamples, and over runs, without."""
    # over, measure, utility, the values of both, places of the questions, permutations, counts
    cases: list[tuple[str, Name, Name, Array, Array, list[int], Any, Row]] = []
    for (name, x), (target, y) in itertools.product(part.measured.items(), part.ends.items()):
        if _fits(name, target):
            places = known(x, y)
            orders = part.draws.orders_among(places) if len(places) >= 3 else None
            counts = len(places), 1, len(x) - len(places)
            cases.append(("queries", name, target, x[places], y[places], places, orders, counts))
    by_run = (_by_run(columns).items() for columns in (part.measured, part.ends))
    for (name, runs), (target, used) in itertools.product(*by_run):
        if _fits(name, target):
            judged = [run for run in runs if run in used and known(runs[run], used[run])]
            places = known(*(row for run in judged for row in (runs[run], used[run]))) if judged else []
            judged = judged if places else []
            a, b = (np.array([_mean(of[run], places) for run in judged]) for of in (runs, used))
            orders = Draws(len(a), part.world.config).orders if len(a) >= 8 else None
            counts = len(places), len(judged), len(part.ids) - len(places)
            cases.append(("runs", name, target, a, b, places, orders, counts))
    for (over, name, target, a, b, places, orders, counts), statistic in itertools.product(
        cases, part.statistics
    ):
        value, ceiling = (chance.of_all(statistic, *of) for of in ((a, b), (np.sort(a), np.sort(b))))
        low = high = p_value = None
        if value is not None and over == "queries":
            resampled = chance.statistic_of(statistic, a, b, part.weights[:, places])
            low, high = chance.ends(resampled, part.confidence, part.number(places))
        if value is not None and orders is not None:
            p_value = chance.permutation_p(statistic, a, b, orders)
        # how many values are not the most frequent one
        varied = min(len(one) - max((list(one).count(x) for x in one), default=0) for one in (a, b))
        names = over, statistic, *name._replace(reader=target.reader, score=target.score)
        has_reason = (low if over == "queries" else p_value) is None
        yield (*names, value, low, high, ceiling, p_value, *counts, varied, has_reason)


def _mean(row: Array, places: list[int]) -> float:
    return round(chance.mean(row[places]), chance.TIE)


def contrasts(part: Part) -> Iterator[Row]:
    """CONTRASTS of every two annotators' measures of the whole list."""
    whole = [item for item in part.measured.items() if item[0].cutoff == item[0].depth]
    whole.sort(key=lambda item: (item[0].annotator != "erag", item[0].annotator))
    for (target, y), statistic in itertools.product(part.ends.items(), part.statistics):
        sides: dict[Any, Any] = {}
        for (a, x), (b, z) in itertools.combinations([one for one in whole if _fits(one[0], target)], 2):
            is_own = (a.measure in OWN or b.measure in OWN) and a.annotator != b.annotator
            are_mixed = is_own and a.measure != b.measure and len({a.ideal, b.ideal} - {ANY}) < 2
            if (a.measure, a.ideal) != (b.measure, b.ideal) and not are_mixed:
                continue
            places, figures = known(x, z, y), (None,) * 4
            for name, row in ((a, x), (b, z)):
                if (name, *places) not in sides:
                    columns = row[places], y[places]
                    resampled = chance.statistic_of(statistic, *columns, part.weights[:, places])
                    sides[name, *places] = chance.of_all(statistic, *columns), resampled
            (first, of_a), (second, of_b) = sides[a, *places], sides[b, *places]
            if first is not None and second is not None:
                # where less is better, good labels agree negatively
                signs = (
                    -1 if (one.annotator == "distracting") != (one.measure == "Harmful") else 1
                    for one in (a, b)
                )
                (first, of_a), (second, of_b) = (
                    (sign * value, sign * of)
                    for sign, value, of in zip(signs, (first, second), (of_a, of_b), strict=True)
                )
                low, high = chance.ends(of_a - of_b, part.confidence, part.number(places))
                p_value = None if low is None else _p_of_zero(of_a - of_b, part.number(places))
                figures = first - second, low, high, p_value  # type: ignore[assignment]
            names = (part.dataset, target.reader, target.score, a.annotator, b.annotator, a.run_id, a.depth)
            measure = " / ".join(dict.fromkeys((a.measure, b.measure)))
            ideal = b.ideal if a.ideal == ANY else a.ideal
            yield (*names, measure, a.cutoff, ideal, statistic, *figures, len(places), len(y) - len(places))


def _p_of_zero(resampled: Array, number: int) -> float:
    """The least alpha whose interval excludes 0; that of the percentile interval is where its ends cross 0."""
    ordered, found = np.sort(resampled[~np.isnan(resampled)]), []
    for values in (ordered, -ordered[::-1]):
        num = int(np.searchsorted(values, 0, side="right"))
        step = -values[num - 1] / (values[num] - values[num - 1]) if 0 < num < len(values) else 0.0
        found.append(max(0.0, num - 1 + step) / (len(values) - 1))
    plain = min(1.0, max(2 * min(found), 2 / (len(ordered) + 1)))
    narrower = stats.norm.ppf(plain / 2) * math.sqrt((number - 1) / number)
    return 2 * float(stats.t.cdf(narrower, number - 1))


def comparisons(parts: list[Part], least: int = 1) -> Iterator[Row]:
    """COMPARISONS of every two runs, corrected over all parts of a dataset; slice and value stand first."""
    families = collections.defaultdict[Row, dict[Row, float]](dict)
    pending: list[tuple[Row, Row, tuple[int, int], Row, Flips | None, Row]] = []
    alpha = 1 - parts[0].confidence if parts else 0.0
    for part in parts:
        columns = {name: row for name, row in (part.measured | part.ends).items() if name.ideal != LIST}
        for name, runs in _by_run(columns).items():
            of_depth = () if name.annotator == END_TO_END else (name.depth, name.cutoff)
            family = (*name[:4], name.measure, name.ideal, *of_depth)
            for a, b in itertools.combinations(sorted(runs), 2):
                values, places = chance.differences(runs[a], runs[b]), known(runs[a], runs[b])
                judged, spread = values[places], chance.spread(values[places])
                mean = chance.mean(judged) if places else None
                effect = mean / spread if spread else None
                key, flips, detectable = (), None, None
                if len(judged) >= least and len({*runs[a][places], *runs[b][places]}) > 1:
                    estimates = chance.differences(
                        *(part.values(name._replace(run_id=run)) for run in (a, b))
                    )
                    flips = Flips(estimates[known(estimates)], part.clusters_at(known(estimates)))
                    if error := chance.spread(flips.tested) / math.sqrt(flips.count):
                        step = chance.step(flips.tested) / flips.count
                        detectable = chance.errors(alpha, flips.count) * error + step
                    turned = math.copysign(1, flips.values[0]) if flips.values else 1
                    key = part.slice, str((turned * estimates + 0.0).tolist())
                    if flips.values:
                        families[family].setdefault(key, flips.p_value)
                names = (*part.slice, *name[:4], a, b, *name[5:])
                counts = len(judged), len(values) - len(judged)
                pending.append((names, family, counts, (mean, effect, detectable), flips, key))
    for names, family, counts, (mean, effect, detectable), flips, key in pending:
        figures: Row = (mean, *[None] * 6, effect, None, None)
        if flips is not None:
            tests = dict(zip(families[family], chance.holm([*families[family].values()]), strict=True))
            p_adjusted = tests.get(key, 1.0)
            share = min(1.0, flips.p_value / p_adjusted) if key in tests else 1 / max(1, len(tests))
            level = alpha * share
            needed = flips.num_needed(level) if flips.p_value > level else None
            needed = needed and chance.rounded_up(needed * counts[0] / flips.count)
            kind = type(flips.p_value)
            ends = (*flips.interval(alpha), flips.p_value, *flips.interval(level), kind(min(1.0, p_adjusted)))
            figures = (flips.mean, *ends, effect, detectable, needed and kind(needed))
        yield (*names, *figures, *counts, flips is None or effect is None)


def order_effects(part: Part, changed: dict[Row, dict[str, float | None]]) -> Iterator[Row]:
    """ORDER_EFFECTS of one dataset: scores of changed lists, by run, depth and order, less those of the lists."""
    alpha, pending = 1 - part.confidence, list[tuple[Row, list[Any], Row, Flips | None, str]]()
    families = collections.defaultdict[Row, dict[str, float]](dict)
    for (name, row), order in itertools.product(part.ends.items(), part.world.config["orders"]):
        of_list = changed[name.run_id, name.depth, order]
        values = np.array([of_list.get(one) for one in part.ids], dtype=float)
        differences = chance.differences(values, row)
        places = known(differences)
        judged = differences[places]
        share = part.share([float(one != 0) for one in judged], places)
        figures = chance.mean(judged) if places else None, *[None] * 6
        flips = Flips(judged, part.clusters_at(places)) if any(judged) else None
        key = ""
        if flips is not None and len(places) > 1:
            key = str((math.copysign(1, flips.values[0]) * differences + 0.0).tolist())
            families[name.reader, name.score].setdefault(key, flips.p_value)
        names = part.dataset, name.reader, name.score, name.run_id, name.depth, order
        counts = len(places), len(row) - len(places)
        pending.append((names, [*figures], (*share, *counts), flips, key))
    for names, figures, others, flips, key in pending:
        if flips is not None and key:
            family = families[names[1:3]]
            tests = dict(zip(family, chance.holm([*family.values()]), strict=True))
            level = alpha * min(1.0, flips.p_value / tests[key])
            adjusted = *flips.interval(level), min(1.0, tests[key])
            figures = [flips.mean, *flips.interval(alpha), flips.p_value, *adjusted]
        yield (*names, *figures, *others, not key)


def best_depths(part: Part) -> Iterator[Row]:
    runs = collections.defaultdict[Row, dict[int, Array]](dict)
    for name, row in part.ends.items():
        runs[name.reader, name.score, name.run_id][name.depth] = row
    for names, rows in runs.items():
        depths, places = sorted(rows), known(*rows.values())
        best = max(depths, key=lambda one: (_mean(rows[one], places), -one)) if places else depths[0]
        pairs = chance.differences(rows[best], rows[depths[-1]])[places]
        flips = Flips(pairs, part.clusters_at(places)) if places else None
        level = (1 - part.confidence) / (len(runs) * max(1, len(depths) - 1))
        ends = flips.interval(level) if flips and flips.count > 1 and best < depths[-1] else (None, None)
        yield (part.dataset, *names, best, depths[-1], flips.mean if flips else None, *ends, len(places))


def add_estimates(part: Part) -> None:
    """Estimate the columns that only a sample of the questions has."""
    auxiliary = part.world.config["auxiliary"]
    of_auxiliary = {name[4:]: row for name, row in part.measured.items() if name.annotator == auxiliary}
    for name, row in (part.measured | part.ends).items():
        others = [name, *(name._replace(measure=measure, ideal=ANY) for measure in ("P", "Success"))]
        rows = [of_auxiliary.get(other[4:], np.array([])) for other in others if name.reader]
        predictor = next(filter(known, rows), None)
        is_sampled = name.annotator in ("erag", END_TO_END)
        unasked = {*part.ids} - {*part.world.read} if is_sampled else set[str]()
        counted = [at for at, one in enumerate(part.ids) if one in unasked or at in known(row)]
        if predictor is not None and 30 <= len(known(row)) < len(counted):
            part.estimates[name] = _estimate(row, predictor, counted)


def _estimate(row: Array, predictor: Array, places: list[int]) -> Estimate:
    """The difference estimator with a line fitted on all other questions (PPI++, arXiv 2311.01453)."""
    auxiliary = np.where(np.isnan(predictor), np.nanmean(predictor), predictor)[places]
    values, width = row[places], float(np.ptp(auxiliary))
    x = auxiliary / width if width else 0 * auxiliary
    x -= chance.mean(x)
    read = known(values)
    labels, probability = values[read], len(read) / len(places)

    def line(without: int) -> tuple[float, float]:
        others = [one for one in read if one != without]
        if len(others) < 20:
            return 0.0, 0.0
        one, y = x[others], values[others]
        determinant = len(one) * (one @ one) * (1 + 1e-6) - one.sum() ** 2
        slope = (len(one) * (one @ y) - one.sum() * y.sum()) / determinant if determinant > 0 else 0.0
        return float(y.sum() - slope * one.sum()) / len(one), float(slope)

    found = np.full(len(row), np.nan)
    for number, place in enumerate(places):
        intercept, slope = line(number)
        predicted = min(max(intercept + slope * x[number], min(0.0, *labels)), max(1.0, *labels))
        error = values[number] - predicted if number in read else 0.0
        found[place] = round(predicted + error / probability, chance.TIE)
    varies = min(np.ptp(x[read]), np.ptp(labels)) > 1e-12
    correlation = float(np.corrcoef(x[read], labels)[0, 1]) if varies else None
    return Estimate(found, line(-1)[1] / (width or 1.0), correlation)


def auxiliary_means(part: Part) -> Iterator[Row]:
    for name, one in part.estimates.items():
        row = part.columns[name]
        intervals = (_score_interval(part, row, values) for values in (one.values, row))
        counts = len(known(row)), len(known(one.values))
        figures = itertools.chain(*intervals)
        yield (*name, part.world.config["auxiliary"], *figures, one.slope, one.correlation, *counts)
