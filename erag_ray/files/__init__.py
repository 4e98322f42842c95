"""Reading of users' files, and diagnostics of them as FILE:LINE."""

from erag_ray.files.diagnostics import NUM_NAMED, Diagnostics
from erag_ray.files.jsonl import (
    FIELD,
    WHOLE,
    Path,
    Paths,
    Record,
    Span,
    identifier,
    listed,
    numbered,
    read_json,
    read_lines,
    read_records,
    shown,
    spans_of,
)
from erag_ray.files.parquet import (
    READ_ERRORS,
    has_columns,
    number_column,
    report_unreadable,
    scan_parquet,
    text_column,
)
from erag_ray.files.rows import read_dataset
from erag_ray.files.squad import is_squad, page_name, read_squad, read_squad_pages

__all__ = [
    "FIELD",
    "NUM_NAMED",
    "READ_ERRORS",
    "WHOLE",
    "Diagnostics",
    "Path",
    "Paths",
    "Record",
    "Span",
    "has_columns",
    "identifier",
    "is_squad",
    "listed",
    "number_column",
    "numbered",
    "page_name",
    "read_dataset",
    "read_json",
    "read_lines",
    "read_records",
    "read_squad",
    "read_squad_pages",
    "report_unreadable",
    "scan_parquet",
    "shown",
    "spans_of",
    "text_column",
]
