"""Gold passages from qrels files in the format of TREC, BEIR or MTEB.

TREC: ``query 0 document grade``, separated by white space. BEIR: ``query-id <tab> corpus-id <tab> score``, with or
without a header. MTEB: JSON Lines, Parquet or a dataset (``hf:NAME:SPLIT``) with the fields query-id, corpus-id, score.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from erag_ray.files import (
    FIELD,
    READ_ERRORS,
    Diagnostics,
    identifier,
    read_dataset,
    read_lines,
    read_records,
    report_unreadable,
    scan_parquet,
    shown,
)
from erag_ray.store import ROW, is_dataset

# at most the digits of a 64-bit number; int() would also accept digits of other scripts and 1_000
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
NAMES = ("query-id", "corpus-id", "score")
"""Fields of MTEB's qrels."""
Qrels = dict[str, tuple[str, ...]]
Row = tuple[int, list[str] | str]
"""Number of a line or row, and its query, document and grade; or what is wrong with it."""


def read_qrels(paths: list[str], diagnostics: Diagnostics) -> Qrels:
    """Return query -> its documents with grades above 0, best first (empty for a query with only 0)."""
    judged: dict[str, dict[str, int]] = {}
    for path in paths:
        for number, fields in _rows(path, diagnostics):
            if fault := fields if isinstance(fields, str) else _fault(fields, judged):
                diagnostics.error(f"bad lines in {path}", f"{path}:{number}: {fault}")
            else:
                judged.setdefault(fields[0], {})[fields[1]] = int(fields[2])
    return {query_id: _best_first(documents) for query_id, documents in judged.items()}


def _rows(path: str, diagnostics: Diagnostics) -> Iterator[Row]:
    if path.endswith(".parquet"):
        return _parquet_rows(path, diagnostics)
    if is_dataset(path):
        return _named((record.line, record.values) for record in read_dataset(path, diagnostics))
    if path.removesuffix(".gz").endswith((".jsonl", ".json")):
        return _named((record.line, record.values) for record in read_records(path, diagnostics))
    return _text_rows(path, diagnostics)


def _text_rows(path: str, diagnostics: Diagnostics) -> Iterator[Row]:
    """Yield the rows of TREC and BEIR."""
    for position, (number, line) in enumerate(read_lines(path, diagnostics)):
        fields = _fields(line)
        if position == 0 and fields[-1].lower() == "score":
            continue
        yield number, fields if len(fields) == 3 else _wrong_columns(line)


def _parquet_rows(path: str, diagnostics: Diagnostics) -> Iterator[Row]:
    frame = scan_parquet(path, NAMES, diagnostics)
    if frame is None:
        return
    try:
        rows = frame.select(ROW, *NAMES).collect()
    except READ_ERRORS as error:
        report_unreadable(path, error, diagnostics)
        return
    yield from _named((row[ROW], row) for row in rows.iter_rows(named=True))


def _named(rows: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[Row]:
    """Yield the rows of MTEB; scores such as 1.0 are whole numbers there."""
    for number, values in rows:
        missing = [name for name in NAMES if name not in values]
        if missing:
            yield number, f"no {', '.join(missing)}; MTEB's qrels have {', '.join(NAMES)}"
            continue
        ids, score = [identifier(values[name]) for name in NAMES[:2]], values["score"]
        wrong = [name for name, value in zip(NAMES, ids, strict=False) if value is None]
        if wrong:
            yield number, f"{wrong[0]} is {shown(values[wrong[0]])}; it must be an id"
        else:
            is_whole = isinstance(score, float) and score.is_integer()
            grade = int(score) if is_whole else "" if isinstance(score, bool) else score
            yield number, [str(ids[0]), str(ids[1]), str(grade)]


def _fields(line: str) -> list[str]:
    """Return query, document and grade of a TREC line; otherwise the tab-separated columns (the same three in BEIR)."""
    columns = [column.strip() for column in line.split("\t")]
    words = FIELD.findall(line)
    is_beir = len(columns) == 3 and words[-1] == columns[-1]
    return [words[0], *words[2:]] if len(words) == 4 and not is_beir else columns


def _wrong_columns(line: str) -> str:
    forms = "query 0 document grade (TREC), or query-id, corpus-id and score between tabs (BEIR)"
    return f"{len(FIELD.findall(line))} columns, not in either known format: {forms}"


def _fault(fields: list[str], judged: dict[str, dict[str, int]]) -> str:
    if not (fields[0] and fields[1]):
        return "an empty id"
    query_id, doc_id, score = fields
    if not _WHOLE.fullmatch(score):
        return f"score {score!r} is not a whole number"
    earlier = judged.get(query_id, {}).get(doc_id)
    if earlier is not None and earlier != int(score):
        return (
            f"query {query_id!r}, document {doc_id!r}: score {score} here, and {earlier} in an earlier line"
        )
    return ""


def _best_first(documents: dict[str, int]) -> tuple[str, ...]:
    relevant = [doc_id for doc_id, score in documents.items() if score > 0]
    return tuple(sorted(relevant, key=lambda doc_id: -documents[doc_id]))
