"""Auxiliary labels of all questions in means and comparisons, where the reader answers a sample of the questions.

A question is to a column of values what a document is to `erag_ray.agreement.prediction_powered`: it is read with a
known probability, the sample's share of the questions, and an auxiliary value is known of all. Means over the estimates
are unbiased, whatever the auxiliary label is; a good one makes their intervals narrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from erag_ray.agreement import LabelSample, PoweredValues, mean_intervals, powered_values
from erag_ray.config import MIN_READER_QUERIES
from erag_ray.evaluate.columns import DatasetColumns, table_of
from erag_ray.evaluate.common import ANY, Floats, Settings
from erag_ray.runs import END_TO_END, REFERENCES
from erag_ray.schemas import AUXILIARY_MEANS

Name = Mapping[str, object]
Row = tuple[object, ...]
OF_LISTS = ("P", "Success")
"""Measures of the auxiliary label that predict values without a counterpart, such as utility: the first there is."""


def with_estimates(
    dataset: DatasetColumns,
    auxiliary: str,
    applicable: Mapping[str, pl.Series],
    eligible: Mapping[str, pl.Series],
) -> DatasetColumns:
    """Return a dataset with ``estimates`` of its columns of values that only a sample of the questions has.

    Args:
        dataset: its columns.
        auxiliary: the annotator of the auxiliary labels.
        applicable: annotator -> the query_ids to which it applies; no others get an estimate of its values.
        eligible: annotator (or `END_TO_END`) -> the query_ids that it was asked about; one of these without a value was
            not judged, and gets no estimate.
    """
    known = {_key(name): column for name, column in dataset.columns if name["annotator"] == auxiliary}
    is_eligible, applies = (
        {name: dataset.has(ids) for name, ids in of.items()} for of in (eligible, applicable)
    )
    estimates = {}
    for index, (name, column) in enumerate(dataset.columns):
        predictor, annotator = _predictor(name, known), str(name["annotator"])
        if predictor is None:
            continue
        has_value = np.isfinite(column)
        is_counted = has_value | (applies.get(annotator, True) & ~is_eligible[annotator])
        if MIN_READER_QUERIES <= has_value.sum() < is_counted.sum():
            estimated = estimate_all(column[is_counted], predictor[is_counted])
            values = np.full(len(column), np.nan)
            values[is_counted] = estimated.values
            estimates[index] = replace(estimated, values=values)
    return replace(dataset, estimates=estimates)


def _predictor(name: Name, known: Mapping[Row, Floats]) -> Floats | None:
    """Return the auxiliary column that predicts a column by the reader; None if there is none, or it varies nowhere."""
    if not name["reader"] or name["run_id"] in REFERENCES:
        return None
    others = ({"measure": measure, "ideal": ANY} for measure in OF_LISTS)
    for change in ({}, *others):
        column = known.get(_key({**name, **change}))
        if column is not None and np.isfinite(column).any():
            return np.where(np.isfinite(column), column, np.nanmean(column))
    return None


def _key(name: Name) -> Row:
    return tuple(name[part] for part in ("run_id", "depth", "measure", "cutoff", "ideal"))


def estimate_all(column: Floats, predictor: Floats) -> PoweredValues:
    """Estimate a value for every question from those of a sample of them.

    Args:
        column: [num_queries], NaN where the reader was not asked (not where it failed); at least one value.
        predictor: [num_queries], the auxiliary value of every question, finite.
    """
    count, is_read = len(column), np.isfinite(column)
    read = column[is_read]
    sample = LabelSample(
        questions=np.arange(count),
        weights=np.ones(count),
        probabilities=np.full(count, is_read.mean()),
        is_read=is_read,
        labels=np.where(is_read, column, 0.0),
        auxiliary=predictor,
        # gains and differences may be below 0, and a user's measure may be above 1
        bounds=(min(0.0, float(read.min())), max(1.0, float(read.max()))),
    )
    return powered_values(sample, count)


def auxiliary_notes(datasets: Sequence[DatasetColumns], auxiliary: str) -> Iterator[str]:
    """Yield why nothing, or no end-to-end score, is predicted for a dataset, for the user."""
    for dataset in datasets:
        predicted = {dataset.columns[index][0]["annotator"] for index in dataset.estimates}
        known = [
            name
            for name, column in dataset.columns
            if name["annotator"] == auxiliary and np.isfinite(column).any()
        ]
        has_measure = any(name["measure"] in OF_LISTS for name in known)
        why = f"all its questions were answered, or fewer than {MIN_READER_QUERIES}"
        if not known:
            why = "it labels none of its questions"
        elif not has_measure:
            why = f"that takes its {' or '.join(OF_LISTS)}; add one to measures"
        if not predicted:
            yield f"{dataset.dataset}: nothing is predicted from {auxiliary}: {why}"
        elif END_TO_END not in predicted:
            yield f"{dataset.dataset}: the end-to-end score is not predicted from {auxiliary}: {why}"


def auxiliary_means(datasets: Sequence[DatasetColumns], settings: Settings) -> pl.DataFrame:
    """AUXILIARY_MEANS: means with the auxiliary label, and by the answered questions alone."""
    rows: list[Row] = []
    for dataset in datasets:
        items = list(dataset.estimates.items())
        if not items:
            continue
        columns = [dataset.columns[index] for index, _ in items]
        powered = np.stack([one.values for _, one in items], axis=1)
        plain = np.stack([column for _, column in columns], axis=1)
        intervals = (
            mean_intervals(table, dataset.draws.weights, settings.confidence) for table in (powered, plain)
        )
        for (name, column), (_, one), *pair in zip(columns, items, *intervals, strict=True):
            counts = (int(np.isfinite(column).sum()), int(np.isfinite(one.values).sum()))
            figures = (one.slope, one.correlation)
            first = (dataset.dataset, *name.values(), settings.auxiliary)
            rows.append((*first, *pair[0], *pair[1], *figures, *counts))
    return table_of(rows, AUXILIARY_MEANS)
