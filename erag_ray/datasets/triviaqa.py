"""TriviaQA's own files -> the text of questions by id, for KILT's task files, which leave it out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from erag_ray.files import Diagnostics, identifier, read_json


def read_triviaqa(paths: list[str], query_ids: Collection[str], diagnostics: Diagnostics) -> dict[str, str]:
    """The questions of ``query_ids`` in TriviaQA's JSON files (``{"Data": [{"QuestionId", "Question"}]}``).

    A question that several files hold (web and wikipedia share some) is taken from the first.
    """
    wanted = frozenset(query_ids)
    questions: dict[str, str] = {}
    for path in paths:
        for entry in _entries(path, diagnostics):
            query_id, text = identifier(entry.get("QuestionId")), entry.get("Question")
            if query_id in wanted and isinstance(text, str) and text.strip():
                questions.setdefault(str(query_id), text)
    return questions


def _entries(path: str, diagnostics: Diagnostics) -> list[dict[str, Any]]:
    num_before = diagnostics.num_errors
    content = read_json(path, diagnostics, _slimmed)
    if diagnostics.num_errors > num_before:
        return []
    data = content.get("Data") if isinstance(content, dict) else None
    if not isinstance(data, list):
        diagnostics.error(f"wrong {path}", f'{path}: not a TriviaQA file: it has no list called "Data"')
        return []
    return [entry for entry in data if isinstance(entry, dict)]


def _slimmed(values: dict[str, Any]) -> dict[str, Any] | None:
    """Keep what is needed of each object as it is parsed: the files hold gigabytes of search results."""
    if "Data" in values:
        return values
    return {key: values.get(key) for key in ("QuestionId", "Question")} if "QuestionId" in values else None
