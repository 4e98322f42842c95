"""Questions in memory as records of a question file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from erag_ray.api.rows import Row, rows_of
from erag_ray.datasets import all_forms, parse_facts
from erag_ray.errors import InputError

ID_KEYS = ("id", "query_id", "_id")
NUM_NAMED = 5


def question_records(questions: object) -> list[Row]:
    """Return questions as JSON records with ``id``, ``question``, ``answers`` and all other fields.

    Args:
        questions: a list of mappings, a Polars or pandas frame, or a Hugging Face dataset, with ``question``,
            ``answers`` (or ``answer``: a text or several), or ``answers_all`` (several facts, each a text or its
            accepted forms), and an id (``id``, ``query_id`` or ``_id``: a text or a whole number). Questions without
            any id are numbered from "1".

    Raises:
        InputError: all problems, each with the number of its question.
    """
    rows = rows_of(questions, "questions")
    if not rows:
        raise InputError(["questions: there are none"])
    _check_columns(rows)
    records = [{**row, "id": _id(row), "answers": _answers(row)} for row in rows]
    problems = [*_faults(records), *_id_faults(records)]
    if problems:
        raise InputError(_shortened(problems))
    if all(record["id"] is None for record in records):
        return [{**record, "id": str(number)} for number, record in enumerate(records, 1)]
    return [{**record, "id": str(record["id"])} for record in records]


def _check_columns(rows: list[Row]) -> None:
    names = dict.fromkeys(name for row in rows for name in row)
    problems = [
        f"questions: no field {needed}; they have {', '.join(names)}. Rename the field that holds it"
        for needed, keys in (("question", ("question",)), ("answers", ("answers", "answer", "answers_all")))
        if not set(keys) & set(names)
    ]
    if problems:
        raise InputError(problems)


def _id(row: Row) -> Any:
    return next((row[key] for key in ID_KEYS if row.get(key) is not None), None)


def _answers(row: Row) -> Any:
    value = row.get("answers") if row.get("answers") is not None else row.get("answer")
    if isinstance(value, dict):
        # {"text": [...], "answer_start": [...]}: SQuAD in the Hugging Face library datasets
        value = value.get("text")
    if value is None:
        return list(all_forms(parse_facts(row.get("answers_all"))[0]))
    return [value] if isinstance(value, str) else value


def _faults(records: Iterable[Row]) -> Iterator[str]:
    for number, record in enumerate(records):
        where = f"questions[{number}]" + (f" (id {record['id']!r})" if record["id"] is not None else "")
        question, answers = record.get("question"), record["answers"]
        if not isinstance(question, str) or not question.strip():
            yield f"{where}: question is {question!r}; it must be a text"
        if problem := parse_facts(record.get("answers_all"))[1]:
            yield f"{where}: {problem}"
        elif not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
            yield f"{where}: answers are {answers!r}; they must be a list of texts"
        elif not any(answer.strip() for answer in answers):
            yield f"{where}: no answers; leave the question out, or give what a right output must contain"
        try:
            json.dumps(record, allow_nan=False)
        except (TypeError, ValueError) as error:
            yield f"{where}: a field cannot be written as JSON: {error}; leave it out or make it a text"


def _id_faults(records: list[Row]) -> Iterator[str]:
    ids = [record["id"] for record in records]
    missing = [number for number, value in enumerate(ids) if value is None]
    if 0 < len(missing) < len(ids):
        yield f"questions[{missing[0]}]: no id, though others have one; give all questions an id, or none"
    for number, value in enumerate(ids):
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            yield f"questions[{number}]: id is {value!r}; it must be a text or a whole number"
    kinds = {type(value) for value in ids if value is not None}
    if kinds == {str, int}:
        yield "questions: some ids are texts and some are numbers; use one of the two, so that 7 and '7' stay apart"
    repeated = [
        str(value) for value, count in Counter(map(str, ids)).items() if count > 1 and value != "None"
    ]
    if repeated and kinds != {str, int}:
        first = [number for number, value in enumerate(ids) if str(value) == repeated[0]]
        yield f"questions[{first[1]}]: id {repeated[0]!r} repeats that of questions[{first[0]}]"


def _shortened(problems: list[str]) -> list[str]:
    more = len(problems) - NUM_NAMED
    return problems if more <= 0 else [*problems[:NUM_NAMED], f"and {more} more of such problems"]
