"""READER_INTERACTIONS and READER_AGREEMENTS: what of a comparison depends on the reader. Pure."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from erag_ray.analyses.columns import DatasetColumns, by_run, measured_and_used
from erag_ray.analyses.settings import ANY, Floats, Settings
from erag_ray.annotators import agreement_sign
from erag_ray.measures.agreement import (
    TIE_DIGITS,
    Family,
    paired_differences,
    percentiles,
    resampled_agreement,
)
from erag_ray.store.schemas import STRING, VALUE, table_schema

TWO_READERS = {"reader_a": STRING, "reader_b": STRING}
READER_INTERACTIONS = table_schema(
    "reader_interactions",
    "dataset* score* depth* reader_a* reader_b* run_a* run_b* with_a? with_b? difference? low? high? p_value? "
    "low_adjusted? high_adjusted? p_adjusted? num_queries num_dropped",
    **TWO_READERS,
    **dict.fromkeys(("with_a", "with_b"), VALUE),
)
"""The difference of two runs with one reader minus that with another, over the same questions, Holm over all."""
READER_AGREEMENTS = table_schema(
    "reader_agreements",
    "dataset* score* depth* about* reader_a* reader_b* value? low? high? num_queries",
    about=STRING,
    **TWO_READERS,
)
"""Kendall's tau-b: of the mean scores of the runs with two readers (about ``order``), and of P by the labels of
``reader_a`` and the end-to-end score of ``reader_b``, question by question and mean over runs (``labels``); those of
one ``reader_b`` are over the same questions and runs."""
ORDER, OF_LABELS = "order", "labels"
Row = Mapping[str, object]


class Sides(NamedTuple):
    """A dataset's scores and labels by reader, at the largest depth."""

    columns: DatasetColumns
    names: Row
    runs: Sequence[str]
    scores: Mapping[str, Floats]
    """Reader -> [num_queries, num_runs], NaN where not judged."""
    labels: Mapping[str, Floats]
    """The same of P by eRAG's labels over the whole list; of readers that have labels."""


def sides_of(columns: DatasetColumns) -> Iterator[Sides]:
    """Yield the sides of each score of a dataset; the runs are those that every reader has."""
    measured, ends = measured_and_used(columns.of_runs)
    depth = max((int(str(name["depth"])) for name, _ in ends), default=0)
    whole = {"annotator": "erag", "measure": "P", "cutoff": depth, "ideal": ANY}
    precision = [item for item in measured if whole.items() <= item[0].items()]
    for score in sorted({str(name["score"]) for name, _ in ends}):
        utility, labels = (
            {
                str(name["reader"]): of_runs
                for name, of_runs in by_run(items)
                if (name["score"], name["depth"]) == (score, depth)
            }
            for items in (ends, precision)
        )
        runs = sorted(set.intersection(*(set(of_runs) for of_runs in utility.values())))
        tables = (
            {reader: np.stack([of_runs[run] for run in runs], axis=1) for reader, of_runs in side.items()}
            for side in (utility, {reader: one for reader, one in labels.items() if {*runs} <= {*one}})
        )
        yield Sides(columns, {"dataset": columns.dataset, "score": score, "depth": depth}, runs, *tables)


def interactions(sides: Sides, settings: Settings) -> Sequence[Row]:
    """Return READER_INTERACTIONS of one dataset and score."""
    family, alpha, clusters = Family(), 1 - settings.confidence, sides.columns.draws.clusters
    rows: list[dict[str, object]] = []
    tested = []
    for (reader_a, one), (reader_b, other) in itertools.combinations(sides.scores.items(), 2):
        for a, b in itertools.combinations(range(len(sides.runs)), 2):
            differences = [paired_differences(table[:, a], table[:, b]) for table in (one, other)]
            both = paired_differences(*differences)
            is_judged = np.isfinite(both)
            count = int(is_judged.sum())
            means = [float(one[is_judged].mean()) if count else None for one in differences]
            pair = {"run_a": sides.runs[a], "run_b": sides.runs[b]}
            readers = {"reader_a": reader_a, "reader_b": reader_b}
            counts = {"num_queries": count, "num_dropped": len(both) - count}
            of_both = dict(zip(("with_a", "with_b"), means, strict=True))
            rows.append({**sides.names, **readers, **pair, **of_both, **counts})
            if count:
                family.add(both, clusters=clusters)
                tested.append(rows[-1])
    for row, test in zip(tested, family.adjusted(alpha), strict=True):
        row |= test.figures(alpha)
    return rows


