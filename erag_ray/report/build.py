"""Build the report from loaded results. Pure.

To add a table or figure, write a function that returns it and yield it in one of the sections below.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl

from erag_ray.extensions import installed
from erag_ray.report.figures.sections import figures
from erag_ray.report.load import Results
from erag_ray.report.model import Figure, Report, Section, Table, Verdict
from erag_ray.report.tables.auxiliary import auxiliary_table
from erag_ray.report.tables.cells import cell_tables
from erag_ray.report.tables.correlations import across_runs_table, correlation_table, informative
from erag_ray.report.tables.costs import cost_table, work_table
from erag_ray.report.tables.differences import comparison_table, contrast_table
from erag_ray.report.tables.harm import harm_notes, harm_warnings
from erag_ray.report.tables.latency import latency_table
from erag_ray.report.tables.outputs import (
    depth_table,
    judgement_table,
    judgement_warnings,
    output_table,
    output_warnings,
)
from erag_ray.report.tables.overview import agreement_overview, comparison_overview, utility_overview
from erag_ray.report.tables.published import published_table_1
from erag_ray.report.tables.retrievers import best_first, which_retriever
from erag_ray.report.tables.slices import slice_tables
from erag_ray.report.tables.table_1 import table_1
from erag_ray.report.tables.tokens import token_table
from erag_ray.report.values import part_name

Parts = Iterator[Table | Figure]


def build_report(results: Results, verdict: Verdict) -> Report:
    """Return the report of one job: sections by dataset, then over all datasets, published tables, work and costs."""
    results = replace(results, correlations=informative(results.correlations))
    return Report(
        title=title_of(results),
        verdict=verdict,
        sections=tuple(section for section in _sections(results) if section.parts),
        warnings=tuple(_warnings(results)),
        notes=tuple(_notes(results)),
    )


def title_of(results: Results) -> str:
    """Return the question that the report answers."""
    reader = results.reader
    words = ("the reader", reader.get("kind"), reader.get("model"))
    without = "" if reader.get("titles", True) else " without titles"
    return f"Which retriever serves {' '.join(str(word) for word in words if word)}{without} best?"


def _sections(results: Results) -> Iterator[Section]:
    datasets = results.means["dataset"].unique().sort().to_list()
    for dataset in datasets:
        parts = tuple(_of_dataset(results, dataset, is_only=len(datasets) == 1))
        yield Section(name=part_name("dataset", dataset), title=dataset, parts=parts)
    yield Section(
        name="datasets", title="All datasets", parts=tuple(_of_all(results, is_only=len(datasets) == 1))
    )
    published = tuple(published_table_1(datasets))
    yield Section(name="published", title="Published tables", parts=published)
    yield Section(name="costs", title="Requests and costs", parts=tuple(_work(results)))


def _of_dataset(results: Results, dataset: str, *, is_only: bool) -> Parts:
    rows = results.means.filter(pl.col("dataset") == dataset)
    runs = best_first(rows)
    yield from figures(results, dataset)
    yield which_retriever(results.means, dataset, results.confidence, is_main=is_only)
    if dataset in results.auxiliary_means["dataset"]:
        yield auxiliary_table(results.auxiliary_means, dataset, runs, is_main=is_only)
    if results.list_tokens.height:
        yield token_table(results.list_tokens, results.queries, results.means, dataset, runs)
    yield from _latency(results, dataset, runs, is_only=is_only)
    if dataset in results.outputs["dataset"]:
        yield output_table(results.outputs, results.common_outputs, dataset)
    if dataset in results.judgements["dataset"]:
        yield judgement_table(results.judgements, dataset)
    # all datasets have this table, or none
    if (results.best_depths["depth"] != results.best_depths["deepest"]).any():
        yield depth_table(results.best_depths, dataset)
    if len(runs) > 1 and dataset in results.comparisons["dataset"]:
        yield comparison_table(results.comparisons, dataset, runs, results.confidence, is_main=is_only)
    yield from _agreement(results, dataset, runs, is_only=is_only)
    yield from _cells(results, dataset, runs)
    for extension in installed():
        yield from extension.parts(results.further, dataset, runs)


def _latency(results: Results, dataset: str, runs: Sequence[str], *, is_only: bool) -> Iterator[Table]:
    """Yield the table of latencies, if the lists of any run bring them."""
    if results.retrieval_seconds.height:
        inputs = results.retrieval_seconds, results.queries, results.means
        yield latency_table(*inputs, dataset, runs, is_main=is_only)


def _cells(results: Results, dataset: str, runs: Sequence[str]) -> Iterator[Table]:
    """Yield the tables of the eight cells, and all results by slice."""
    confidence = 1 - results.alpha
    cells = (results.cell_shares, results.cell_comparisons, results.complements)
    yield from cell_tables(*cells, dataset, runs, confidence, results.threshold)
    yield from slice_tables(results.slice_means, results.slice_comparisons, dataset, runs, confidence)


def _agreement(results: Results, dataset: str, runs: Sequence[str], *, is_only: bool) -> Parts:
    """Yield agreement with utility; with several datasets, smaller depths are in the paper's Table 1."""
    correlations = results.correlations
    rows = correlations.filter(pl.col("dataset") == dataset)
    depths = rows["depth"].unique().sort(descending=True).to_list()
    statistics = correlations["statistic"].unique(maintain_order=True).to_list()
    for depth, statistic in itertools.product(depths if is_only else depths[:1], statistics):
        yield correlation_table(correlations, dataset, depth, statistic, runs)
    if "erag" in results.contrasts["annotator_a"]:
        for depth, statistic in itertools.product(depths[:1], statistics):
            yield contrast_table(results.contrasts, correlations, dataset, depth, statistic, runs)
    if depths and len(runs) > 1:
        yield across_runs_table(correlations, dataset, depths[0])


def _of_all(results: Results, *, is_only: bool) -> Parts:
    runs = best_first(results.means)
    if not is_only:
        yield utility_overview(results.means, results.confidence)
        if len(runs) > 1 and results.comparisons.height:
            yield comparison_overview(results.comparisons, results.means, results.confidence)
    for statistic in results.correlations["statistic"].unique(maintain_order=True).head(1):
        yield agreement_overview(results.correlations, runs, statistic)
    if not is_only:
        yield from _tables_1(results.correlations)


def _tables_1(correlations: pl.DataFrame) -> Iterator[Table]:
    """Yield the paper's Table 1 for every depth, deepest first, and every run."""
    over_queries = correlations.filter(pl.col("over") == "queries")
    lists = over_queries.select("depth", "run_id").unique().sort("depth", "run_id", descending=[True, False])
    for depth, run in lists.iter_rows():
        yield table_1(correlations, run, depth)


def _work(results: Results) -> Iterator[Table]:
    yield from (work_table(stage) for stage in results.stages)
    if results.costs.height:
        yield cost_table(results.costs)


def _warnings(results: Results) -> Iterator[str]:
    yield from output_warnings(results.outputs, results.common_outputs, results.best_depths, results.means)
    yield from judgement_warnings(results.judgements)
    yield from harm_warnings(results.closed_book, results.noise)


def _notes(results: Results) -> Iterator[str]:
    yield from results.missing
    yield from results.notes
    yield from harm_notes(results.closed_book, results.noise)
    yield from results.export_notes
