"""Formats of query files: a record of KILT, BEIR, plain questions, SQuAD or KLUE-MRC to a `Question`.

A new format is one function `Record -> Question` and one line in `QUERY_FORMATS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from erag_ray.data.datasets.answers import READ, aliases_in, gold_answers, is_impossible
from erag_ray.data.datasets.facts import FIELD, Facts, all_forms, parse_facts
from erag_ray.data.datasets.tasks import dataset_of_file
from erag_ray.data.files.ids import QUESTION_IDS, identifier, shown
from erag_ray.data.files.jsonl import Record
from erag_ray.data.files.squad import page_key


@dataclass(frozen=True, kw_only=True)
class Question:
    """One query of a file, before the checks across records.

    Attributes:
        text: the question; empty for KILT's TriviaQA, which omits it.
        answers: stripped, without duplicates, in the file's order.
        num_empty_answers: how many empty answers were dropped.
        page_sets: ids of the gold pages: each set is sufficient evidence; a page may be in several.
        gold: ids of the gold passages (``gold_doc_ids``, or qrels), best first.
        evidence: quotes from passages that show the answer, where the file has them.
        dataset, task: the record's, if it has them.
        impossible: the record is marked as a question without an answer.
        is_unnamed: the record has no id; ``query_id`` is its file and line.
        notes: kinds of warnings about the record.
        facts: gold answers that each say another thing (see `facts`); none: the answers are forms of one.
    """

    query_id: str
    text: str
    answers: tuple[str, ...]
    num_empty_answers: int
    page_sets: tuple[tuple[str, ...], ...] = ()
    gold: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    dataset: str | None = None
    task: str | None = None
    impossible: bool = False
    is_unnamed: bool = False
    notes: tuple[str, ...] = ()
    facts: Facts = ()

    @property
    def pages(self) -> tuple[str, ...]:
        """All gold pages, without duplicates."""
        return tuple(dict.fromkeys(page for pages in self.page_sets for page in pages))

    def with_page_keys(self) -> Question:
        """Return the question with its gold pages by `page_key`, the form in which pages are compared."""
        sets = (dict.fromkeys(filter(None, map(page_key, pages))) for pages in self.page_sets)
        return replace(self, page_sets=tuple(tuple(pages) for pages in sets if pages))


GOLD_FIELD = "gold_doc_ids"
_LIKE_GOLD = re.compile(
    r"(?i)(?:gold(?:en)?|relevant|positive)_?(?:(?:doc|document|passage|ctx|context)s?(?:_?ids?)?|ids?)"
)
"""Names under which other files have gold passages."""


def _completed(question: Question, record: Record, values: dict[str, Any]) -> Question:
    """Return the question with the fields that every format may have: gold passages and facts.

    Without other answers the forms of the facts are the answers.
    """
    question = replace(question, gold=tuple(record.identifiers_of(values, GOLD_FIELD)))
    if not (question.gold or question.page_sets):
        fields = [name for name, value in values.items() if value and _LIKE_GOLD.fullmatch(name)]
        advice = f"which is not read. Call it {GOLD_FIELD}, a list of ids, to read it; queries"
        notes = [
            f"gold passages, it seems, in the field {name}, {advice}" for name in fields if name != GOLD_FIELD
        ]
        question = replace(question, notes=(*question.notes, *notes))
    facts, problem = parse_facts(values.get(FIELD))
    if problem:
        record.fault(f"wrong {FIELD}", f"query {question.query_id!r}: {problem}")
        # the record is refused, and this is its only problem
        return replace(question, answers=question.answers or (FIELD,))
    return replace(question, facts=facts, answers=question.answers or all_forms(facts))


def kilt_question(record: Record) -> Question:
    """Parse a line of a KILT task file: ``id``, ``input``, ``output`` with answers, aliases and provenance.

    Aliases are further entries of ``output``; an entry may have only an answer or only provenance.
    """
    outputs = record.objects("output")
    given = gold_answers(
        {
            "answers": [entry["answer"] for entry in outputs if entry.get("answer") is not None],
            "answer_aliases": [alias for values in (record.values, *outputs) for alias in aliases_in(values)],
        }
    )
    answers, num_empty = _cleaned(_texts(given.values, record))
    meta = record.values.get("meta")
    question = Question(
        query_id=record.identifier("id"),
        text=record.text("input", optional=True),
        answers=answers,
        num_empty_answers=num_empty,
        page_sets=tuple(pages for entry in outputs if (pages := _kilt_pages(record, entry))),
        evidence=_kilt_evidence(record, outputs),
        dataset=record.text("kilt_task", optional=True) or None,
        task=record.text("task", optional=True) or None,
        notes=given.notes,
        impossible=is_impossible(record.values) or (isinstance(meta, dict) and is_impossible(meta)),
    )
    return _completed(question, record, record.values)


def _texts(answers: Iterable[Any], record: Record) -> list[str]:
    texts = []
    for answer in answers:
        if isinstance(answer, str):
            texts.append(answer)
        else:
            record.fault("answers that are not strings", f"answer {shown(answer)} must be a string")
    return texts


def _kilt_pages(record: Record, entry: dict[str, Any]) -> tuple[str, ...]:
    """Return the pages of one output."""
    pages = []
    for source in record.objects_of(entry, "provenance"):
        page = identifier(source.get("wikipedia_id"))
        if page is None and source.get("wikipedia_id") is not None:
            record.fault("wrong wikipedia_id", f"wikipedia_id is {shown(source['wikipedia_id'])}")
        pages.append(page or "")
    return tuple(pages)


def _kilt_evidence(record: Record, outputs: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the spans under ``meta.evidence_span`` of the provenance; values that are not strings are ignored."""
    spans: list[Any] = []
    for entry in outputs:
        for source in record.objects_of(entry, "provenance"):
            meta = source.get("meta")
            value = meta.get("evidence_span") if isinstance(meta, dict) else None
            spans += value if isinstance(value, list) else [value]
    return tuple(dict.fromkeys(span for span in spans if isinstance(span, str) and span.strip()))


