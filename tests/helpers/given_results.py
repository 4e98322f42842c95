"""Results of given tables, and what a report shows of them."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import polars as pl

from erag_ray.analyses.contract import Analysis, Results, View
from erag_ray.analyses.every import ANALYSES
from erag_ray.analyses.parts.model import Figure, Table
from erag_ray.analyses.repeats import REPEAT_SPREADS
from erag_ray.analyses.standing import Standing
from erag_ray.report.build import views_of

RESULTS = tuple(one.schema for one in ANALYSES if one.make and one.schema and one.schema != REPEAT_SPREADS)
"""Tables that are always made of labels and utility."""


def results(confidence: float = 0.95, **tables: pl.DataFrame) -> Results:
    """Results with these tables, by name."""
    return Results(tables=tables, configs={"means": {"confidence": confidence}})


def configured(whole: Results, **configs: Mapping[str, Any]) -> Results:
    """The same with other settings, by table."""
    merged = {name: {**whole.configs.get(name, {}), **more} for name, more in configs.items()}
    return dataclasses.replace(whole, configs={**whole.configs, **merged})


def view_of(whole: Results, dataset: str) -> View:
    return next(view for view in views_of(whole) if view.dataset == dataset)


def standing_of(whole: Results, dataset: str) -> Standing:
    found = view_of(whole, dataset).standing
    assert found is not None
    return found


def figures_of_dataset(whole: Results, dataset: str) -> list[Figure]:
    """All figures of a dataset, in reading order."""
    views = [view for view in views_of(whole) if view.dataset == dataset]
    parts = (part for view in views for one in ANALYSES for part in one.show(view))
    return [part for part in parts if isinstance(part, Figure)]


def tables_of_view(analysis: Analysis, view: View) -> list[Table]:
    return [part for part in analysis.show(view) if isinstance(part, Table)]
