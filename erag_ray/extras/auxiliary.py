"""Auxiliary labels of all questions in means and comparisons, where the reader answers a sample of the questions.

A question is to a column of values what a document is to `prediction_powered`: it is read with a
known probability, the sample's share of the questions, and an auxiliary value is known of all. Means over the estimates
are unbiased, whatever the auxiliary label is; a good one makes their intervals narrow.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from erag_ray.analyses import contract
from erag_ray.analyses.columns import DatasetColumns, table_of
from erag_ray.analyses.contract import OF_COLUMNS, RESAMPLED, Analysis, Evaluation, View, per_dataset
from erag_ray.analyses.order import measure_name
from erag_ray.analyses.parts.formats import number
from erag_ray.analyses.parts.model import Finding, Part, Table, Value
from erag_ray.analyses.parts.shapes import field, listing, name_field, rows_of
from erag_ray.analyses.settings import ANY, Floats, Settings
from erag_ray.analyses.standing import Standing
from erag_ray.config.job import MIN_READER_QUERIES
from erag_ray.data.runs.references import END_TO_END, REFERENCES
from erag_ray.extensions import Extension
from erag_ray.extras.prediction_powered import OF_LISTS, PoweredValues, estimate_all
from erag_ray.measures.agreement import score_intervals
from erag_ray.store.schemas import table_schema

AUXILIARY_MEANS = table_schema(
    "auxiliary_means",
    "dataset* reader* score* annotator* run_id* depth* measure* cutoff* ideal* auxiliary mean low? high? "
    "mean_read low_read? high_read? lambda? correlation? num_read num_queries",
)
Name = Mapping[str, object]
Row = tuple[object, ...]
Powered = tuple[DatasetColumns, Mapping[int, PoweredValues]]
"""The columns of a dataset, and index of a column -> its estimates."""


def predicted(evaluation: Evaluation) -> list[DatasetColumns]:
    """Return the columns of every dataset, with the estimates of a job's auxiliary label."""
    return [
        replace(dataset, estimates={index: one.values for index, one in estimates.items()})
        for dataset, estimates in evaluation.once(powered)
    ]


def powered(evaluation: Evaluation) -> list[Powered]:
    return [(dataset, _estimates(dataset, evaluation)) for dataset in evaluation.once(contract.columns_of)]


def _estimates(dataset: DatasetColumns, evaluation: Evaluation) -> dict[int, PoweredValues]:
    """Return estimates of the columns of values that only a sample of a dataset's questions has, by their index.

    None are for questions to which the annotator does not apply, or about which it was asked without giving a value.
    """
    auxiliary = evaluation.settings.auxiliary
    known = {_key(name): column for name, column in dataset.columns if name["annotator"] == auxiliary}
    applies = {name: dataset.has(ids) for name, ids in evaluation.applicable.items()}
    is_eligible = {name: dataset.has(frame["query_id"]) for name, frame in evaluation.eligible.items()}
    is_eligible[END_TO_END] = dataset.has(evaluation.utility["query_id"].unique())
    estimates = {}
    for index, (name, column) in enumerate(dataset.columns):
        predictor, annotator = _predictor(name, known), str(name["annotator"])
        if predictor is None:
            continue
        has_value = np.isfinite(column)
        is_counted = has_value | (applies.get(annotator, True) & ~is_eligible[annotator])
        if MIN_READER_QUERIES <= has_value.sum() < is_counted.sum():
            of_counted = estimate_all(column[is_counted], predictor[is_counted])
            values = np.full(len(column), np.nan)
            values[is_counted] = of_counted.values
            estimates[index] = replace(of_counted, values=values)
    return estimates


def _predictor(name: Name, known: Mapping[Row, Floats]) -> Floats | None:
    """Return the auxiliary column that predicts a column by the reader; None if there is none, or it varies nowhere."""
    if not name["reader"] or name["run_id"] in REFERENCES:
        return None
    for change in ({}, *({"measure": measure, "ideal": ANY} for measure in OF_LISTS)):
        column = known.get(_key({**name, **change}))
        if column is not None and np.isfinite(column).any():
            return np.where(np.isfinite(column), column, np.nanmean(column))
    return None


def _key(name: Name) -> Row:
    return tuple(name[part] for part in ("run_id", "depth", "measure", "cutoff", "ideal"))


def _notes(evaluation: Evaluation) -> Iterator[str]:
    """Yield why nothing, or no end-to-end score, is predicted for a dataset."""
    auxiliary = evaluation.settings.auxiliary
    for dataset, estimates in evaluation.once(powered):
        of_annotators = {dataset.columns[index][0]["annotator"] for index in estimates}
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
        if not of_annotators:
            yield f"{dataset.dataset}: nothing is predicted from {auxiliary}: {why}"
        elif END_TO_END not in of_annotators:
            yield f"{dataset.dataset}: the end-to-end score is not predicted from {auxiliary}: {why}"


