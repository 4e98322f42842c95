"""Files of people's verdicts: ``{"query_id", "run" or "doc_id", "verdict", "annotator"?, "depth"?}``.

A verdict is true, false, 1 or 0, also under ``accepted``: is the output of the run right, or the document useful.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.ids import shown
from erag_ray.data.files.jsonl import Record
from erag_ray.data.files.records import read_records
from erag_ray.data.runs.outputs import item_of
from erag_ray.store.schemas import FLAG, STRING, table_schema

VERDICTS = table_schema(
    "verdicts", "query_id* run_id* depth* doc_id* rater* verdict", rater=STRING, verdict=FLAG
)
"""A person's verdict on the output of a run with ``depth`` documents (0: the most that the job has), or, where
``run_id`` is "", on a document."""
KEYS = ("verdict", "accepted")


def load_verdicts(paths: Sequence[str], diagnostics: Diagnostics) -> pl.DataFrame:
    """Load VERDICTS from JSON Lines (.gz too), a JSON list, Parquet or a dataset; what is wrong goes to diagnostics."""
    rows: list[dict[str, Any]] = []
    first: dict[tuple[Any, ...], str] = {}
    for record in (record for path in paths for record in read_records(path, diagnostics)):
        row = _row(record)
        location = first.setdefault(tuple(row[name] for name in VERDICTS.key), record.location)
        if location != record.location:
            by = f" by {row['rater']!r}" if row["rater"] else ""
            text = f"query {row['query_id']!r}: repeats the verdict{by} at {location}; name each annotator"
            record.fault("repeated verdicts", text)
        if not record.faulty:
            rows.append(row)
    return pl.DataFrame(rows, schema=pl.DataFrame(VERDICTS.empty()).schema)


def _row(record: Record) -> dict[str, Any]:
    values = record.values
    key = next((key for key in KEYS if key in values), KEYS[0])
    verdict = values.get(key)
    if verdict not in (0, 1):
        state = f"is {shown(verdict)}" if key in values else "is missing"
        record.fault(f"wrong {key}", f"{key} {state}; it must be true, false, 1 or 0")
    depth = values.get("depth") or 0
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 0:
        record.fault("wrong depth", f"depth is {shown(depth)}; it must be a number of documents")
    item, rater = item_of(record), values.get("annotator")
    return {
        **item,
        "depth": 0 if item["doc_id"] else depth,
        "rater": "" if rater is None else str(rater),
        "verdict": bool(verdict),
    }
