"""Finished jobs -> the papers' tables and figures, printed and in one folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from erag_ray.agreement import STATISTICS
from erag_ray.errors import InputError
from erag_ray.logs import say
from erag_ray.papers.config import PapersConfig
from erag_ray.papers.dual_table import dual_tables
from erag_ray.papers.experiments import by_reader_table, figure_1_table, reproduction_table
from erag_ray.papers.figures import agreement_of_readers, figure_1
from erag_ray.registry import find
from erag_ray.report import (
    Figure,
    Report,
    Section,
    Table,
    Verdict,
    figures_of,
    part_name,
    parts_as_markdown,
    parts_of,
    picture_name,
)
from erag_ray.report.figures import svg
from erag_ray.report.tables import (
    agreement_by_depth,
    agreement_by_reader,
    published_reproduction,
    published_table_1,
    table_1,
    table_depths,
    whole_lists,
)
from erag_ray.schemas import CORRELATIONS, DUAL_LABELS, MEANS
from erag_ray.store import Folder, TableStore

TITLE = "The papers' tables and figures"
FIGURES = ("figure_1", "figure_2", "figure_3")
"""How the names of their files begin."""


def papers(config: PapersConfig) -> Report:
    """Return every table and figure whose jobs are there, also written to ``out``; the others are named.

    Raises:
        InputError: the comparison is not finished, or there is no such statistic.
    """
    try:
        find("statistic", config.statistic, STATISTICS)
    except ValueError as error:
        raise InputError([f"statistic: {error}"]) from error
    folder = Folder(config.out)
    if folder.path == Folder(config.comparison).path:
        raise InputError([f"out: {config.out} holds the comparison, whose report would go; choose another"])
    made = TableStore(config.comparison)
    if not (made.is_sealed(CORRELATIONS) and made.is_sealed(MEANS)):
        raise InputError(
            [f"comparison: {config.comparison} is not a finished job; run jobs/compare.py first"]
        )
    correlations = made.read(CORRELATIONS)
    for name in [*folder.names(suffix=".csv"), *folder.names(suffix=".svg")]:
        # of a job that is no longer finished, or no longer named
        if name.startswith(FIGURES):
            folder.delete(name)
    parts = {
        "Table 1": _tables_1(correlations),
        "Figure 1": _figure_1(correlations, config, folder),
        "Figure 2": _by_reader(config.by_size, "Figure 2", config.size_depth, config, folder),
        "Figure 3": _by_reader(config.by_augmentation, "Figure 3", config.augmentation_depth, config, folder),
        "Reproduction": _reproduction(correlations, made.read(MEANS), config.reproduction_depth),
        "Table 3": _table_3(config.dual_labels),
    }
    sections = [Section(name=part_name(name), title=name, parts=tuple(part)) for name, part in parts.items()]
    report = Report(
        title=TITLE,
        verdict=Verdict(question="", datasets=()),
        sections=tuple(section for section in sections if section.parts),
    )
    for figure in figures_of(report):
        folder.write_bytes(svg(figure).encode(), picture_name(figure))
    folder.write_bytes(parts_as_markdown(TITLE, parts_of(report)).encode(), "report.md")
    return report


def _tables_1(correlations: pl.DataFrame) -> Iterator[Table]:
    """At the depth of each annotator: the largest, and that to which a judge was asked."""
    rows = whole_lists(correlations)
    depths = table_depths(rows)["depth"].unique().sort(descending=True)
    if depths.is_empty():
        say("Table 1 is left out: no agreement has a value; the report of the comparison says why")
    for depth in depths:
        for run in rows["run_id"].unique().sort():
            yield table_1(correlations, run, depth)
    yield from published_table_1(correlations["dataset"].unique().sort().to_list())


def _figure_1(correlations: pl.DataFrame, config: PapersConfig, folder: Folder) -> Iterator[Table | Figure]:
    lists = (
        whole_lists(correlations)
        .filter(statistic=config.statistic)
        .select("run_id", "dataset")
        .unique()
        .sort("run_id", "dataset")
    )
    curves = [
        agreement_by_depth(correlations, dataset, run, config.statistic).select(
            pl.lit(dataset).alias("dataset"), pl.lit(run).alias("run_id"), pl.all()
        )
        for run, dataset in lists.iter_rows()
    ]
    if not curves:
        say(f"Figure 1 is left out: the comparison has no {config.statistic}")
        return
    data = pl.concat(curves)
    folder.write_bytes(data.write_csv().encode(), "figure_1.csv")
    for (run,), part in data.group_by("run_id", maintain_order=True):
        figure = figure_1(part, str(run), config.statistic)
        if figure is not None:
            yield figure
        yield figure_1_table(part, str(run), config.statistic)


def _by_reader(
    jobs: Mapping[str, str], name: str, depth: int, config: PapersConfig, folder: Folder
) -> Iterator[Table | Figure]:
    missing = [place for place in jobs.values() if not TableStore(place).is_sealed(CORRELATIONS)]
    if missing or not jobs:
        why = f"{', '.join(missing)}: not finished" if missing else "no job is named"
        say(f"{name} is left out: {why}")
        return
    tables = {reader: TableStore(place).read(CORRELATIONS) for reader, place in jobs.items()}
    data = agreement_by_reader(tables, depth, config.statistic)
    if data.is_empty():
        say(f"{name} is left out: no run has {config.statistic} of erag at {depth} documents in every job")
        return
    folder.write_bytes(data.write_csv().encode(), f"{name.lower().replace(' ', '_')}.csv")
    title = f"{name}, {depth} documents"
    figure = agreement_of_readers(data, title, config.statistic)
    if figure is not None:
        yield figure
    yield by_reader_table(data, title, config.statistic)


def _reproduction(correlations: pl.DataFrame, means: pl.DataFrame, depth: int) -> Iterator[Table]:
    if correlations.filter(pl.col("depth") == depth, pl.col("annotator") == "erag").is_empty():
        say(f"the reproduction's table is left out: there is no erag at {depth} documents")
        return
    yield reproduction_table(correlations, means, depth)
    yield published_reproduction()


def _table_3(place: str | None) -> Iterator[Table]:
    if place is None or not TableStore(place).is_sealed(DUAL_LABELS):
        say(f"Table 3 is left out: {place or 'no job'} has no dual labels")
        return
    manifest = TableStore(place).manifest(DUAL_LABELS)
    yield from dual_tables(TableStore(place).read(DUAL_LABELS), manifest["config"]["confidence"])
