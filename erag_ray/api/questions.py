"""Questions in memory as records of a question file."""

import json
from collections.abc import Iterable, Iterator

from erag_ray.api.rows import Row, plain, rows_of
from erag_ray.data.datasets.answers import READ as ANSWER_FIELDS
from erag_ray.data.datasets.answers import all_forms, gold_answers, parse_facts
from erag_ray.data.datasets.questions import TEXT_FIELDS
from erag_ray.data.files.ids import QUESTION_IDS
from erag_ray.support.errors import InputError, first_of


def question_records(questions: object) -> tuple[list[Row], bool]:
    """Return questions as JSON records with ``id``, ``question``, ``answers`` and all other fields.

    They are a list of mappings, a Polars or pandas frame, or a Hugging Face dataset, with ``question`` or ``query``,
    ``answers`` (or another field of `gold_answers`: a text or several), or ``answers_all`` (several facts, each a text
    or its accepted forms), and an id (``id`` or another of `QUESTION_IDS`: a text or a whole number). Questions without
    any id are numbered from "1"; whether they are is returned too.

    Raises:
        InputError: all problems, each with the number of its question.
    """
    rows: list[Row] = [plain(row) for row in rows_of(questions, "questions")]
    rows = [{"question": row["query"], **row} if "query" in row else row for row in rows]
    if not rows:
        raise InputError(["questions: there are none"])
    _check_columns(rows)
    problems = list[str]()
    ids = _ids(rows, problems)
    # the field that a question file is read by; its forms are those of `gold_answers`
    answers = [row.get("answer") if row.get("answers") is None else row["answers"] for row in rows]
    fields = zip(rows, ids, answers, strict=True)
    records = [{**row, "id": name, "answers": forms} for row, name, forms in fields]
    problems = [*_faults(records), *problems]
    if problems:
        raise InputError(first_of(problems, 5))
    if any(ids):
        return records, False
    return [{**record, "id": str(number)} for number, record in enumerate(records, 1)], True


def _check_columns(rows: list[Row]) -> None:
    names = dict.fromkeys(name for row in rows for name in row)
    problems = [
        f"questions: no field {needed}; they have {', '.join(names)}. Rename the field that holds it"
        for needed, keys in (("question", TEXT_FIELDS), ("answers", (*ANSWER_FIELDS, "answers_all")))
        if not set(keys) & set(names)
    ]
    if problems:
        raise InputError(problems)


def _faults(records: Iterable[Row]) -> Iterator[str]:
    for number, record in enumerate(records):
        where = f"questions[{number}]" + (f" (id {record['id']!r})" if record["id"] is not None else "")
        question, given = record.get("question"), gold_answers(record)
        facts, problem = parse_facts(record.get("answers_all"))
        answers = given.values or list(all_forms(facts))
        if not isinstance(question, str) or not question.strip():
            yield f"{where}: question is {question!r}; it must be a text"
        if problem:
            yield f"{where}: {problem}"
        elif not all(isinstance(answer, str) for answer in answers):
            yield f"{where}: answers are {answers!r}; they must be a list of texts"
        elif not any(answer.strip() for answer in answers) and not given.is_impossible:
            yield f"{where}: no answers; leave the question out, or give what a right output must contain"
        try:
            json.dumps(record, allow_nan=False)
        except (TypeError, ValueError) as error:
            yield f"{where}: a field cannot be written as JSON: {error}; leave it out or make it a text"


def _ids(rows: list[Row], problems: list[str]) -> list[str | None]:
    """Return the id of each question (None: it has none), and add what is wrong with them to ``problems``."""
    ids: list[str | None] = []
    are_texts: set[bool] = set()
    for number, row in enumerate(rows):
        name, key = None, ""
        try:
            name, key = QUESTION_IDS.id_of(row)
        except ValueError as error:
            problems.append(f"questions[{number}]: {error}")
        ids.append(name)
        are_texts |= {isinstance(row[key], str)} if key else set()
    if problems:
        return ids
    if None in ids and any(ids):
        text = "no id, though others have one; give all questions an id, or none"
        problems.append(f"questions[{ids.index(None)}]: {text}")
    if len(are_texts) > 1:
        text = "some ids are texts and some are numbers; use one of the two, so that 7 and '7' stay apart"
        problems.append(f"questions: {text}")
    firsts: dict[str, int] = {}
    for number, name in enumerate(ids if len(are_texts) == 1 else ()):
        if name and firsts.setdefault(name, number) != number:
            problems.append(f"questions[{number}]: id {name!r} repeats that of questions[{firsts[name]}]")
            break
    return ids
