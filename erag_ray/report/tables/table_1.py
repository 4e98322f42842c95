"""The paper's Table 1 over all datasets of a job (Salemi & Zamani, SIGIR 2024), with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from erag_ray.annotators import ANNOTATORS
from erag_ray.datasets import DATASETS, known_name
from erag_ray.report.formats import counted
from erag_ray.report.model import Table
from erag_ray.report.tables.correlations import STATISTIC_NAMES, reasons
from erag_ray.report.tables.curves import whole_lists
from erag_ray.report.tables.sorting import in_reading_order
from erag_ray.report.values import across, columns, estimate, names, part_name, plain

Cell = Mapping[str, Any]
Line = tuple[str, str, dict[tuple[str, str], Cell]]
"""Annotator, measure, and (dataset, statistic) -> row of CORRELATIONS."""


def table_1(correlations: pl.DataFrame, run: str, depth: int) -> Table:
    """Return the paper's Table 1 of one run: rows are annotators and measures, columns datasets and statistics.

    A cell is the agreement of a measure with the end-to-end score over queries, with its interval. Measures are taken
    at cutoff ``depth``, with the run's own list as ideal, as in the paper. Annotators without any value are left out;
    the caption says why cells are missing.

    Args:
        correlations: CORRELATIONS.
        run: a ``run_id``.
        depth: the number of documents of each list.
    """
    selected = whole_lists(correlations).filter(run_id=run, depth=depth)
    datasets = sorted(selected["dataset"].unique(), key=_dataset_order)
    statistics = selected["statistic"].unique(maintain_order=True).to_list()
    shown = selected.filter(pl.col("value").is_not_null().any().over("annotator"))
    absent = sorted(set(selected["annotator"]) - set(shown["annotator"]))
    notes = [f"Without any value at this depth: {', '.join(absent)}."] if absent else []
    lines = list(_lines(shown))
    caption = " ".join([*notes, *_why_missing(shown, lines, datasets), reasons(shown)]).strip()
    keys = [(dataset, statistic) for dataset in datasets for statistic in statistics]
    return Table(
        name=part_name("table_1", run, depth),
        title=f"Table 1: {run}, {counted(depth, 'document')}: agreement of each measure with the end-to-end utility, "
        "over queries",
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


def _dataset_order(dataset: str) -> tuple[int, str]:
    """Sort key of a dataset: those of the paper first, in the order of `DATASETS`, then the others by name."""
    canonical = known_name(dataset)
    return (list(DATASETS).index(canonical) if canonical else len(DATASETS), dataset)


def _lines(selected: pl.DataFrame) -> Iterator[Line]:
    """Yield the rows of CORRELATIONS by annotator and measure, in reading order."""
    ordered = in_reading_order(selected).group_by("annotator", "measure", maintain_order=True)
    for (annotator, measure), part in ordered:
        cells: dict[tuple[str, str], Cell] = {
            (row["dataset"], row["statistic"]): row for row in part.iter_rows(named=True)
        }
        yield str(annotator), str(measure), cells


def _why_missing(
    selected: pl.DataFrame,
    lines: Sequence[Line],
    datasets: Sequence[str],
) -> Iterator[str]:
    """Explain missing rows: annotators not applicable to a dataset, measures that need binary labels."""
    present = {(row["annotator"], row["dataset"]) for row in selected.iter_rows(named=True)}
    without: dict[str, list[str]] = {}
    for annotator in dict.fromkeys(annotator for annotator, _, _ in lines):
        missing = [dataset for dataset in datasets if (annotator, dataset) not in present]
        if missing:
            scope = ANNOTATORS[annotator].applies_to if annotator in ANNOTATORS else "where it can"
            without.setdefault(f"to {', '.join(missing)} (labels only {scope})", []).append(annotator)
    yield from _over_fewer(selected)
    for datasets_of, annotators in without.items():
        yield f"-: {', '.join(annotators)} not applicable {datasets_of}."
    graded: dict[tuple[str, str], list[str]] = {}
    for annotator, measure, cells in lines:
        shown = {dataset for dataset, _ in cells}
        for dataset in datasets:
            if dataset not in shown and (annotator, dataset) in present:
                graded.setdefault((annotator, dataset), []).append(measure)
    for (annotator, dataset), measures in graded.items():
        yield f"-: labels of {annotator} in {dataset} are graded, and {', '.join(measures)} need binary ones."


def _over_fewer(selected: pl.DataFrame) -> Iterator[str]:
    """Name annotators without labels for all queries, such as a judge of a sample."""
    judged = selected.drop_nulls("value").group_by("annotator", "dataset", maintain_order=True)
    counts = judged.agg(
        pl.col("num_queries").max(), all=(pl.col("num_queries") + pl.col("num_dropped")).max()
    )
    fewer = counts.filter(pl.col("num_queries") < pl.col("all"))
    for (annotator,), part in fewer.group_by("annotator", maintain_order=True):
        listed = ", ".join(
            f"{row['num_queries']} of {row['all']} ({row['dataset']})" for row in part.to_dicts()
        )
        yield f"Queries with labels of {annotator} to this depth: {listed}."
