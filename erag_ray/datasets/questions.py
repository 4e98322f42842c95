"""One record of a query file -> a `Question`: KILT, BEIR, plain questions with answers, SQuAD, KLUE-MRC.

A new format is one function `Record -> Question` and one line in `QUERY_FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from erag_ray.datasets.tasks import dataset_of_file
from erag_ray.files import Record, identifier, page_name, shown


@dataclass(frozen=True, kw_only=True)
class Question:
    """One query as its file gives it, before it is checked against the others.

    Attributes:
        text: the question; empty where KILT's TriviaQA leaves it out.
        answers: stripped, without repeats, in the file's order.
        num_empty_answers: how many answers were empty and are left out.
        page_sets: ids of the gold pages: each set alone is evidence enough; a page may be in several.
        gold: ids of the gold passages, where the file names them.
        evidence: spans of passages that show the answer, where the file quotes them.
        dataset, task: as the record names them, if it does.
        impossible: the record says that the question has no answer.
        is_unnamed: the record has no id; ``query_id`` is its place.
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

    @property
    def pages(self) -> tuple[str, ...]:
        """All gold pages, without repeats."""
        return tuple(dict.fromkeys(page for pages in self.page_sets for page in pages))


def kilt_question(record: Record) -> Question:
    """A line of a KILT task file: ``id``, ``input``, ``output`` with answers, aliases and provenance.

    Aliases are further entries of ``output``; an entry may hold only an answer or only provenance.
    """
    outputs = record.objects("output")
    answers, num_empty = _cleaned(_kilt_answers(record, outputs))
    meta = record.values.get("meta")
    return Question(
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


def _is_impossible(values: dict[str, Any]) -> bool:
    return values.get("is_impossible") is True


def _kilt_answers(record: Record, outputs: list[dict[str, Any]]) -> list[str]:
    return _texts([entry["answer"] for entry in outputs if entry.get("answer") is not None], record)


def _texts(answers: Iterable[Any], record: Record) -> list[str]:
    kept = []
    for answer in answers:
        if isinstance(answer, str):
            kept.append(answer)
        else:
            record.fault("answers that are no text", f"answer {shown(answer)} must be a string")
    return kept


def _kilt_pages(record: Record, entry: dict[str, Any]) -> tuple[str, ...]:
    """The distinct pages of one output."""
    pages = []
    for source in record.objects_of(entry, "provenance"):
        page = identifier(source.get("wikipedia_id"))
        if page is None and source.get("wikipedia_id") is not None:
            record.fault("wrong wikipedia_id", f"wikipedia_id is {shown(source['wikipedia_id'])}")
        pages.append((page or "").strip())
    return tuple(dict.fromkeys(page for page in pages if page))


def _kilt_evidence(record: Record, outputs: list[dict[str, Any]]) -> tuple[str, ...]:
    """The spans under ``meta.evidence_span`` of the provenance; what is no text there is passed over."""
    spans: list[Any] = []
    for entry in outputs:
        for source in record.objects_of(entry, "provenance"):
            meta = source.get("meta")
            found = meta.get("evidence_span") if isinstance(meta, dict) else None
            spans += found if isinstance(found, list) else [found]
    return tuple(dict.fromkeys(span for span in spans if isinstance(span, str) and span.strip()))


def beir_question(record: Record) -> Question:
    """A line of BEIR's queries.jsonl: ``_id``, ``text``, and answers in ``metadata.answer(s)``."""
    metadata = record.values.get("metadata")
    if not isinstance(metadata, dict):
        if metadata not in (None, "", []):
            record.fault("wrong metadata", f"metadata is {shown(metadata)}; it must be an object")
        metadata = {}
    answers, num_empty = _cleaned(_answers_of(record, metadata))
    return Question(
        query_id=record.identifier("_id"),
        text=record.text("text"),
        answers=answers,
        num_empty_answers=num_empty,
    )


def _answers_of(record: Record, values: dict[str, Any]) -> list[str]:
    """The answers under ``answer`` and ``answers``: a text, texts, or as in SQuAD objects with a ``text``."""
    answers: list[Any] = []
    for key in ("answer", "answers"):
        value = values.get(key)
        if isinstance(value, dict):
            # {"text": [...], "answer_start": [...]}, as the library datasets holds SQuAD
            value = value.get("text")
        answers += value if isinstance(value, list) else [] if value is None else [value]
    return _texts([answer.get("text") if isinstance(answer, dict) else answer for answer in answers], record)


def plain_question(record: Record) -> Question:
    """A question with its answers: ``question``, ``answers`` or ``answer``, and an id.

    The id stands under ``id``, ``query_id`` or ``_id``. Without one it is made from the place: ``NAME:LINE``, with the
    name that the file gives its data set (`dataset_of_file`), so that it stays the same wherever the file lies.
    """
    id_key = next((key for key in ("id", "query_id", "_id") if key in record.values), None)
    answers, num_empty = _cleaned(_answers_of(record, record.values))
    place = f"{dataset_of_file(record.path)}:{record.line}"
    return Question(
        query_id=record.identifier(id_key) if id_key else place,
        text=record.text("question"),
        answers=answers,
        num_empty_answers=num_empty,
        impossible=_is_impossible(record.values),
        is_unnamed=id_key is None,
    )


def squad_question(record: Record, id_key: str = "id") -> Question:
    """A question of SQuAD (see `squad`): its gold page is called by the article's title."""
    title = page_name(record.text("title", optional=True))
    answers, num_empty = _cleaned(_answers_of(record, record.values))
    return Question(
        query_id=record.identifier(id_key),
        text=record.text("question"),
        answers=answers,
        num_empty_answers=num_empty,
        page_sets=((title,),) if title else (),
        impossible=_is_impossible(record.values),
    )


def klue_question(record: Record) -> Question:
    """A question of KLUE-MRC: SQuAD's form, with the id under ``guid``."""
    return squad_question(record, "guid")


def _cleaned(answers: Iterable[str]) -> tuple[tuple[str, ...], int]:
    stripped = [answer.strip() for answer in answers]
    return tuple(dict.fromkeys(answer for answer in stripped if answer)), stripped.count("")


def format_of(record: Record) -> str | None:
    """The format that a record is in, a key of `QUERY_FORMATS`, by the names of its fields; None for any other."""
    fields = record.values.keys()
    if "_id" in fields and "text" in fields:
        return "beir"
    if "input" in fields or "output" in fields:
        return "kilt"
    if "question" in fields:
        return "klue" if "guid" in fields else "plain"
    return None


def format_of_article(record: Record) -> str:
    """The format of a record that `squad.read_squad` gives."""
    return "klue" if "guid" in record.values else "squad"


QUERY_FORMATS: dict[str, Callable[[Record], Question]] = {
    "kilt": kilt_question,
    "beir": beir_question,
    "plain": plain_question,
    "squad": squad_question,
    "klue": klue_question,
}

FORMS = (
    'kilt ("id", "input", "output"), beir ("_id", "text", "metadata"), plain ("question", "answers", and "id" if there '
    'is one), squad and klue (a file NAME.json: one object with "data", "paragraphs", "qas")'
)
"""The fields of each format, for messages."""
