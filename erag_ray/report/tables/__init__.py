"""Tables of the report, one file per topic."""

from erag_ray.report.tables.correlations import STATISTIC_NAMES
from erag_ray.report.tables.curves import agreement_by_depth, agreement_by_reader, table_depths, whole_lists
from erag_ray.report.tables.harm import harm_notes, harm_warnings
from erag_ray.report.tables.outputs import judgement_warnings, output_warnings
from erag_ray.report.tables.published import (
    published_reproduction,
    published_table_1,
    published_table_2,
    published_table_3,
)
from erag_ray.report.tables.sorting import in_reading_order
from erag_ray.report.tables.table_1 import table_1

__all__ = [
    "STATISTIC_NAMES",
    "agreement_by_depth",
    "agreement_by_reader",
    "harm_notes",
    "harm_warnings",
    "in_reading_order",
    "judgement_warnings",
    "output_warnings",
    "published_reproduction",
    "published_table_1",
    "published_table_2",
    "published_table_3",
    "table_1",
    "table_depths",
    "whole_lists",
]
