"""Questions of TriviaQA by id, from its original files: KILT's task files omit them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.ids import identifier
from erag_ray.data.files.jsonl import read_json


def read_triviaqa(paths: list[str], query_ids: Collection[str], diagnostics: Diagnostics) -> dict[str, str]:
    """Return query id -> question from TriviaQA's JSON files (``{"Data": [{"QuestionId", "Question"}]}``).

    Where several files have a question (web and wikipedia overlap), the first counts.
    """
    pending = frozenset(query_ids)
    questions: dict[str, str] = {}
    for path in paths:
        for entry in _entries(path, diagnostics):
            query_id, text = identifier(entry.get("QuestionId")), entry.get("Question")
            if query_id in pending and isinstance(text, str) and text.strip():
                questions.setdefault(str(query_id), text)
    return questions


def _entries(path: str, diagnostics: Diagnostics) -> list[dict[str, Any]]:
    num_before = diagnostics.num_errors
    content = read_json(path, diagnostics, _slimmed)
    data = content.get("Data") if isinstance(content, dict) else None
    if isinstance(data, list):
        return [entry for entry in data if isinstance(entry, dict)]
    if diagnostics.num_errors == num_before:
        diagnostics.error(f"wrong {path}", f'{path}: not a TriviaQA file: it has no list "Data"')
    return []


def _slimmed(values: dict[str, Any]) -> dict[str, Any] | None:
    """Drop unused fields during parsing: the files contain gigabytes of search results."""
    if "Data" in values:
        return values
    return {key: values.get(key) for key in ("QuestionId", "Question")} if "QuestionId" in values else None
