"""Formats of query files: a record of KILT, BEIR, plain questions, SQuAD or KLUE-MRC to a `Question`.

A new format is one function `Record -> Question` and one line in `QUERY_FORMATS`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from erag_ray.data.datasets.answers import (
    FACTS_FIELD,
    READ,
    TRUTHS,
    Facts,
    GoldAnswers,
    aliases_in,
    all_forms,
    gold_answers,
    is_impossible,
    parse_facts,
    unread_fields,
)
from erag_ray.data.datasets.tasks import dataset_of_file
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.ids import QUESTION_IDS, identifier, shown
from erag_ray.data.files.jsonl import Record, read_json
from erag_ray.data.files.squad import page_key


@dataclass(frozen=True, kw_only=True)
class Question:
    """One query of a file, before the checks across records."""

    query_id: str
    text: str
    """The question; empty for KILT's TriviaQA, which omits it."""
    answers: tuple[str, ...]
    """Stripped, without duplicates, in the file's order."""
    num_empty_answers: int
    """How many empty answers were dropped."""
    page_sets: tuple[tuple[str, ...], ...] = ()
    """Ids of the gold pages: each set is sufficient evidence; a page may be in several."""
    gold: tuple[str, ...] = ()
    """Ids of the gold passages (``gold_doc_ids``, or qrels), best first."""
    evidence: tuple[str, ...] = ()
    """Quotes from passages that show the answer, where the file has them."""
    dataset: str | None = None
    task: str | None = None
    """The record's, if it has one."""
    impossible: bool = False
    """The record is marked as a question without an answer."""
    is_unnamed: bool = False
    """The record has no id; ``query_id`` is its file and line."""
    notes: tuple[str, ...] = ()
    """Kinds of warnings about the record."""
    facts: Facts = ()
    """Gold answers that each say another thing (see `answers.parse_facts`); none: the answers are forms of one."""

    def with_page_keys(self) -> Question:
        """Return the question with its gold pages by `page_key`, the form in which pages are compared."""
        sets = (dict.fromkeys(filter(None, map(page_key, pages))) for pages in self.page_sets)
        return replace(self, page_sets=tuple(tuple(pages) for pages in sets if pages))


TEXT_FIELDS = ("question", "query")
"""The question of the plain format; the second of MS MARCO, CRAG, LlamaIndex and others."""
GOLD_FIELD = "gold_doc_ids"
_LIKE_GOLD = re.compile(
    r"(?i)(?:gold(?:en)?|relevant|positive|pos|supporting|expected|ground_?truth|gt)_?(?:(?:doc|document|passage|ctx|context|fact)s?(?:_?ids?)?|ids?)|retrieval_gt"
)
"""Names under which other files have gold passages."""


def _question(record: Record, values: dict[str, Any], given: GoldAnswers, **fields: Any) -> Question:
    """Return a question with the fields of every format; the forms of its facts are the answers if it has no others."""
    texts = _texts(given, record)
    question = Question(
        **fields,
        answers=_distinct(texts),
        num_empty_answers=texts.count(""),
        gold=tuple(record.identifiers_of(values, GOLD_FIELD)),
        notes=given.notes,
        impossible=given.is_impossible,
    )
    truths = {name: values[name] for name in TRUTHS if name in values}
    for name in unread_fields(truths, texts) if texts else ():
        text = f"query {question.query_id!r}: {name} is not among its answers, which may be a system's"
        advice = f"Set question_fields: {{answers: {name}}}, or leave out one of the two"
        record.fault("answers beside others", f"{text}. {advice}")
    if not (question.gold or question.page_sets):
        known = [name for name, value in values.items() if value and name != GOLD_FIELD]
        names = filter(_LIKE_GOLD.fullmatch, known)
        advice = f"which is not read. Call it {GOLD_FIELD}, a list of ids, to read it; queries"
        others = (f"gold passages, it seems, in the field {name}, {advice}" for name in names)
        question = replace(question, notes=(*question.notes, *others))
    facts, problem = parse_facts(values.get(FACTS_FIELD))
    if problem:
        record.fault(f"wrong {FACTS_FIELD}", f"query {question.query_id!r}: {problem}")
        # the record is refused, and this is its only problem
        return replace(question, answers=question.answers or (FACTS_FIELD,))
    return replace(question, facts=facts, answers=question.answers or all_forms(facts))


