"""Build the figures of a report from sealed tables. Pure; figures without data are omitted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from erag_ray.report.figures.labels import agreement_by_annotator, cost_against_agreement, shares_by_rank
from erag_ray.report.figures.scope import Scope, scope_of
from erag_ray.report.figures.utility import gain_by_question, run_differences, utility_by_depth
from erag_ray.report.model import Figure


@dataclass(frozen=True, kw_only=True)
class FigureTables:
    """Tables that the figures need; None for missing ones."""

    means: pl.DataFrame
    comparisons: pl.DataFrame | None = None
    correlations: pl.DataFrame | None = None
    labels: pl.DataFrame | None = None
    runs: pl.DataFrame | None = None
    utility: pl.DataFrame | None = None
    queries: pl.DataFrame | None = None
    requests: pl.DataFrame | None = None
    """REQUESTS of all stages."""
    confidence: float


def figures(tables: FigureTables, dataset: str) -> list[Figure]:
    """Return the figures of one dataset in reading order; figures without data are omitted."""
    scope = scope_of(tables.means, dataset, tables.confidence)
    return [] if scope is None else [figure for figure in _figures(tables, scope) if figure is not None]


def _figures(tables: FigureTables, scope: Scope) -> Iterator[Figure | None]:
    queries, labels, correlations = tables.queries, tables.labels, tables.correlations
    yield utility_by_depth(tables.means, scope)
    if tables.comparisons is not None:
        yield run_differences(tables.comparisons, scope)
    if tables.utility is not None and queries is not None:
        yield gain_by_question(tables.utility, queries, scope)
    if labels is not None and tables.runs is not None and queries is not None:
        yield shares_by_rank(labels, tables.runs, queries, scope)
    if correlations is not None:
        yield agreement_by_annotator(correlations, scope)
        if labels is not None and tables.requests is not None and queries is not None:
            yield cost_against_agreement(correlations, labels, tables.requests, queries, scope)
