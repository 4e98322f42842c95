"""A comparison for each reader, then the comparison of the readers, as tables and a report."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping

import polars as pl
import rich.console

from erag_ray.analyses.columns import PER_QUERY, by_dataset, table_of
from erag_ray.analyses.costs import cost_text
from erag_ray.analyses.paired import pair_name
from erag_ray.analyses.parts.formats import counted, number, p_text, with_interval
from erag_ray.analyses.parts.model import Finding, Format, Report, Section, Verdict
from erag_ray.analyses.parts.shapes import about, estimate, field, listing, name_field, part_name, rows_of
from erag_ray.analyses.settings import settings_of
from erag_ray.cli.job import job_folder
from erag_ray.comparison import compare
from erag_ray.extras.readers.agreement import (
    OF_LABELS,
    ORDER,
    READER_AGREEMENTS,
    READER_INTERACTIONS,
    Row,
    interactions,
    label_agreements,
    orders,
    sides_of,
)
from erag_ray.extras.readers.config import ReadersConfig
from erag_ray.report.build import build_report
from erag_ray.report.console import print_report
from erag_ray.report.load import load
from erag_ray.report.markdown import markdown
from erag_ray.report.page.write import write_page
from erag_ray.report.stage import locations
from erag_ray.store.folder import Folder
from erag_ray.store.schemas import CLUSTERS, COSTS, QUERIES, UTILITY, TableSchema
from erag_ray.store.tables import TableStore
from erag_ray.support.logs import say

QUESTION = "Does the best retriever depend on the reader?"
MAX_NAMED = 3
"""Interactions that are named in the verdict."""


def compare_readers(config: ReadersConfig, console: rich.console.Console) -> None:
    """Compare the runs with each reader, then the readers: seal the tables, write the report and print its verdict.

    Raises:
        InputError, JobError: as `comparison.compare`, of the first reader that raises one.
    """
    for name, job in config.jobs.items():
        say(f"reader {name}: in {job.out}")
        with job_folder(job):
            compare(job, console)
    if config.dry_run:
        return
    tables, store = _tables(config), TableStore(config.out)
    for schema, rows in tables.items():
        store.write(table_of(rows, schema), schema, config={"readers": list(config.readers)})
    built = _report(config, {schema: store.read(schema) for schema in tables})
    folder = Folder(config.out)
    folder.write_bytes(markdown(built).encode(), "report.md")
    write_page(folder, built, single_file=config.report.single_file)
    print_report(built, console, locations=locations(config.out))


def _tables(config: ReadersConfig) -> dict[TableSchema, list[Row]]:
    """Return the rows of the two tables, made from the sealed tables of all readers."""
    stores = {name: TableStore(job.out) for name, job in config.jobs.items()}
    first = next(iter(stores.values()))
    utility, values = (
        [store.read(schema).with_columns(reader=pl.lit(name)) for name, store in stores.items()]
        for schema in (UTILITY, PER_QUERY)
    )
    labelled = [part.filter(annotator="erag") for part in values]
    settings = settings_of(config, first.read(CLUSTERS) if config.clusters else None)
    tables: dict[TableSchema, list[Row]] = {READER_INTERACTIONS: [], READER_AGREEMENTS: []}
    for columns in by_dataset(labelled, pl.concat(utility), first.read(QUERIES), settings):
        for sides in sides_of(columns):
            tables[READER_INTERACTIONS] += interactions(sides, settings)
            tables[READER_AGREEMENTS] += [*orders(sides, settings), *label_agreements(sides, settings)]
    return tables


def _report(config: ReadersConfig, tables: Mapping[TableSchema, pl.DataFrame]) -> Report:
    """Return the report: a line of each dataset and reader, then what depends on the reader."""
    results = {name: load(job.out) for name, job in config.jobs.items()}
    verdicts = [
        dataclasses.replace(one, dataset=f"{one.dataset}, {name}", findings=())
        for name, result in results.items()
        for one in build_report(result).verdict.datasets
    ]
    alpha = 1 - config.confidence
    # one run has no difference that could depend on the reader
    datasets = pl.concat(rows["dataset"] for rows in tables.values()).unique().sort().to_list()
    findings = [
        Finding(topic="reader", text=f"{dataset}: {text}" if len(datasets) > 1 else text)
        for dataset in datasets
        for text in _findings(
            {schema: rows.filter(dataset=dataset) for schema, rows in tables.items()}, alpha
        )
    ]
    findings += [
        Finding(topic="cost", text=f"cost of {name}: {cost_text(result[COSTS])}")
        for name, result in results.items()
    ]
    ordered = tuple(sorted(verdicts, key=lambda one: one.dataset))
    notes = (note for result in results.values() for note in (*result.missing, *result.notes))
    return Report(
        title=QUESTION,
        verdict=Verdict(question=QUESTION, datasets=ordered, findings=tuple(findings)),
        sections=tuple(_section(config, tables, dataset) for dataset in datasets),
        notes=tuple(dict.fromkeys(notes)),
    )


def _findings(tables: Mapping[TableSchema, pl.DataFrame], alpha: float) -> Iterator[str]:
    """Yield what depends on the reader, in sentences."""
    tested = tables[READER_INTERACTIONS].drop_nulls("p_adjusted")
    settled = tested.filter(pl.col("p_adjusted") <= alpha).sort(pl.col("difference").abs(), descending=True)
    for row in rows_of(settled.head(MAX_NAMED)):
        shown = with_interval(row["difference"], row["low_adjusted"], row["high_adjusted"], drop_zero=True)
        yield (
            f"{pair_name(row)} is {number(row['with_a'], drop_zero=True)} with {row['reader_a']} and "
            f"{number(row['with_b'], drop_zero=True)} with {row['reader_b']}: it depends on the reader, by {shown}, "
            f"p {p_text(row['p_adjusted'])} (Holm)"
        )
    if settled.height > MAX_NAMED:
        yield f"{settled.height - MAX_NAMED} more differences of runs depend on the reader"
    if tested.height and not settled.height:
        least = p_text(min(tested["p_adjusted"]))
        yield f"no difference of two runs is known to depend on the reader: the least p is {least} (Holm)"
    num_runs = len({*tables[READER_INTERACTIONS]["run_a"], *tables[READER_INTERACTIONS]["run_b"]})
    for row in rows_of(tables[READER_AGREEMENTS].filter(about=ORDER).drop_nulls("value")):
        shown = with_interval(row["value"], row["low"], row["high"], drop_zero=True)
        over = counted(row["num_queries"], "question")
        yield f"{row['reader_a']} and {row['reader_b']} order the {num_runs} runs with tau-b {shown}, over {over}"
    labels = {
        (row["reader_a"], row["reader_b"]): (row["value"], row["low"], row["high"])
        for row in rows_of(tables[READER_AGREEMENTS].filter(about=OF_LABELS).drop_nulls("value"))
    }
    for (one, other), figures in labels.items():
        if one != other and (other, other) in labels:
            shown, itself = (with_interval(*of, drop_zero=True) for of in (figures, labels[other, other]))
            text = f"labels of {one} predict the answers of {other} with tau-b {shown}, {other}'s labels with {itself}"
            yield f"{text}, over the same runs"


def _section(config: ReadersConfig, tables: Mapping[TableSchema, pl.DataFrame], dataset: str) -> Section:
    rows = {schema: table.filter(dataset=dataset) for schema, table in tables.items()}
    words, largest = f"{config.confidence:.0%} interval", pl.col("difference").abs()
    readers = (name_field("reader A", "reader_a"), name_field("reader B", "reader_b"))
    parts = [
        listing(
            rows_of(rows[READER_INTERACTIONS].sort(largest, descending=True, maintain_order=True)),
            (
                *readers,
                name_field("runs", pair_name),
                field("with A", "with_a"),
                field("with B", "with_b"),
                field("A - B", functools.partial(estimate, name="difference")),
                field("p", "p_value", Format.P_VALUE),
                field("p (Holm)", "p_adjusted", Format.P_VALUE),
                field("questions", "num_queries", Format.COUNT),
            ),
            caption="The difference of two runs with reader A minus that with reader B, paired over questions at the "
            f"largest depth, with its {words}; p by sign flips, Holm over all pairs of runs and readers.",
            is_main=True,
            **about(dataset, "interactions", "which differences of runs depend on the reader"),
        ),
        listing(
            rows_of(rows[READER_AGREEMENTS]),
            (
                name_field("of", "about"),
                *readers,
                field("tau-b", estimate),
                field("questions", "num_queries", Format.COUNT),
            ),
            caption=f"Kendall's tau-b with its bootstrap {words}. order: of the mean scores of the runs with two "
            "readers. labels: question by question, of P by the labels of reader A and the end-to-end score of "
            "reader B, mean over runs; for each reader B over the questions with labels of all readers, and the runs "
            "where no reader's labels are constant.",
            **about(dataset, "agreements", "how far readers agree, and whose labels predict whose answers"),
        ),
    ]
    return Section(
        name=part_name("dataset", dataset), title=dataset, parts=tuple(part for part in parts if part.rows)
    )