def _texts(given: GoldAnswers, record: Record) -> list[str]:
    """Return the answers, stripped; other values than strings are faults of the record, and shown."""
    for answer in given.values:
        if not isinstance(answer, str):
            advice = f" (lists of forms stand in {FACTS_FIELD})" if isinstance(answer, list) else ""
            record.fault("answers that are not strings", f"answer {shown(answer)} must be a string{advice}")
    return [answer.strip() if isinstance(answer, str) else shown(answer) for answer in given.values]


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the texts that are not blank, without repeats."""
    return tuple(dict.fromkeys(text for text in texts if text.strip()))


def checked_answers(record: Record) -> list[str]:
    """Return the gold answers of a record, stripped and without repeats; other values are faults of the record."""
    return list(_distinct(_texts(gold_answers(record.values), record)))


def kilt_question(record: Record) -> Question:
    """Parse a line of a KILT task file: ``id``, ``input``, ``output`` with answers, aliases and provenance.

    Aliases are further entries of ``output``; an entry may have only an answer or only provenance.
    """
    outputs = record.objects("output")
    sources = [record.objects("provenance", entry) for entry in outputs]
    given = gold_answers(
        {
            "answers": [entry["answer"] for entry in outputs if entry.get("answer") is not None],
            "answer_aliases": [alias for values in (record.values, *outputs) for alias in aliases_in(values)],
        }
    )
    marks = [values for values in (record.values, record.values.get("meta")) if isinstance(values, dict)]
    return _question(
        record,
        record.values,
        given._replace(is_impossible=any(map(is_impossible, marks))),
        query_id=record.identifier("id"),
        text=record.text("input", optional=True),
        page_sets=tuple(pages for of_output in sources if (pages := _kilt_pages(record, of_output))),
        evidence=_kilt_evidence(source for of_output in sources for source in of_output),
        dataset=record.text("kilt_task", optional=True) or None,
        task=record.text("task", optional=True) or None,
    )


def _kilt_pages(record: Record, sources: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    """Return the pages in the provenance of one output."""
    pages = []
    for source in sources:
        page = identifier(source.get("wikipedia_id"))
        if page is None and source.get("wikipedia_id") is not None:
            record.fault("wrong wikipedia_id", f"wikipedia_id is {shown(source['wikipedia_id'])}")
        pages.append(page or "")
    return tuple(pages)


def _kilt_evidence(sources: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    """Return the spans under ``meta.evidence_span`` of the provenance; values that are not strings are ignored."""
    spans: list[Any] = []
    for source in sources:
        meta = source.get("meta")
        value = meta.get("evidence_span") if isinstance(meta, dict) else None
        spans += value if isinstance(value, list) else [value]
    return _distinct(span for span in spans if isinstance(span, str))


def beir_question(record: Record) -> Question:
    """Parse a line of BEIR's queries.jsonl: ``_id``, ``text``; answers and the rest are there or in ``metadata``."""
    metadata = record.values.get("metadata")
    if not isinstance(metadata, dict):
        if metadata not in (None, "", []):
            record.fault("wrong metadata", f"metadata is {shown(metadata)}; it must be an object")
        metadata = {}
    values = {**record.values, **metadata}
    fields = {"query_id": record.identifier("_id"), "text": record.text("text")}
    return _question(record, values, gold_answers(values), **fields)


def plain_question(record: Record) -> Question:
    """Parse a question with its answers: ``question`` or ``query``, ``answers`` or ``answer``, and an id.

    The id is under ``id`` or another of `QUESTION_IDS`. Without one it is ``NAME:LINE``, where NAME is the data set of
    the file's name (`dataset_of_file`), so that it does not depend on the folder.
    """
    is_unnamed = not QUESTION_IDS.among(record.values)
    location = f"{dataset_of_file(record.path)}:{record.line}"
    return _question(
        record,
        record.values,
        gold_answers(record.values),
        query_id=location if is_unnamed else record.identifier(QUESTION_IDS),
        text=record.text(next((name for name in TEXT_FIELDS if name in record.values), TEXT_FIELDS[0])),
        is_unnamed=is_unnamed,
    )


def squad_question(record: Record, id_key: str = "id") -> Question:
    """Parse a question of SQuAD or KLUE-MRC (see `squad`): the id of its gold page is the article's title."""
    title = record.text("title", optional=True)
    return _question(
        record,
        record.values,
        gold_answers(record.values),
        query_id=record.identifier(id_key),
        text=record.text("question"),
        page_sets=((title,),) if title else (),
    )


def read_triviaqa(paths: list[str], query_ids: Collection[str], diagnostics: Diagnostics) -> dict[str, str]:
    """Return query id -> question from TriviaQA's JSON files (``{"Data": [{"QuestionId", "Question"}]}``).

    KILT's task files omit these questions. Where several files have one (web and wikipedia overlap), the first counts.
    """
    pending = frozenset(query_ids)
    questions: dict[str, str] = {}
    for path in paths:
        num_before = diagnostics.num_errors
        content = read_json(path, diagnostics, _slimmed)
        data = content.get("Data") if isinstance(content, dict) else None
        if not isinstance(data, list) and diagnostics.num_errors == num_before:
            diagnostics.error(f"wrong {path}", f'{path}: not a TriviaQA file: it has no list "Data"')
        for entry in data if isinstance(data, list) else ():
            known = entry if isinstance(entry, dict) else {}
            query_id, text = identifier(known.get("QuestionId")), known.get("Question")
            if query_id in pending and isinstance(text, str) and text.strip():
                questions.setdefault(str(query_id), text)
    return questions


def _slimmed(values: dict[str, Any]) -> dict[str, Any] | None:
    """Drop unused fields during parsing: the files contain gigabytes of search results."""
    if "Data" in values:
        return values
    return {key: values.get(key) for key in ("QuestionId", "Question")} if "QuestionId" in values else None


def formats_of(record: Record) -> list[str]:
    """Return the formats whose fields a record has, keys of `QUERY_FORMATS`, the one that is read first.

    A record with a question and answers is plain, whatever else it has.
    """
    fields = record.values.keys()
    plain = "klue" if "guid" in fields and not QUESTION_IDS.among(fields) else "plain"
    has_answers = any(name in fields for name in (*READ, FACTS_FIELD))
    is_output = isinstance(record.values.get("output"), str)
    is_complete = any(name in fields for name in TEXT_FIELDS) and (has_answers or is_output)
    formats = {
        plain: is_complete,
        "beir": "_id" in fields and "text" in fields,
        "kilt": "input" in fields or "output" in fields,
    }
    return [name for name, has in formats.items() if has] or [plain] * ("question" in fields)


QUERY_FORMATS: dict[str, Callable[[Record], Question]] = {
    "kilt": kilt_question,
    "beir": beir_question,
    "plain": plain_question,
    "squad": squad_question,
    "klue": functools.partial(squad_question, id_key="guid"),
}

FORMS = (
    'kilt ("id", "input", "output"), beir ("_id", "text", "metadata"), plain ("question", "answers", optional "id"), '
    'squad and klue (a file NAME.json: one object with "data", "paragraphs", "qas")'
)
"""The fields of each format, for messages."""
