"""ORDER_UTILITY and UTILITY -> ORDER_EFFECTS: how far order and company of a list move the score. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from erag_ray.agreement import (
    holm,
    mean_intervals,
    paired_differences,
    randomisation_p_values,
    sign_flips,
    wilson_interval,
)
from erag_ray.evaluate import ANY, DatasetColumns, Floats, Settings, by_dataset, measured_and_used, table_of
from erag_ray.schemas import ORDER_EFFECTS

TOO_FEW = "fewer than 2 questions are judged both ways"
NEVER_CHANGES = "no question's score changes"
LIST = ("reader", "score", "run_id", "depth")


def order_effects(
    changed: pl.DataFrame, utility: pl.DataFrame, queries: pl.DataFrame, settings: Settings
) -> pl.DataFrame:
    """Return ORDER_EFFECTS: utility with the changed list minus utility with the list as it is, paired over questions.

    p-values by paired randomisation, adjusted by Holm over all runs, depths and orders of one dataset and reader.
    Questions without a changed list count as dropped.

    Args:
        changed: ORDER_UTILITY.
        utility: UTILITY.
        queries: QUERIES; those without a row in ``changed`` are left out.
        settings: confidence, resamples, flips and their seed.
    """
    sampled = queries.join(changed, on="query_id", how="semi", maintain_order="left")
    columns = {
        "annotator": pl.lit(""),
        "measure": pl.col("order"),
        "cutoff": pl.col("depth"),
        "ideal": pl.lit(ANY),
    }
    datasets = by_dataset([changed.with_columns(**columns)], utility, sampled, settings)
    rows = [(dataset.dataset, *row) for dataset in datasets for row in _rows(dataset, settings)]
    return table_of(rows, ORDER_EFFECTS)


def _rows(dataset: DatasetColumns, settings: Settings) -> Iterator[tuple[object, ...]]:
    changed, unchanged = measured_and_used(dataset.of_runs)
    if not changed:
        return
    as_is = {_list_of(name): column for name, column in unchanged}
    table = np.stack([paired_differences(column, as_is[_list_of(name)]) for name, column in changed], axis=1)
    intervals = mean_intervals(table, dataset.draws.weights, settings.confidence)
    reasons = [_reason(column) for column in table.T]
    flips = sign_flips(len(table), settings.num_flips, settings.seed)
    p_values = np.where([reason is None for reason in reasons], randomisation_p_values(table, flips), np.nan)
    families = [(name["reader"], name["score"]) for name, _ in changed]
    adjusted = _adjusted(p_values, families)
    for index, (name, _) in enumerate(changed):
        tests = (None, None) if reasons[index] else (float(p_values[index]), float(adjusted[index]))
        column = table[:, index]
        figures = (*intervals[index], *tests, *_share_changed(column, settings.confidence))
        yield (*_list_of(name), name["measure"], *figures, reasons[index])


def _list_of(name: Mapping[str, object]) -> tuple[object, ...]:
    return tuple(name[key] for key in LIST)


def _reason(differences: Floats) -> str | None:
    judged = differences[~np.isnan(differences)]
    if len(judged) < 2:
        return TOO_FEW
    return None if judged.any() else NEVER_CHANGES


def _adjusted(p_values: Floats, families: Sequence[tuple[object, ...]]) -> Floats:
    """Adjust the p-values of each family by Holm."""
    adjusted = np.full(len(p_values), np.nan)
    for family in dict.fromkeys(families):
        is_in = np.array([other == family for other in families])
        adjusted[is_in] = holm(p_values[is_in])
    return adjusted


def _share_changed(differences: Floats, confidence: float) -> tuple[object, ...]:
    """Return the share of questions whose score changes, its interval, and how many count and do not."""
    judged = differences[~np.isnan(differences)]
    interval = wilson_interval(int((judged != 0).sum()), len(judged), confidence)
    return (*interval, len(judged), len(differences) - len(judged))
