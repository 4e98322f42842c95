"""The paper's Table 1 over all datasets of a job (Salemi & Zamani, SIGIR 2024), with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from erag_ray.annotators import ANNOTATORS
from erag_ray.datasets import DATASETS, known_name
from erag_ray.report.model import Table
from erag_ray.report.tables.correlations import STATISTIC_NAMES, reasons
from erag_ray.report.tables.curves import whole_lists
from erag_ray.report.tables.sorting import in_reading_order
from erag_ray.report.values import across, columns, estimate, names, part_name, plain

Cell = Mapping[str, Any]
Line = tuple[str, str, dict[tuple[str, str], Cell]]
"""Annotator, measure, and (dataset, statistic) -> row of CORRELATIONS."""


def table_1(correlations: pl.DataFrame, run: str, depth: int) -> Table:
    """Return one run at one depth: annotators and measures down, datasets and statistics across.

    Measures are taken at the full depth; those with an ideal take the run's own list, as the paper does.
    """
    own = whole_lists(correlations).filter(run_id=run, depth=depth)
    datasets = sorted(own["dataset"].unique(), key=_place)
    statistics = own["statistic"].unique(maintain_order=True).to_list()
    shown = own.filter(pl.col("value").is_not_null().any().over("annotator"))
    absent = sorted(set(own["annotator"]) - set(shown["annotator"]))
    unknown = [f"Without any value at this depth: {', '.join(absent)}."] if absent else []
    lines = list(_lines(shown))
    caption = " ".join([*unknown, *_why_missing(shown, lines, datasets), reasons(shown)]).strip()
    keys = [(dataset, statistic) for dataset in datasets for statistic in statistics]
    return Table(
        name=part_name("table_1", run, depth),
        title=f"Table 1: {run}, {depth} documents: agreement of each measure with the end-to-end utility, over queries",
        columns=(
            *names("annotator", "measure"),
            *columns(f"{dataset} {STATISTIC_NAMES.get(statistic, statistic)}" for dataset, statistic in keys),
        ),
        rows=tuple(
            (*plain(annotator, measure), *across({key: estimate(row) for key, row in cells.items()}, keys))
            for annotator, measure, cells in lines
        ),
        caption="The layout of the paper's Table 1, with intervals. Measures are taken over the whole list, ideals "
        f"over the run's own; AP, RR and Success are the paper's MAP, MRR and Hit Ratio. {caption}".strip(),
    )


def _place(dataset: str) -> tuple[int, str]:
    """Datasets that are known come in the order of `DATASETS`, which is the paper's, the others after them by name."""
    known = known_name(dataset)
    return (list(DATASETS).index(known) if known else len(DATASETS), dataset)


def _lines(own: pl.DataFrame) -> Iterator[Line]:
    """Rows of CORRELATIONS in reading order, by annotator and measure."""
    ordered = in_reading_order(own).group_by("annotator", "measure", maintain_order=True)
    for (annotator, measure), part in ordered:
        cells: dict[tuple[str, str], Cell] = {
            (row["dataset"], row["statistic"]): row for row in part.iter_rows(named=True)
        }
        yield str(annotator), str(measure), cells


def _why_missing(
    own: pl.DataFrame,
    lines: Sequence[Line],
    datasets: Sequence[str],
) -> Iterator[str]:
    """What has no rows: annotators that do not apply to a dataset, measures that its labels do not allow."""
    held = {(row["annotator"], row["dataset"]) for row in own.iter_rows(named=True)}
    without: dict[str, list[str]] = {}
    for annotator in dict.fromkeys(annotator for annotator, _, _ in lines):
        missing = [dataset for dataset in datasets if (annotator, dataset) not in held]
        if missing:
            why = ANNOTATORS[annotator].where if annotator in ANNOTATORS else "where it can"
            without.setdefault(f"to {', '.join(missing)} (labels only {why})", []).append(annotator)
    yield from _over_fewer(own)
    for where, annotators in without.items():
        yield f"-: {', '.join(annotators)} not applicable {where}."
    graded: dict[tuple[str, str], list[str]] = {}
    for annotator, measure, cells in lines:
        shown = {dataset for dataset, _ in cells}
        for dataset in datasets:
            if dataset not in shown and (annotator, dataset) in held:
                graded.setdefault((annotator, dataset), []).append(measure)
    for (annotator, dataset), measures in graded.items():
        yield f"-: labels of {annotator} in {dataset} are graded, and {', '.join(measures)} need binary ones."


def _over_fewer(own: pl.DataFrame) -> Iterator[str]:
    """Annotators that have not judged every query, such as a judge that was asked about some."""
    known = own.drop_nulls("value").group_by("annotator", "dataset", maintain_order=True)
    counts = known.agg(pl.col("num_queries").max(), all=(pl.col("num_queries") + pl.col("num_dropped")).max())
    fewer = counts.filter(pl.col("num_queries") < pl.col("all"))
    for (annotator,), part in fewer.group_by("annotator", maintain_order=True):
        listed = ", ".join(
            f"{row['num_queries']} of {row['all']} ({row['dataset']})" for row in part.to_dicts()
        )
        yield f"Queries with labels of {annotator} to this depth: {listed}."
