"""Files of lines, and records of questions and predictions in their common forms."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

from erag_ray.data.files.diagnostics import Diagnostics


def write(path: pathlib.Path, *records: object) -> pathlib.Path:
    """Write a file of lines: texts and bytes unchanged, all else as JSON."""
    lines = [record if isinstance(record, str | bytes) else json.dumps(record) for record in records]
    path.write_bytes(b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines))
    return path


def diagnosed(load: Callable[..., Any], *given: object, **options: object) -> tuple[Any, Diagnostics]:
    """What a loader returns, and what is wrong by it."""
    diagnostics = Diagnostics()
    return load(*given, diagnostics, **options), diagnostics


def without_errors(load: Callable[..., Any], *given: object, **options: object) -> Any:
    """What a loader returns, by which nothing may be wrong."""
    result, diagnostics = diagnosed(load, *given, **options)
    assert diagnostics.errors == ()
    return result


def only_error(load: Callable[..., Any], *given: object, **options: object) -> str:
    """The one error of a loader."""
    (error,) = diagnosed(load, *given, **options)[1].errors
    return error


def kilt(
    query_id: object = "q1", question: object = "Who?", *answers: str, **more: object
) -> dict[str, object]:
    output = [{"answer": answer} for answer in answers or ("Ann",)]
    return {"id": query_id, "input": question, "output": output, **more}


def predicted(*sources: dict[str, object], query_id: object = "r") -> dict[str, object]:
    return {"id": query_id, "output": [{"answer": "x", "provenance": [*sources]}]}


def qa(
    query_id: object, *answers: str, question: str | None = None, key: str = "id", **more: object
) -> dict[str, object]:
    """A question of SQuAD, whose text is its id unless given."""
    texts = [{"text": answer, "answer_start": 0} for answer in answers]
    return {key: query_id, "question": question or f"{query_id}?", "answers": texts, **more}


def article(
    title: str, *qas: dict[str, object], context: str | None = None, **more: object
) -> dict[str, object]:
    """A page of SQuAD with one paragraph."""
    return {"title": title, "paragraphs": [{"context": context or f"All of {title}.", "qas": [*qas]}], **more}


SEA = {"QuestionId": "tc_1", "Question": "Which sea?", "Answer": {"Value": "x"}, "SearchResults": [{"a": 1}]}
"""An entry of TriviaQA's own file."""
