"""Ranked lists and passages in memory as tables."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from erag_ray.api.rows import Row, rows_of
from erag_ray.data.files.documents import TEXT_KEYS, Document, ListIds, document_of, finite
from erag_ray.data.files.ids import (
    DOCUMENT_IDS,
    ROW_QUERY_IDS,
    RUN_IDS,
    checked_id,
    is_missing,
    scalar,
    shown,
)
from erag_ray.data.passages.load import CORPUS_COLUMNS, passage_of
from erag_ray.store.schemas import COUNT, VALUE, frame_schema
from erag_ray.support.errors import InputError, first_of

COLUMNS = frame_schema("run_id query_id doc_id rank score title text seconds", rank=COUNT, score=VALUE)


def run_table(lists: object, name: str) -> pl.DataFrame:
    """Return ranked lists as a run with the columns `COLUMNS`; columns without a value are left out.

    Args:
        lists: ``{query_id: [document, ...]}``, best first, ``{query_id: {doc_id: score}}``, or a frame with
            ``query_id``, ``doc_id`` and ``rank`` or ``score`` (and ``text``, ``title``, ``seconds``, ``run_id``). A
            document is an id, ``(id, text)``, ``(id, score)``, ``(id, text, score)``, a mapping with ``id``, ``text``,
            ``title``, ``score``, or an object of a library.
        name: of the run.

    Raises:
        InputError: all problems, each with run, query and rank.
    """
    where, problems = f"runs[{name!r}]", list[str]()
    read = _of_mapping if isinstance(lists, Mapping) else _of_frame
    rows = list(read(lists, where, problems))
    if problems:
        raise InputError(first_of(problems, 5))
    try:
        table = pl.DataFrame(rows, schema=COLUMNS, orient="row")
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise InputError([f"{where}: {error}"]) from error
    return table.select(column for column in table if column.null_count() < table.height or table.is_empty())


def _of_mapping(lists: Any, name: str, problems: list[str]) -> Iterator[Row]:
    keys: dict[str | None, Any] = {}
    for key, value in lists.items():
        where, ids = f"{name}[{key!r}]", ListIds()
        documents = value.tolist() if hasattr(value, "tolist") else value
        # of BEIR, ranx and pytrec_eval: the scores are the order
        scores = documents.values() if isinstance(documents, Mapping) else [None]
        is_scored = all(finite(one) is not None for one in scores)
        documents = list(documents.items()) if is_scored else documents
        if isinstance(documents, str | bytes | Mapping) or not isinstance(documents, Sequence | pl.Series):
            problems.append(f"{where}: a {type(documents).__name__}, not a list of documents or scores by id")
            continue
        try:
            query_id = checked_id(key, "the question's id")
            if query_id in keys:
                raise ValueError(f"the same question as {name}[{keys[query_id]!r}]")
            keys[query_id] = key
        except ValueError as error:
            problems.append(f"{where}: {error}")
            continue
        for rank, item in enumerate(documents, 1):
            try:
                document = document_of(item, bare="doc_id")
                position = None if is_scored else rank
                yield _row(document, query_id=query_id, doc_id=ids.next(document), rank=position)
            except ValueError as error:
                problems.append(f"{where}[{rank - 1}]: {error}")


def _of_frame(frame: object, name: str, problems: list[str]) -> Iterator[Row]:
    if isinstance(frame, list | tuple) and frame and not isinstance(frame[0], Mapping):
        text = f"a list of {type(frame[0]).__name__}; lists need the ids of their questions: {{'q1': ['d1', ...]}}"
        raise InputError([f"{name}: {text}"])
    rows = rows_of(frame, name)
    names = dict.fromkeys(key for row in rows for key in row)
    needed = {
        "query_id": ROW_QUERY_IDS.among(names),
        "doc_id": [*DOCUMENT_IDS.among(names), *(key for key in TEXT_KEYS if key in names)],
        "rank or score": {"rank", "score"} & set(names),
    }
    if missing := [column for column, columns in needed.items() if not columns]:
        raise InputError([f"{name}: no column {', '.join(missing)}; it has {', '.join(names) or 'none'}"])
    for number, row in enumerate(rows):
        try:
            query_id, _ = ROW_QUERY_IDS.id_of(row)
            run_id, seconds = RUN_IDS.id_of(row)[0], scalar(row.get("seconds"))
            document = document_of(row)
            rank = None if document.rank is None or document.rank % 1 else int(document.rank)
            if rank is None and not is_missing(row.get("rank")):
                raise ValueError(f"rank is {shown(row['rank'])}; it must be a whole number")
            if rank is None and document.score is None and not is_missing(row.get("score")):
                raise ValueError(f"score is {shown(row['score'])}; it must be a finite number")
            yield _row(document, query_id=query_id, rank=rank, run_id=run_id, seconds=seconds)
        except ValueError as error:
            problems.append(f"{name}[{number}]: {error}")


def _row(document: Document, **values: Any) -> Row:
    return {**{name: getattr(document, name, None) for name in COLUMNS}, **values}


def passage_table(passages: object) -> pl.DataFrame:
    """Return passages as CORPUS columns doc_id, page_id, title, text.

    Args:
        passages: ``{doc_id: text}``, ``{doc_id: {"title": ..., "text": ...}}``, or rows (frame, dataset, list of
            mappings) with ``doc_id`` (or ``id``) and ``text``, and optional ``title`` and ``page_id``.

    Raises:
        InputError: all problems, each with the number of its passage.
    """
    if isinstance(passages, Mapping):
        passages = [
            {**(value if isinstance(value, Mapping) else {"text": value}), "doc_id": doc_id}
            for doc_id, value in passages.items()
        ]
    rows, problems = [], []
    for number, row in enumerate(rows_of(passages, "passages")):
        try:
            rows.append(passage_of(document_of(row)))
        except ValueError as error:
            problems.append(f"passages[{number}]: {error}")
    if problems:
        raise InputError(first_of(problems, 5))
    return pl.DataFrame(rows, schema=CORPUS_COLUMNS, orient="row")
