"""Reports and questions -> plain data for the page's script, small and safe to stand in HTML."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from erag_ray.report.formats import text_of
from erag_ray.report.model import Column, Figure, Table, Value
from erag_ray.report.page.questions import Documents, Question, Questions
from erag_ray.runs import GOLD_PASSAGES, NO_PASSAGES

Plain = dict[str, Any]
MAX_FIGURE_ROWS = 2_000
"""Rows of a figure's data that are shown as a table."""
LEVEL = 6
"""Of gzip."""
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
    """JSON, gzipped, in base64: letters, digits, ``+``, ``/`` and ``=``, whatever the texts hold."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=str)
    # without a time, so that the same report is the same file
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), LEVEL, mtime=0)).decode()


def table_data(table: Table) -> Plain:
    """A table: heads, and rows of cells with what they are sorted by."""
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
    """Text alone where there is no more to a cell."""
    alone = replace(value, low=None, high=None, note="")
    text = "" if _finite(value.value) is None else text_of(alone, column)
    # what stands behind the value
    interval = text_of(replace(value, note=""), column)[len(text) :].strip() if text else ""
    if isinstance(value.value, str) and not (interval or value.note or value.reason):
        return text
    known = {"v": _finite(value.value), "t": text, "i": interval, "n": value.note, "r": value.reason}
    return {key: part for key, part in known.items() if part not in ("", None)} or None


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def figure_data(figure: Figure, spec: Mapping[str, Any] | None) -> Plain:
    """A figure: how it is drawn (None: not), and its numbers for a table."""
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
    """All of a question that its view shows."""
    return {
        "id": question.query_id,
        "question": question.question,
        "answers": list(question.answers),
        "dataset": question.dataset,
        "score": question.score,
        "slices": dict(question.slices),
        "documents": _documents(question.documents),
        "lists": {str(run): list(places) for run, places in question.lists.items()},
        "end_to_end": [[one.run, one.depth, one.value, one.output] for one in question.end_to_end],
        "cells": [[run, depth, cell] for (run, depth), cell in question.cells.items()],
    }


def _documents(documents: Documents) -> Plain:
    return {
        "ids": list(documents.ids),
        "titles": list(documents.titles),
        "texts": list(documents.texts),
        "gold": [place for place, is_gold in enumerate(documents.is_gold) if is_gold],
        "outputs": list(documents.outputs),
        "labels": {str(column): list(labels) for column, labels in documents.labels.items()},
    }


class QuestionIndex:
    """Columns over all questions: what sorting and filtering need, and where each question's record is."""

    def __init__(self, questions: Questions | None) -> None:
        self.columns: dict[str, list[Any]] = {name: [] for name in INDEX_COLUMNS}
        self.runs = list(questions.runs) if questions else []
        self.depth = questions.depths[-1] if questions and questions.depths else 0
        self.cells: dict[str, int] = {}
        self.slices: dict[str, dict[str, int]] = {}

    def add(self, question: Question, shard: int, place: int) -> None:
        """The next question, whose record is the one at ``place`` of a shard."""
        values = {(one.run, one.depth): one.value for one in question.end_to_end}
        row = {
            "id": question.query_id,
            "question": question.question,
            "answers": list(question.answers)[:3],
            "dataset": question.dataset,
            "shard": shard,
            "place": place,
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
        known = ((name, value, self.slices.setdefault(name, {})) for name, value in slices.items())
        return {name: values.setdefault(value, len(values)) for name, value, values in known}

    def data(self) -> Plain:
        """The index, with the names that its numbers stand for."""
        slices = {name: list(values) for name, values in self.slices.items()}
        return {**self.columns, "depth": self.depth, "cell_names": list(self.cells), "slice_values": slices}


def _reference(question: Question, run: str) -> float | None:
    return next((one.value for one in question.end_to_end if one.run == run), None)


def column_data(questions: Questions) -> list[Plain]:
    """The annotators, by name, reader and score."""
    return [
        {"annotator": one.annotator, "reader": one.reader, "score": one.score, "kind": one.kind}
        for one in questions.columns
    ]


def part_data(
    parts: Iterable[Table | Figure], specs: Mapping[str, Mapping[str, Any]]
) -> tuple[list[Plain], list[Plain]]:
    """Tables and figures of a report, each with its data."""
    both: Sequence[Table | Figure] = list(parts)
    tables = [table_data(part) for part in both if isinstance(part, Table)]
    figures = [figure_data(part, specs.get(part.name)) for part in both if isinstance(part, Figure)]
    return tables, figures
