"""Encode reports and questions as compact data for the page's script, safe to embed in HTML."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from erag_ray.analyses.parts.formats import text_of
from erag_ray.analyses.parts.model import Column, Figure, Table, Value
from erag_ray.data.runs.references import GOLD_PASSAGES, NO_PASSAGES
from erag_ray.report.page.questions import Documents, Question, Questions

Plain = dict[str, Any]
MAX_FIGURE_ROWS = 2_000
"""Maximum number of rows of a figure's data in its table."""
LEVEL = 6
"""Compression level of gzip."""
INDEX_COLUMNS = (
    "id",
    "question",
    "answers",
    "dataset",
    "shard",
    "place",
    "slices",
    "values",
    "closed_book",
    "gold",
    "cells",
    "disagree",
    "harmful",
)


def packed(content: object) -> str:
    """Encode as JSON, gzip and base64: only letters, digits, ``+``, ``/`` and ``=``, whatever the content."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=str)
    # without a time stamp, so that equal reports give equal files
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), LEVEL, mtime=0)).decode()


def table_data(table: Table) -> Plain:
    """Return a table as data: headers, and rows of cells with their sort keys."""
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
    shown = figure.data.head(MAX_FIGURE_ROWS)
    rows = [[_finite(value) for value in row] for row in shown.iter_rows()]
    return {
        "name": figure.name,
        "spec": spec,
        "columns": figure.data.columns,
        "rows": rows,
        "num_rows": figure.data.height,
    }


def question_data(question: Question) -> Plain:
    """Return the record of a question for its view."""
    return {
        "id": question.query_id,
        "question": question.question,
        "answers": list(question.answers),
        "dataset": question.dataset,
        "score": question.score,
        "slices": dict(question.slices),
        "documents": _documents(question.documents),
        "lists": {str(run): list(documents) for run, documents in question.lists.items()},
        "end_to_end": [
            [output.run, output.depth, output.value, output.output] for output in question.end_to_end
        ],
        "cells": [[run, depth, cell] for (run, depth), cell in question.cells.items()],
        "in_lists": question.in_lists,
    }


def _documents(documents: Documents) -> Plain:
    return {
        "ids": list(documents.ids),
        "titles": list(documents.titles),
        "texts": list(documents.texts),
        "gold": [index for index, is_gold in enumerate(documents.is_gold) if is_gold],
        "outputs": list(documents.outputs),
        "labels": {str(column): list(labels) for column, labels in documents.labels.items()},
    }


class QuestionIndex:
    """Index of all questions, by column: keys for sorting and filtering, and the position of each record."""

    def __init__(self, questions: Questions | None) -> None:
        self.columns: dict[str, list[Any]] = {name: [] for name in INDEX_COLUMNS}
        self.runs = list(questions.runs) if questions else []
        self.depth = questions.depths[-1] if questions and questions.depths else 0
        self.cells: dict[str, int] = {}
        self.slices: dict[str, dict[str, int]] = {}

    def add(self, question: Question, shard: int, position: int) -> None:
        """Add the next question, whose record is at ``place`` of a shard."""
        values = {(output.run, output.depth): output.value for output in question.end_to_end}
        row = {
            "id": question.query_id,
            "question": question.question,
            "answers": list(question.answers)[:3],
            "dataset": question.dataset,
            "shard": shard,
            "place": position,
            "slices": self._slices(question.slices),
            "values": [values.get((run, self.depth)) for run in self.runs],
            "closed_book": _reference(question, NO_PASSAGES),
            "gold": _reference(question, GOLD_PASSAGES),
            "cells": [self._cell(question.cells.get((run, self.depth))) for run in self.runs],
            "disagree": question.num_disagreements,
            "harmful": question.num_harmful,
        }
        for name, value in row.items():
            self.columns[name].append(value)

    def _cell(self, cell: str | None) -> int:
        return -1 if cell is None else self.cells.setdefault(cell, len(self.cells))

    def _slices(self, slices: Mapping[str, str]) -> dict[str, int]:
        numbered = ((name, value, self.slices.setdefault(name, {})) for name, value in slices.items())
        return {name: values.setdefault(value, len(values)) for name, value, values in numbered}

    def data(self) -> Plain:
        """Return the index as data, with the names behind its numbers."""
        slices = {name: list(values) for name, values in self.slices.items()}
        return {**self.columns, "depth": self.depth, "cell_names": list(self.cells), "slice_values": slices}


def _reference(question: Question, run: str) -> float | None:
    return next((output.value for output in question.end_to_end if output.run == run), None)


def column_data(questions: Questions) -> list[Plain]:
    """Return the label columns as data: annotator, reader, score and kind."""
    return [
        {"annotator": column.annotator, "reader": column.reader, "score": column.score, "kind": column.kind}
        for column in questions.columns
    ]


def part_data(
    parts: Iterable[Table | Figure], specs: Mapping[str, Mapping[str, Any]]
) -> tuple[list[Plain], list[Plain]]:
    """Return the tables and the figures of a report as data."""
    sequence: Sequence[Table | Figure] = list(parts)
    tables = [table_data(part) for part in sequence if isinstance(part, Table)]
    figures = [figure_data(part, specs.get(part.name)) for part in sequence if isinstance(part, Figure)]
    return tables, figures