def beir_question(record: Record) -> Question:
    """Parse a line of BEIR's queries.jsonl: ``_id``, ``text``; answers and the rest are there or in ``metadata``."""
    metadata = record.values.get("metadata")
    if not isinstance(metadata, dict):
        if metadata not in (None, "", []):
            record.fault("wrong metadata", f"metadata is {shown(metadata)}; it must be an object")
        metadata = {}
    values = {**record.values, **metadata}
    given = gold_answers(values)
    answers, num_empty = _cleaned(_texts(given.values, record))
    question = Question(
        query_id=record.identifier("_id"),
        text=record.text("text"),
        answers=answers,
        num_empty_answers=num_empty,
        impossible=given.is_impossible,
        notes=given.notes,
    )
    return _completed(question, record, values)


def plain_question(record: Record) -> Question:
    """Parse a question with its answers: ``question``, ``answers`` or ``answer``, and an id.

    The id is under ``id`` or another of `QUESTION_IDS`. Without one it is ``NAME:LINE``, where NAME is the data set of
    the file's name (`dataset_of_file`), so that it does not depend on the folder.
    """
    is_unnamed = not QUESTION_IDS.among(record.values)
    given = gold_answers(record.values)
    answers, num_empty = _cleaned(_texts(given.values, record))
    location = f"{dataset_of_file(record.path)}:{record.line}"
    question = Question(
        query_id=location if is_unnamed else record.identifier(QUESTION_IDS),
        text=record.text("question"),
        answers=answers,
        num_empty_answers=num_empty,
        impossible=given.is_impossible,
        notes=given.notes,
        is_unnamed=is_unnamed,
    )
    return _completed(question, record, record.values)


def squad_question(record: Record, id_key: str = "id") -> Question:
    """Parse a question of SQuAD (see `squad`): the id of its gold page is the article's title."""
    title = record.text("title", optional=True)
    given = gold_answers(record.values)
    answers, num_empty = _cleaned(_texts(given.values, record))
    question = Question(
        query_id=record.identifier(id_key),
        text=record.text("question"),
        answers=answers,
        num_empty_answers=num_empty,
        page_sets=((title,),) if title else (),
        impossible=given.is_impossible,
        notes=given.notes,
    )
    return _completed(question, record, record.values)


def klue_question(record: Record) -> Question:
    """Parse a question of KLUE-MRC: as SQuAD, with the id under ``guid``."""
    return squad_question(record, "guid")


def checked_answers(record: Record) -> list[str]:
    """Return the gold answers of a record, stripped and without repeats; other values are faults of the record."""
    return list(_cleaned(_texts(gold_answers(record.values).values, record))[0])


def _cleaned(answers: Iterable[str]) -> tuple[tuple[str, ...], int]:
    stripped = [answer.strip() for answer in answers]
    return tuple(dict.fromkeys(answer for answer in stripped if answer)), stripped.count("")


def formats_of(record: Record) -> list[str]:
    """Return the formats whose fields a record has, keys of `QUERY_FORMATS`, the one that is read first.

    A record with a question and answers is plain, whatever else it has.
    """
    fields = record.values.keys()
    plain = "klue" if "guid" in fields and not QUESTION_IDS.among(fields) else "plain"
    is_complete = "question" in fields and any(name in fields for name in (*READ, FIELD))
    formats = {
        plain: is_complete,
        "beir": "_id" in fields and "text" in fields,
        "kilt": "input" in fields or "output" in fields,
    }
    return [name for name, has in formats.items() if has] or [plain] * ("question" in fields)


def format_of_article(record: Record) -> str:
    """Detect the format of a record of `data.files.squad.read_squad`."""
    return "klue" if "guid" in record.values else "squad"


QUERY_FORMATS: dict[str, Callable[[Record], Question]] = {
    "kilt": kilt_question,
    "beir": beir_question,
    "plain": plain_question,
    "squad": squad_question,
    "klue": klue_question,
}

FORMS = (
    'kilt ("id", "input", "output"), beir ("_id", "text", "metadata"), plain ("question", "answers", optional "id"), '
    'squad and klue (a file NAME.json: one object with "data", "paragraphs", "qas")'
)
"""The fields of each format, for messages."""
