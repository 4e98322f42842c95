"""Build a report from the sealed tables of a job and render it: console, Markdown and an HTML page.

`load` reads a finished job's folder into `Results`, `build_report` turns them into sections of typed tables and figures
(`model`), and `console`, `markdown` and `page` render these. Only loading and rendering do I/O.
"""

from erag_ray.report.build import build_report
from erag_ray.report.console import open_console, print_report, show
from erag_ray.report.formats import (
    MISSING,
    change,
    counted,
    number,
    quoted,
    rows_of_text,
    text_of,
    with_interval,
)
from erag_ray.report.load import Results, load
from erag_ray.report.markdown import markdown, parts_as_markdown, picture_name
from erag_ray.report.model import (
    Column,
    DatasetVerdict,
    Figure,
    Finding,
    Format,
    Report,
    Section,
    Table,
    Value,
    Verdict,
)
from erag_ray.report.page.write import Charts, PageOptions, write_page
from erag_ray.report.stage import report
from erag_ray.report.tables.correlations import informative
from erag_ray.report.tables.curves import agreement_by_depth, agreement_by_reader
from erag_ray.report.tables.harm import harm_notes, harm_warnings
from erag_ray.report.tables.outputs import judgement_warnings, output_warnings
from erag_ray.report.tables.table_1 import table_1
from erag_ray.report.values import (
    across,
    columns,
    estimate,
    figures_of,
    names,
    part_name,
    parts_of,
    plain,
    tables_of,
)
from erag_ray.report.verdict import MAX_QUESTIONS, cost_text, verdict

__all__ = [
    "MAX_QUESTIONS",
    "MISSING",
    "Charts",
    "Column",
    "DatasetVerdict",
    "Figure",
    "Finding",
    "Format",
    "PageOptions",
    "Report",
    "Results",
    "Section",
    "Table",
    "Value",
    "Verdict",
    "across",
    "agreement_by_depth",
    "agreement_by_reader",
    "build_report",
    "change",
    "columns",
    "cost_text",
    "counted",
    "estimate",
    "figures_of",
    "harm_notes",
    "harm_warnings",
    "informative",
    "judgement_warnings",
    "load",
    "markdown",
    "names",
    "number",
    "open_console",
    "output_warnings",
    "part_name",
    "parts_as_markdown",
    "parts_of",
    "picture_name",
    "plain",
    "print_report",
    "quoted",
    "report",
    "rows_of_text",
    "show",
    "table_1",
    "tables_of",
    "text_of",
    "verdict",
    "with_interval",
    "write_page",
]
