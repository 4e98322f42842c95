"""LABELS and readings -> UTILITY, LIST_VALUES; those -> MEANS, CORRELATIONS, COMPARISONS, CONTRASTS, POOLING. Pure.

LABELS and UTILITY give CELLS too, and from these follow their shares and COMPLEMENTS.

Polars moves, NumPy computes.

Everything is done per dataset, over the same queries for every run: a query without a list counts with 0 in every
list measure, and the reader's closed-book answer is its utility. A null (not judged) leaves its query out of that
one column, and the rows say how many were left out.
"""

from erag_ray.evaluate.cells import (
    CELLS_MEANING,
    COMPLEMENT_QUANTITIES,
    RATES,
    SUFFICES,
    cell_columns,
    cell_comparisons,
    cell_shares,
    cells,
    complements,
)
from erag_ray.evaluate.columns import DatasetColumns, by_dataset
from erag_ray.evaluate.common import (
    ANY,
    END_TO_END,
    GOLD_PASSAGES,
    NO_PASSAGES,
    OWN_LIST,
    POOL,
    REFERENCES,
    Settings,
    depths_of,
)
from erag_ray.evaluate.comparisons import best_depths, comparisons, contrasts
from erag_ray.evaluate.dual import PROBABILITIES, dual_labels, dual_probabilities
from erag_ray.evaluate.outputs import (
    SINGLE_DOCUMENT,
    Expected,
    describe_judgements,
    describe_outputs,
    judged_queries,
)
from erag_ray.evaluate.pages import hit_values, page_values, sanity
from erag_ray.evaluate.pooling import pooling
from erag_ray.evaluate.slices import (
    KNOWN,
    MIN_QUESTIONS,
    all_slices,
    slice_comparisons,
    slice_means,
)
from erag_ray.evaluate.statistics import correlations, means
from erag_ray.evaluate.values import (
    asked_measures,
    kind_of_labels,
    list_outputs,
    list_value_parts,
    list_values,
    utility,
    utility_of,
)

__all__ = [
    "ANY",
    "CELLS_MEANING",
    "COMPLEMENT_QUANTITIES",
    "END_TO_END",
    "GOLD_PASSAGES",
    "KNOWN",
    "MIN_QUESTIONS",
    "NO_PASSAGES",
    "OWN_LIST",
    "POOL",
    "PROBABILITIES",
    "RATES",
    "REFERENCES",
    "SINGLE_DOCUMENT",
    "SUFFICES",
    "DatasetColumns",
    "Expected",
    "Settings",
    "all_slices",
    "asked_measures",
    "best_depths",
    "by_dataset",
    "cell_columns",
    "cell_comparisons",
    "cell_shares",
    "cells",
    "comparisons",
    "complements",
    "contrasts",
    "correlations",
    "depths_of",
    "describe_judgements",
    "describe_outputs",
    "dual_labels",
    "dual_probabilities",
    "hit_values",
    "judged_queries",
    "kind_of_labels",
    "list_outputs",
    "list_value_parts",
    "list_values",
    "means",
    "page_values",
    "pooling",
    "sanity",
    "slice_comparisons",
    "slice_means",
    "utility",
    "utility_of",
]
