"""LABELS and readings -> UTILITY, PER_QUERY; those -> MEANS, CORRELATIONS, COMPARISONS, CONTRASTS. Pure.

LABELS and UTILITY give CELLS too, and from these follow their shares and COMPLEMENTS.

Polars moves, NumPy computes.

Everything is done per dataset, over the same queries for every run: a query without a list counts with 0 in every
list measure, and the reader's closed-book answer is its utility. A null (not judged), and a query that an annotator was
not asked about, are left out of that one column, and the rows say how many were left out.
"""

from erag_ray.evaluate.auxiliary import OF_LISTS, estimate_all
from erag_ray.evaluate.cells import (
    CELLS_MEANING,
    COMPLEMENT_QUANTITIES,
    RATES,
    cell_columns,
    cell_comparisons,
    cell_shares,
    cells,
    complements,
)
from erag_ray.evaluate.columns import DatasetColumns, by_dataset, measured_and_used, same_list, table_of
from erag_ray.evaluate.common import ANY, OWN_LIST, POOL, Floats, Settings, depths_of
from erag_ray.evaluate.comparisons import best_depths, comparisons, contrasts
from erag_ray.evaluate.export import export
from erag_ray.evaluate.lists import eligible_questions, per_query, per_query_parts
from erag_ray.evaluate.slices import MIN_QUESTIONS, all_slices, slice_comparisons, slice_means, with_slices
from erag_ray.evaluate.stage import RESULTS, check_made, evaluate, settings_of
from erag_ray.evaluate.statistics import correlations, means

__all__ = [
    "ANY",
    "CELLS_MEANING",
    "COMPLEMENT_QUANTITIES",
    "MIN_QUESTIONS",
    "OF_LISTS",
    "OWN_LIST",
    "POOL",
    "RATES",
    "RESULTS",
    "DatasetColumns",
    "Floats",
    "Settings",
    "all_slices",
    "best_depths",
    "by_dataset",
    "cell_columns",
    "cell_comparisons",
    "cell_shares",
    "cells",
    "check_made",
    "comparisons",
    "complements",
    "contrasts",
    "correlations",
    "depths_of",
    "eligible_questions",
    "estimate_all",
    "evaluate",
    "export",
    "means",
    "measured_and_used",
    "per_query",
    "per_query_parts",
    "same_list",
    "settings_of",
    "slice_comparisons",
    "slice_means",
    "table_of",
    "with_slices",
]
