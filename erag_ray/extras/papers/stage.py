"""Build the papers' tables and figures from finished jobs and write them to a folder."""

from collections.abc import Iterator, Mapping

import polars as pl

from erag_ray.analyses.correlations import CORRELATIONS, informative
from erag_ray.analyses.means import MEANS
from erag_ray.analyses.order import table_depths, whole_lists
from erag_ray.analyses.parts.formats import counted
from erag_ray.analyses.parts.model import Figure, Report, Section, Table, Verdict
from erag_ray.analyses.parts.shapes import figures_of, part_name, parts_of
from erag_ray.extras.papers.config import PapersConfig
from erag_ray.extras.papers.dual_labels import DUAL_LABELS, dual_tables
from erag_ray.extras.papers.figures import (
    agreement_by_depth,
    agreement_by_reader,
    agreement_of_readers,
    figure_1,
)
from erag_ray.extras.papers.pictures import svg
from erag_ray.extras.papers.published import published_reproduction, reproduction_table
from erag_ray.extras.papers.table_1 import published_table_1, table_1
from erag_ray.measures.agreement import STATISTICS
from erag_ray.report.markdown import parts_as_markdown, picture_name
from erag_ray.store.folder import Folder
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError
from erag_ray.support.logs import say
from erag_ray.support.registry import find

TITLE = "The papers' tables and figures"
FIGURES = ("figure_1", "figure_2", "figure_3")
"""Prefixes of the file names of figures."""


def papers(config: PapersConfig) -> Report:
    """Write and return the tables and figures of all finished jobs; log which are left out, and why.

    Raises:
        InputError: the comparison is not finished, or the statistic is unknown.
    """
    try:
        find("statistic", config.statistic, STATISTICS)
    except ValueError as error:
        raise InputError([f"statistic: {error}"]) from error
    folder = Folder(config.out)
    if folder.path == Folder(config.comparison).path:
        text = f"out: {config.out} is the folder of the comparison, whose report would be overwritten"
        raise InputError([f"{text}; choose another"])
    comparison = TableStore(config.comparison)
    if not (comparison.is_sealed(CORRELATIONS) and comparison.is_sealed(MEANS)):
        raise InputError(
            [f"comparison: {config.comparison} is not a finished job; run erag-ray compare first"]
        )
    correlations = informative(comparison.read(CORRELATIONS))
    for name in [*folder.names(suffix=".csv"), *folder.names(suffix=".svg")]:
        # files of earlier calls, whose jobs may be gone
        if name.startswith(FIGURES):
            folder.delete(name)
    parts = {
        "Table 1": _tables_1(correlations),
        "Figure 1": _figure_1(correlations, config, folder),
        "Figure 2": _by_reader(config.by_size, "Figure 2", config.size_depth, config, folder),
        "Figure 3": _by_reader(config.by_augmentation, "Figure 3", config.augmentation_depth, config, folder),
        "Reproduction": _reproduction(correlations, comparison.read(MEANS), config.reproduction_depth),
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
    """Yield Table 1 at the depth of each annotator: the largest, and the depth of the judge."""
    rows = whole_lists(correlations)
    depths = table_depths(rows)["depth"].unique().sort(descending=True)
    if depths.is_empty():
        say("Table 1 is left out: no agreement has a value; the report of the comparison has the reasons")
    for depth in depths:
        for run in rows["run_id"].unique().sort():
            yield table_1(correlations, run, depth)
    yield from published_table_1(correlations["dataset"].unique().sort().to_list())


def _csv(data: pl.DataFrame) -> bytes:
    """Return a table as CSV; a text that a spreadsheet would run as a formula gets an apostrophe before it."""
    return data.with_columns(pl.col(pl.String).str.replace(r"^[=+\-@\t\r]", "'${0}")).write_csv().encode()


def _figure_1(correlations: pl.DataFrame, config: PapersConfig, folder: Folder) -> Iterator[Table | Figure]:
    rows = whole_lists(correlations).filter(statistic=config.statistic)
    curves = [
        agreement_by_depth(correlations, dataset, run, config.statistic).select(
            pl.lit(dataset).alias("dataset"), pl.lit(run).alias("run_id"), pl.all()
        )
        for run, dataset in rows.select("run_id", "dataset").unique().sort("run_id", "dataset").iter_rows()
    ]
    if not curves:
        say(f"Figure 1 is left out: the comparison has no {config.statistic}")
        return
    data = pl.concat(curves)
    folder.write_bytes(_csv(data), "figure_1.csv")
    for (run,), part in data.group_by("run_id", maintain_order=True):
        yield from figure_1(part, str(run), config.statistic)


def _by_reader(
    jobs: Mapping[str, str], name: str, depth: int, config: PapersConfig, folder: Folder
) -> Iterator[Table | Figure]:
    stores = {reader: TableStore(job_folder) for reader, job_folder in jobs.items()}
    missing = [jobs[reader] for reader, store in stores.items() if not store.is_sealed(CORRELATIONS)]
    if missing or not jobs:
        reason = f"{', '.join(missing)}: not finished" if missing else "no job is named"
        say(f"{name} is left out: {reason}")
        return
    tables = {reader: informative(store.read(CORRELATIONS)) for reader, store in stores.items()}
    data = agreement_by_reader(tables, depth, config.statistic)
    if data.is_empty():
        say(
            f"{name} is left out: no run has {config.statistic} of erag with {counted(depth, 'document')} in every job"
        )
        return
    folder.write_bytes(_csv(data), f"{name.lower().replace(' ', '_')}.csv")
    yield from agreement_of_readers(data, f"{name}, {counted(depth, 'document')}", config.statistic)


def _reproduction(correlations: pl.DataFrame, means: pl.DataFrame, depth: int) -> Iterator[Table]:
    if correlations.filter(pl.col("depth") == depth, pl.col("annotator") == "erag").is_empty():
        say(f"the reproduction's table is left out: there is no erag with {counted(depth, 'document')}")
        return
    yield reproduction_table(correlations, means, depth)
    yield published_reproduction()


def _table_3(job_folder: str | None) -> Iterator[Table]:
    store = TableStore(job_folder) if job_folder else None
    if store is None or not store.is_sealed(DUAL_LABELS):
        say(f"Table 3 is left out: {job_folder or 'no job'} has no dual labels")
        return
    yield from dual_tables(store.read(DUAL_LABELS), store.manifest(DUAL_LABELS)["config"]["confidence"])