def orders(sides: Sides, settings: Settings) -> Iterator[Row]:
    """Yield READER_AGREEMENTS of the order of the runs, over the questions that all readers answered with all runs."""
    is_judged = np.isfinite(np.concatenate([*sides.scores.values()], axis=1)).all(axis=1)
    draws = sides.columns.draws.among(is_judged)
    weights = draws.weights.astype(np.float64)
    means, drawn = {}, {}
    for reader, table in sides.scores.items():
        judged = table[is_judged]
        means[reader] = judged.mean(axis=0) if len(judged) else np.full(len(sides.runs), np.nan)
        drawn[reader] = weights @ judged / np.maximum(weights.sum(axis=1), 1)[:, None]
    for reader_a, reader_b in itertools.combinations(sides.scores, 2):
        value = float(_tau(means[reader_a], means[reader_b]))
        resampled = _tau(drawn[reader_a], drawn[reader_b])
        # of two runs it is 1 or -1, whatever the questions
        enough = len(sides.runs) > 2
        interval = percentiles(resampled, settings.confidence, draws.num_units) if enough else (None, None)
        yield _row(sides, (ORDER, reader_a, reader_b), value, interval, int(is_judged.sum()))


def _tau(a: Floats, b: Floats) -> Floats:
    """Return tau-b of two arrays [..., num_runs]; NaN where one is constant."""
    first, second = np.triu_indices(a.shape[-1], 1)
    signs = [np.sign(np.round(one[..., first] - one[..., second], TIE_DIGITS)) for one in (a, b)]
    untied = np.prod([(one != 0).sum(axis=-1) for one in signs], axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((signs[0] * signs[1]).sum(axis=-1) / np.sqrt(untied), np.float64)


def label_agreements(sides: Sides, settings: Settings) -> Iterator[Row]:
    """Yield READER_AGREEMENTS of labels: of all readers over the same questions and runs for each reader's answers.

    A run where the scores or the labels of a reader are constant is left out, and a reader whose labels are so in all.
    """
    sign = agreement_sign("erag", "P", str(sides.names["score"]))
    for reader, scores in sides.scores.items():
        is_judged = np.isfinite(sum(sides.labels.values(), scores))
        draws = [sides.columns.draws.among(judged) for judged in is_judged.T]
        agreements = {
            labels_of: [
                resampled_agreement(x[judged], y[judged], "kendall_tau_b", one.weights, one.num_units)
                for x, y, judged, one in zip(labels.T, scores.T, is_judged.T, draws, strict=True)
            ]
            for labels_of, labels in sides.labels.items()
        }
        varying = {labels_of: of_runs for labels_of, of_runs in agreements.items() if any(of_runs)}
        is_common = [all(of_run) for of_run in zip(*varying.values(), strict=True)]
        num_queries = max(is_judged.sum(axis=0)[is_common], default=0)
        for labels_of, of_runs in varying.items() if any(is_common) else ():
            known = [one for one, is_in_all in zip(of_runs, is_common, strict=True) if one and is_in_all]
            value = sign * float(np.mean([one.value for one in known]))
            resampled = sign * np.mean([one.values for one in known], axis=0)
            interval = percentiles(resampled, settings.confidence, max(one.num_units for one in known))
            yield _row(sides, (OF_LABELS, labels_of, reader), value, interval, int(num_queries))


def _row(
    sides: Sides,
    names: tuple[str, str, str],
    value: float,
    interval: tuple[float | None, float | None],
    num_queries: int,
) -> Row:
    named = {**sides.names, **dict(zip(("about", "reader_a", "reader_b"), names, strict=True))}
    figures = dict(zip(("low", "high"), interval, strict=True))
    return {**named, "value": None if np.isnan(value) else value, **figures, "num_queries": num_queries}
