"""Encode reports and questions as compact data for the page's script, safe to embed in HTML."""

import base64
import functools
import gzip
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from erag_ray.analyses.parts.formats import text_of
from erag_ray.analyses.parts.model import Column, Figure, Table, Value
from erag_ray.data.runs.references import GOLD_PASSAGES, NO_PASSAGES
from erag_ray.measures.scores import score_sign
from erag_ray.report.page.questions import Questions

Plain = dict[str, Any]
MAX_FIGURE_ROWS = 2_000
"""Maximum number of rows of a figure's data in its table."""
LEVEL = 6
"""Compression level of gzip."""


def packed(content: object) -> str:
    """Encode as JSON, gzip and base64: only letters, digits, ``+``, ``/`` and ``=``, whatever the content."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=str)
    # without a time stamp, so that equal reports give equal files
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), LEVEL, mtime=0)).decode()


def table_data(table: Table) -> Plain:
    return {
        "name": table.name,
        "columns": [
            {"name": column.name, "meaning": column.meaning, "text": column.is_text}
            for column in table.columns
        ],
        "rows": [
            [_cell(value, column) for value, column in zip(row, table.columns, strict=True)]
            for row in table.rows
        ],
    }


def _cell(value: Value, column: Column) -> Plain | str | None:
    """Return a cell as data; as plain text if it has no interval, note or reason."""
    without_interval = replace(value, low=None, high=None, note="")
    text = "" if _finite(value.value) is None else text_of(without_interval, column)
    # the interval is the text after the value
    interval = text_of(replace(value, note=""), column)[len(text) :].strip() if text else ""
    if isinstance(value.value, str) and not (interval or value.note or value.reason):
        return text
    fields = {"v": _finite(value.value), "t": text, "i": interval, "n": value.note, "r": value.reason}
    return {key: field for key, field in fields.items() if field not in ("", None)} or None


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def figure_data(figure: Figure, spec: Mapping[str, Any] | None) -> Plain:
    """Return a figure as data: its Vega-Lite spec (None: not drawn), and its values for a table."""
    rows = [[_finite(value) for value in row] for row in figure.data.head(MAX_FIGURE_ROWS).iter_rows()]
    return {
        "name": figure.name,
        "spec": spec,
        "columns": figure.data.columns,
        "rows": rows,
        "num_rows": figure.data.height,
    }


def index_data(questions: Questions, positions: Sequence[tuple[int, int]]) -> Plain:
    """Return the index of all questions, by column: what they are sorted and filtered by, and where their records are.

    ``positions`` has the shard of each record, and its place there.
    """
    queries = questions.queries
    depth = questions.depths[-1] if questions.depths else 0
    scored = questions.end_to_end.drop_nulls("value")
    here, anywhere = (set(rows["run_id"]) for rows in (scored.filter(depth=depth), scored))
    # a reference has the same score at every depth
    references = _by_run(questions, (NO_PASSAGES, GOLD_PASSAGES), scored, "value")
    cell_names: dict[str, int] = {}
    cells = [
        [-1 if cell is None else cell_names.setdefault(cell, len(cell_names)) for cell in of_question]
        for of_question in _by_run(questions, questions.runs, questions.cells.filter(depth=depth), "cell")
    ]
    slice_values: dict[str, dict[str, int]] = {}
    slices: list[dict[str, int]] = [{} for _ in positions]
    for number, name, value in questions.slices.select("number", "slice", "value").iter_rows():
        known = slice_values.setdefault(name, {})
        slices[number][name] = known.setdefault(value, len(known))
    return {
        "id": queries["query_id"].to_list(),
        "question": queries["question"].to_list(),
        "answers": queries["answers"].list.head(3).to_list(),
        "dataset": queries["dataset"].to_list(),
        "shard": [shard for shard, _ in positions],
        "place": [row for _, row in positions],
        "slices": slices,
        "sign": list(map(functools.cache(score_sign), queries["score"])),
        "values": _by_run(questions, questions.runs, questions.end_to_end.filter(depth=depth), "value"),
        "closed_book": [value for value, _ in references],
        "gold": [value for _, value in references],
        "cells": cells,
        "elsewhere": [run in anywhere - here for run in questions.runs],
        "disagree": questions.num_disagreements,
        "harmful": questions.num_harmful,
        "depth": depth,
        "cell_names": list(cell_names),
        "slice_values": {name: list(known) for name, known in slice_values.items()},
    }


def _by_run(questions: Questions, runs: Sequence[str], rows: pl.DataFrame, column: str) -> list[list[Any]]:
    """Return a column of ``rows``, a list for each question, with a value or None for each run."""
    values = {
        (number, run): value for number, run, value in rows.select("number", "run_id", column).iter_rows()
    }
    return [[values.get((number, run)) for run in runs] for number in questions.queries["number"]]
