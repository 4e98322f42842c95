"""Build the figures of a report from sealed tables. Pure; figures without data are omitted."""

from __future__ import annotations

from collections.abc import Iterator

from erag_ray.report.figures.labels import agreement_by_annotator, cost_against_agreement, shares_by_rank
from erag_ray.report.figures.scope import Scope, scope_of
from erag_ray.report.figures.utility import gain_by_question, run_differences, utility_by_depth
from erag_ray.report.load import Results
from erag_ray.report.model import Figure


def figures(results: Results, dataset: str) -> list[Figure]:
    """Return the figures of one dataset in reading order; figures without data are omitted."""
    scope = scope_of(results.means, dataset, 1 - results.alpha)
    return [] if scope is None else [figure for figure in _figures(results, scope) if figure is not None]


def _figures(results: Results, scope: Scope) -> Iterator[Figure | None]:
    queries, labels, correlations = results.queries, results.labels, results.correlations
    yield utility_by_depth(results.means, scope)
    yield run_differences(results.comparisons, scope)
    yield gain_by_question(results.utility, queries, scope)
    yield shares_by_rank(labels, results.runs, queries, scope)
    yield agreement_by_annotator(correlations, scope)
    yield cost_against_agreement(correlations, labels, results.requests, queries, scope)
