"""The paper's Table 1 over all datasets of a job (Salemi & Zamani, SIGIR 2024), with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from erag_ray.annotators import ANNOTATORS
from erag_ray.datasets import DATASETS
from erag_ray.datasets.known import known_name
from erag_ray.report.curves import whole_lists
from erag_ray.report.grid import NOTHING, Grid, with_interval
from erag_ray.report.order import in_reading_order
from erag_ray.report.trust import STATISTIC_NAMES, reasons

Cell = Mapping[str, Any]
Line = tuple[str, str, dict[tuple[str, str], Cell]]
"""Annotator, measure, and (dataset, statistic) -> row of CORRELATIONS."""


def table_1(correlations: pl.DataFrame, run: str, depth: int, *, on_console: bool) -> list[Grid]:
    """One run at one depth: annotators and measures down, datasets and statistics across.

    For the file one grid with everything; for the console one per statistic, which five datasets fit into 120 columns.
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
    title = f"Table 1: {run}, {depth} documents"
    grids = [_whole(title, caption, lines, datasets, statistics)]
    if on_console:
        grids += [_printed(title, caption, lines, datasets, statistic) for statistic in statistics]
    return grids


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


def _whole(
    title: str,
    caption: str,
    lines: Sequence[Line],
    datasets: Sequence[str],
    statistics: Sequence[str],
) -> Grid:
    keys = [(dataset, statistic) for dataset in datasets for statistic in statistics]
    return Grid(
        title=f"{title}: agreement of each measure with the end-to-end utility, over queries",
        columns=("annotator", "measure", *(f"{dataset} {_symbol(statistic)}" for dataset, statistic in keys)),
        rows=tuple(
            (annotator, measure, *(_full(cells.get(key)) for key in keys))
            for annotator, measure, cells in lines
        ),
        caption="The layout of the paper's Table 1, with intervals. Measures are taken over the whole list, ideals "
        f"over the run's own; AP, RR and Success are the paper's MAP, MRR and Hit Ratio. {caption}".strip(),
        num_names=2,
        on_console=False,
    )


def _printed(
    title: str,
    caption: str,
    lines: Sequence[Line],
    datasets: Sequence[str],
    statistic: str,
) -> Grid:
    rows: list[tuple[str, ...]] = []
    previous = None
    for annotator, measure, cells in lines:
        if annotator != previous:
            rows.append((annotator, *[""] * len(datasets)))
        previous = annotator
        rows.append((f"  {measure}", *(_short(cells.get((dataset, statistic))) for dataset in datasets)))
    return Grid(
        title=f"{title}, {_symbol(statistic)} [interval]",
        columns=("annotator, measure", *datasets),
        rows=tuple(rows),
        caption=caption,
        in_file=False,
    )


def _symbol(statistic: str) -> str:
    return STATISTIC_NAMES.get(statistic, statistic)


def _full(cell: Cell | None) -> str:
    return NOTHING if cell is None else with_interval(*_numbers(cell))


def _short(cell: Cell | None) -> str:
    """``.349 [.31, .39]``: without zeros before the point, ends of the interval to two digits."""
    value, low, high = (None, None, None) if cell is None else _numbers(cell)
    if value is None:
        return NOTHING
    interval = "" if low is None or high is None else f" [{_bare(low, 2)}, {_bare(high, 2)}]"
    return f"{_bare(value, 3)}{interval}"


def _bare(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{digits}f}"


def _numbers(cell: Cell) -> tuple[float | None, float | None, float | None]:
    return cell["value"], cell["low"], cell["high"]


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