def auxiliary_means(powered_dataset: Powered, settings: Settings) -> pl.DataFrame:
    """AUXILIARY_MEANS: means with the auxiliary label, and only by the answered questions."""
    rows: list[Row] = []
    dataset, estimates = powered_dataset
    if not estimates:
        return table_of(rows, AUXILIARY_MEANS)
    columns, draws = [dataset.columns[index] for index in estimates], dataset.draws
    estimated = np.stack([one.values for one in estimates.values()], axis=1)
    plain = np.stack([column for _, column in columns], axis=1)
    intervals = (
        score_intervals(plain, table, draws.weights, settings.confidence, draws.clusters)
        for table in (estimated, plain)
    )
    for (name, column), one, *pair in zip(columns, estimates.values(), *intervals, strict=True):
        counts = (int(np.isfinite(column).sum()), int(np.isfinite(one.values).sum()))
        first = (dataset.dataset, *name.values(), settings.auxiliary)
        rows.append((*first, *pair[0], *pair[1], one.slope, one.correlation, *counts))
    return table_of(rows, AUXILIARY_MEANS)


def show(view: View) -> Iterator[Part]:
    """Yield means with the auxiliary label, and what it adds."""
    rows = view.rows(AUXILIARY_MEANS)
    if rows.height:
        yield auxiliary_table(view, rows)
        yield from _what_it_adds(rows, view.standing)


def auxiliary_table(view: View, rows: pl.DataFrame) -> Table:
    """Return the means with an auxiliary label and those of the answered questions, at the largest depth."""
    deepest = rows.filter(pl.col("depth") == pl.col("depth").max(), pl.col("cutoff") == pl.col("depth"))
    # an annotator may apply to some of the questions only
    name, num_read, num_queries = rows.select(pl.first("auxiliary"), pl.max("num_read", "num_queries")).row(0)
    # utility first
    by_run = (
        deepest.filter(run_id=run).sort(pl.col("annotator") != END_TO_END, maintain_order=True)
        for run in view.runs
    )
    return listing(
        (row for part in by_run for row in rows_of(part)),
        (
            name_field("run", "run_id"),
            name_field("annotator", "annotator"),
            name_field("mean", measure_name),
            field("with it", lambda row: Value(row["mean"], row["low"], row["high"])),
            field("without it", lambda row: Value(row["mean_read"], row["low_read"], row["high_read"])),
            field("width", width_ratio, meaning="of the interval with it, relative to that without it"),
            field("correlation", "correlation", meaning="of both over the answered questions"),
            field("lambda", "lambda", meaning="slope of the prediction; near 0: the label is not used"),
        ),
        caption=f"The reader answered {num_read:,} of {num_queries:,} questions; of the others {name} is known. "
        "Without it: means of the answered questions. With it: unbiased too, whatever the label says, since its mean "
        "error on the answered questions is subtracted (prediction-powered means). Means and comparisons in this "
        "report are those with it.",
        is_main=view.is_only,
        **view.about("auxiliary", f"means with {name} as auxiliary label"),
    )


def width_ratio(row: Mapping[str, Any]) -> float | None:
    """Return the width of the interval with the auxiliary label, relative to that without it; None if that has none."""
    ends = [row[key] for key in ("low", "high", "low_read", "high_read")]
    if None in ends or ends[2] == ends[3]:
        return None
    return float((ends[1] - ends[0]) / (ends[3] - ends[2]))


def _what_it_adds(rows: pl.DataFrame, standing: Standing | None) -> Iterator[Finding]:
    at_depth = rows.filter(annotator=END_TO_END, depth=standing.depth if standing else None)
    ratios = pl.Series(map(width_ratio, rows_of(at_depth)), dtype=pl.Float64).drop_nulls()
    if len(ratios):
        name, num_read, num_queries = at_depth.select("auxiliary", "num_read", "num_queries").row(0)
        text = f"{num_read:,} of {num_queries:,} questions were answered; with {name} of all, intervals are "
        text += f"{number(ratios.median(), 2, drop_zero=True)} times as wide as without it"  # type: ignore[arg-type]
        yield Finding(topic="certainty", text=text)


ANALYSIS = Analysis(
    schema=AUXILIARY_MEANS,
    sources=OF_COLUMNS,
    settings=(*RESAMPLED, "auxiliary"),
    is_wanted=lambda config: bool(config.auxiliary),
    make=per_dataset(auxiliary_means, powered),
    notes=_notes,
    is_optional=True,
    show=show,
    group="Means with an auxiliary label",
)
EXTENSION = Extension(name="auxiliary", estimates=predicted, analyses=(ANALYSIS,))
