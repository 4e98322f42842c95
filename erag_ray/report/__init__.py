"""Sealed tables -> a report as data (`model`) -> console, Markdown and page. Pure but for loading and printing.

`load` reads a finished folder, `build_report` makes sections of tables and figures from it, and each renderer is a
file or folder: `console`, `markdown`, `page`.
"""

from __future__ import annotations

from erag_ray.report.build import build_report
from erag_ray.report.console import open_console, print_report, show
from erag_ray.report.curves import agreement_by_depth, agreement_by_reader
from erag_ray.report.dual import dual_tables
from erag_ray.report.experiments import by_reader_table, figure_1_table, reproduction_table
from erag_ray.report.formats import number, rows_of_text, text_of, with_interval
from erag_ray.report.harm import harm_notes, harm_warnings
from erag_ray.report.load import Results, load
from erag_ray.report.markdown import markdown, parts_as_markdown, picture_name
from erag_ray.report.outputs import judgement_warnings, output_warnings
from erag_ray.report.paper import table_1
from erag_ray.report.published import published_reproduction, published_table_1, published_table_2
from erag_ray.report.sanity import sanity_tables
from erag_ray.report.speed import (
    device_table,
    host_table,
    precision_table,
    reading_costs_table,
    served_table,
    speed_table,
    vllm_table,
)
from erag_ray.report.values import tables_of
from erag_ray.report.verdict import verdict

__all__ = [
    "Results",
    "agreement_by_depth",
    "agreement_by_reader",
    "build_report",
    "by_reader_table",
    "device_table",
    "dual_tables",
    "figure_1_table",
    "harm_notes",
    "harm_warnings",
    "host_table",
    "judgement_warnings",
    "load",
    "markdown",
    "number",
    "open_console",
    "output_warnings",
    "parts_as_markdown",
    "picture_name",
    "precision_table",
    "print_report",
    "published_reproduction",
    "published_table_1",
    "published_table_2",
    "reading_costs_table",
    "reproduction_table",
    "rows_of_text",
    "sanity_tables",
    "served_table",
    "show",
    "speed_table",
    "table_1",
    "tables_of",
    "text_of",
    "verdict",
    "vllm_table",
    "with_interval",
]
