"""Formats of query files: a record of KILT, BEIR, plain questions, SQuAD or KLUE-MRC to a `Question`.

A new format is one function `Record -> Question` and one line in `QUERY_FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from erag_ray.datasets.facts import FIELD, Facts, all_forms, parse_facts
from erag_ray.datasets.tasks import dataset_of_file
from erag_ray.files import Record, identifier, page_name, shown


@dataclass(frozen=True, kw_only=True)
class Question:
    """One query of a file, before the checks across records.

    Attributes:
        text: the question; empty for KILT's TriviaQA, which omits it.
        answers: stripped, without duplicates, in the file's order.
        num_empty_answers: how many empty answers were dropped.
        page_sets: ids of the gold pages: each set is sufficient evidence; a page may be in several.
        gold: ids of the gold passages, where the file lists them.
        evidence: quotes from passages that show the answer, where the file has them.
        dataset, task: the record's, if it has them.
        impossible: the record is marked as a question without an answer.
        is_unnamed: the record has no id; ``query_id`` is its file and line.
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
    facts: Facts = ()

    @property
    def pages(self) -> tuple[str, ...]:
        """All gold pages, without duplicates."""
        return tuple(dict.fromkeys(page for pages in self.page_sets for page in pages))


def _with_facts(question: Question, record: Record, value: Any) -> Question:
    """Return the question with the facts of its record; without other answers their forms are the answers."""
    facts, problem = parse_facts(value)
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
    answers, num_empty = _cleaned(_kilt_answers(record, outputs))
    meta = record.values.get("meta")
    question = Question(
        query_id=record.identifier("id"),
        text=record.text("input", optional=True),
        answers=answers,
        num_empty_answers=num_empty,
        page_sets=tuple(pages for entry in outputs if (pages := _kilt_pages(record, entry))),
        gold=tuple(record.identifiers("gold_doc_ids")),
        evidence=_kilt_evidence(record, outputs),
        dataset=record.text("kilt_task", optional=True) or None,
        task=record.text("task", optional=True) or None,
        impossible=_is_impossible(record.values) or (isinstance(meta, dict) and _is_impossible(meta)),
    )
    return _with_facts(question, record, record.values.get(FIELD))


def _is_impossible(values: dict[str, Any]) -> bool:
    return values.get("is_impossible") is True


def _kilt_answers(record: Record, outputs: list[dict[str, Any]]) -> list[str]:
    return _texts([entry["answer"] for entry in outputs if entry.get("answer") is not None], record)


def _texts(answers: Iterable[Any], record: Record) -> list[str]:
    texts = []
    for answer in answers:
        if isinstance(answer, str):
            texts.append(answer)
        else:
            record.fault("answers that are not strings", f"answer {shown(answer)} must be a string")
    return texts


def _kilt_pages(record: Record, entry: dict[str, Any]) -> tuple[str, ...]:
    """Return the distinct pages of one output."""
    pages = []
    for source in record.objects_of(entry, "provenance"):
        page = identifier(source.get("wikipedia_id"))
        if page is None and source.get("wikipedia_id") is not None:
            record.fault("wrong wikipedia_id", f"wikipedia_id is {shown(source['wikipedia_id'])}")
        pages.append((page or "").strip())
    return tuple(dict.fromkeys(page for page in pages if page))


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
    """Parse a line of BEIR's queries.jsonl: ``_id``, ``text``, and answers in ``metadata.answer(s)``."""
    metadata = record.values.get("metadata")
    if not isinstance(metadata, dict):
        if metadata not in (None, "", []):
            record.fault("wrong metadata", f"metadata is {shown(metadata)}; it must be an object")
        metadata = {}
    answers, num_empty = _cleaned(_answers_of(record, metadata))
    question = Question(
        query_id=record.identifier("_id"),
        text=record.text("text"),
        answers=answers,
        num_empty_answers=num_empty,
    )
    return _with_facts(question, record, metadata.get(FIELD))


def _answers_of(record: Record, values: dict[str, Any]) -> list[str]:
    """Return the answers under ``answer`` and ``answers``: a string, a list, or objects with ``text`` as in SQuAD."""
    answers: list[Any] = []
    for key in ("answer", "answers"):
        value = values.get(key)
        if isinstance(value, dict):
            # {"text": [...], "answer_start": [...]}: SQuAD in the Hugging Face library datasets
            value = value.get("text")
        answers += value if isinstance(value, list) else [] if value is None else [value]
    return _texts([answer.get("text") if isinstance(answer, dict) else answer for answer in answers], record)


def plain_question(record: Record) -> Question:
    """Parse a question with its answers: ``question``, ``answers`` or ``answer``, and an id.

    The id is under ``id``, ``query_id`` or ``_id``. Without one it is ``NAME:LINE``, where NAME is the data set of the
    file's name (`dataset_of_file`), so that it does not depend on the folder.
    """
    id_key = next((key for key in ("id", "query_id", "_id") if key in record.values), None)
    answers, num_empty = _cleaned(_answers_of(record, record.values))
    location = f"{dataset_of_file(record.path)}:{record.line}"
    question = Question(
        query_id=record.identifier(id_key) if id_key else location,
        text=record.text("question"),
        answers=answers,
        num_empty_answers=num_empty,
        impossible=_is_impossible(record.values),
        is_unnamed=id_key is None,
    )
    return _with_facts(question, record, record.values.get(FIELD))


def squad_question(record: Record, id_key: str = "id") -> Question:
    """Parse a question of SQuAD (see `squad`): the id of its gold page is the article's title."""
    title = page_name(record.text("title", optional=True))
    answers, num_empty = _cleaned(_answers_of(record, record.values))
    question = Question(
        query_id=record.identifier(id_key),
        text=record.text("question"),
        answers=answers,
        num_empty_answers=num_empty,
        page_sets=((title,),) if title else (),
        impossible=_is_impossible(record.values),
    )
    return _with_facts(question, record, record.values.get(FIELD))


def klue_question(record: Record) -> Question:
    """Parse a question of KLUE-MRC: as SQuAD, with the id under ``guid``."""
    return squad_question(record, "guid")


def _cleaned(answers: Iterable[str]) -> tuple[tuple[str, ...], int]:
    stripped = [answer.strip() for answer in answers]
    return tuple(dict.fromkeys(answer for answer in stripped if answer)), stripped.count("")


def format_of(record: Record) -> str | None:
    """Detect a record's format, a key of `QUERY_FORMATS`, by its field names; None if unknown."""
    fields = record.values.keys()
    if "_id" in fields and "text" in fields:
        return "beir"
    if "input" in fields or "output" in fields:
        return "kilt"
    if "question" in fields:
        return "klue" if "guid" in fields else "plain"
    return None


def format_of_article(record: Record) -> str:
    """Detect the format of a record of `squad.read_squad`."""
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
