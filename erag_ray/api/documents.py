"""Ranked lists and passages in memory as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from erag_ray.api.rows import plain, rows_of
from erag_ray.errors import InputError
from erag_ray.files import shown

ID_KEYS, TEXT_KEYS = ("doc_id", "id", "_id"), ("text", "content", "contents", "page_content")
COLUMNS = {
    "query_id": pl.String,
    "doc_id": pl.String,
    "rank": pl.Int32,
    "score": pl.Float64,
    "title": pl.String,
    "text": pl.String,
}
NUM_NAMED = 5


class Document(NamedTuple):
    """A retrieved document: any field but one of ``doc_id`` and ``text`` may be missing."""

    doc_id: str | None = None
    text: str | None = None
    title: str | None = None
    score: float | None = None


def run_table(lists: object, name: str) -> pl.DataFrame:
    """Return ranked lists as a run with the columns `COLUMNS`; columns without a value are left out.

    Args:
        lists: ``{query_id: [document, ...]}``, best first, or a frame with ``query_id``, ``doc_id`` and ``rank`` or
            ``score`` (and ``text``, ``title``). A document is an id, ``(id, text)``, ``(id, score)``,
            ``(id, text, score)``, or a mapping with ``id``, ``text``, ``title``, ``score``.
        name: of the run.

    Raises:
        InputError: all problems, each with run, query and rank.
    """
    if not isinstance(lists, Mapping):
        return _frame_table(lists, f"runs[{name!r}]")
    rows, problems = [], list[str]()
    for query_id, documents in lists.items():
        where = f"runs[{name!r}][{query_id!r}]"
        if isinstance(documents, str | bytes | Mapping) or not isinstance(documents, Sequence):
            problems.append(f"{where}: a {type(documents).__name__}, not a list of documents")
            continue
        for rank, item in enumerate(documents, 1):
            document, fault = _document(item)
            problems += [f"{where}[{rank - 1}]: {fault}"] if fault else []
            rows.append((str(query_id), document.doc_id, rank, document.score, document.title, document.text))
    if problems:
        raise InputError(problems[:NUM_NAMED])
    return _filled(pl.DataFrame(rows, schema=COLUMNS, orient="row"))


def _frame_table(frame: object, name: str) -> pl.DataFrame:
    rows = rows_of(frame, name)
    names = dict.fromkeys(key for row in rows for key in row)
    ranked = {"rank", "score"} & set(names)
    missing = {"query_id", "doc_id"} - set(names)
    if missing or not ranked:
        needed = ", ".join([*sorted(missing), *([] if ranked else ["rank or score"])])
        raise InputError([f"{name}: no column {needed}; it has {', '.join(names) or 'none'}"])
    try:
        return _filled(pl.DataFrame([_cells(row) for row in rows], schema=COLUMNS))
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise InputError([f"{name}: {error}"]) from error


def _cells(row: Mapping[str, Any]) -> dict[str, Any]:
    ids = {key: None if row.get(key) is None else str(row[key]) for key in ("query_id", "doc_id")}
    return {**{key: row.get(key) for key in COLUMNS}, **ids}


def _filled(table: pl.DataFrame) -> pl.DataFrame:
    """Drop the columns without a value."""
    return table.select(column for column in table if column.null_count() < table.height or table.is_empty())


def _document(item: Any) -> tuple[Document, str]:
    """Return a document, and what is wrong with it ("" if nothing is)."""
    item = plain(item) if isinstance(item, Mapping) else item
    if isinstance(item, str | int) and not isinstance(item, bool):
        return Document(str(item)), ""
    if isinstance(item, Mapping):
        return _of_mapping(item)
    if isinstance(item, Sequence) and len(item) in (2, 3):
        return _of_tuple(item)
    return (
        Document(),
        f"{shown(item)}: not an id, (id, text), (id, text, score), or a mapping with id and text",
    )


def _of_mapping(item: Mapping[str, Any]) -> tuple[Document, str]:
    doc_id = next((item[key] for key in ID_KEYS if item.get(key) is not None), None)
    text = next((item[key] for key in TEXT_KEYS if item.get(key) is not None), None)
    if doc_id is None and text is None:
        return Document(), f"neither an id nor a text in {', '.join(item) or 'an empty mapping'}"
    return _checked(doc_id, text, item.get("title"), item.get("score"))


def _of_tuple(item: Sequence[Any]) -> tuple[Document, str]:
    doc_id, second, *rest = item
    if isinstance(second, str):
        return _checked(doc_id, second, None, rest[0] if rest else None)
    return _checked(doc_id, None, None, second)


def _checked(doc_id: Any, text: Any, title: Any, score: Any) -> tuple[Document, str]:
    good_id = doc_id is None or (isinstance(doc_id, str | int) and not isinstance(doc_id, bool))
    faults = [
        *([] if good_id else [f"id {shown(doc_id)} is neither a text nor a whole number"]),
        *([] if text is None or isinstance(text, str) else [f"text {shown(text)} is no text"]),
        *([] if title is None or isinstance(title, str) else [f"title {shown(title)} is no text"]),
        *([] if score is None or _is_number(score) else [f"score {shown(score)} is not a number"]),
    ]
    number = float(score) if score is not None and _is_number(score) else None
    document = Document(None if doc_id is None else str(doc_id), text, title, number)
    return (Document(), "; ".join(faults)) if faults else (document, "")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) != float("inf")


def passage_table(passages: object) -> pl.DataFrame:
    """Return passages as CORPUS columns doc_id, page_id, title, text.

    Args:
        passages: ``{doc_id: text}``, or rows (frame, dataset, list of mappings) with ``doc_id`` (or ``id``) and
            ``text``, and optional ``title`` and ``page_id``.

    Raises:
        InputError: all problems, each with the number of its passage.
    """
    if isinstance(passages, Mapping):
        passages = [{"doc_id": doc_id, "text": text} for doc_id, text in passages.items()]
    rows = list(_passages(rows_of(passages, "passages")))
    schema = dict.fromkeys(("doc_id", "page_id", "title", "text"), pl.String)
    return pl.DataFrame(rows, schema=schema, orient="row")


def _passages(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str | None, str, str]]:
    problems = []
    for number, row in enumerate(rows):
        document, fault = _of_mapping(row)
        if not fault and (document.doc_id is None or document.text is None):
            fault = f"no {'id' if document.doc_id is None else 'text'}; it has {', '.join(row)}"
        problems += [f"passages[{number}]: {fault}"] if fault else []
        page = row.get("page_id")
        yield (
            document.doc_id or "",
            None if page is None else str(page),
            document.title or "",
            document.text or "",
        )
    if problems:
        raise InputError(problems[:NUM_NAMED])
