"""Gold passages from qrels files in the format of TREC, BEIR or MTEB.

TREC: ``query 0 document grade``, separated by white space. BEIR: ``query-id <tab> corpus-id <tab> score``, with or
without a header. MTEB: JSON Lines, Parquet or a dataset (``hf:NAME:SPLIT``) with the fields query-id, corpus-id, score.
A header, fields and columns may have other names of `ROLES`, in any order.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.ids import identifier, shown
from erag_ray.data.files.jsonl import FIELD, Record, read_lines
from erag_ray.data.files.records import read_records
from erag_ray.store.huggingface import is_dataset

# at most the digits of a 64-bit number; int() would also accept digits of other scripts and 1_000
_WHOLE = re.compile(r"([+-]?[0-9]{1,18})(?:\.0+)?")
ROLES = {
    "query-id": ("queryid", "qid", "query", "questionid", "topic", "topicid"),
    "corpus-id": ("corpusid", "docid", "docno", "document", "documentid", "doc", "pid", "passageid", "did"),
    "score": ("score", "relevance", "rel", "grade", "label", "judgment", "judgement", "relevant"),
}
"""Field of MTEB's qrels -> names of it in other files, without case and separators."""
NAMES = tuple(ROLES)
ADVICE = f"Name the columns {', '.join(NAMES)} (also query_id, doc_id, relevance)"
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
                judged.setdefault(fields[0], {})[fields[1]] = _grade(fields[2])
    return {query_id: _best_first(documents) for query_id, documents in judged.items()}


def _rows(path: str, diagnostics: Diagnostics) -> Iterator[Row]:
    is_table = path.endswith(".parquet") or is_dataset(path)
    if is_table or path.removesuffix(".gz").endswith((".jsonl", ".json")):
        return _named(read_records(path, diagnostics), is_table=is_table)
    return _text_rows(path, diagnostics)


def _names_of(columns: Iterable[str]) -> list[str]:
    """Return the columns of query, document and grade that are there, by `ROLES`."""
    plain = {re.sub("[^a-z0-9]", "", column.lower()): column for column in columns}
    of_roles = ([plain[name] for name in names if name in plain] for names in ROLES.values())
    return [names[0] if names else "" for names in of_roles]


def _text_rows(path: str, diagnostics: Diagnostics) -> Iterator[Row]:
    """Yield the rows of TREC and BEIR, or by the names in a header."""
    header: list[str] = []
    for position, (number, line) in enumerate(read_lines(path, diagnostics)):
        fields = _fields(line)
        if position == 0 and all(_names_of(_cells(line))):
            header = _cells(line)
        elif position == 0 and fields[-1].isidentifier():
            yield (
                number,
                f"a header without known names of all three columns: {', '.join(_cells(line))}. {ADVICE}",
            )
        elif header:
            row = dict(zip(header, _cells(line), strict=False))
            is_whole = len(_cells(line)) == len(header)
            yield number, [row[name] for name in _names_of(header)] if is_whole else _wrong_columns(line)
        else:
            yield number, fields if len(fields) == 3 else _wrong_columns(line)


def _cells(line: str) -> list[str]:
    """Return the cells of a line between tabs or commas, else its words."""
    separator = "\t" if "\t" in line else ","
    if separator not in line:
        return FIELD.findall(line)
    cells = next(csv.reader([line], delimiter=separator)) if '"' in line else line.split(separator)
    return [cell.strip() for cell in cells]


def _named(records: Iterable[Record], *, is_table: bool) -> Iterator[Row]:
    """Yield the rows of MTEB; scores such as 1.0 are whole numbers there. A table without a column is one error."""
    for record in records:
        columns = _names_of(record.values)
        missing = [name for name, column in zip(NAMES, columns, strict=True) if not column]
        if missing:
            yield record.line, f"no {', '.join(missing)}; it has {', '.join(record.values)}. {ADVICE}"
            if is_table:
                return
            continue
        ids, score = [identifier(record.values[name]) for name in columns[:2]], record.values[columns[2]]
        wrong = [name for name, value in zip(columns, ids, strict=False) if value is None]
        if wrong:
            yield record.line, f"{wrong[0]} is {shown(record.values[wrong[0]])}; it must be an id"
        else:
            yield record.line, [str(ids[0]), str(ids[1]), str(score)]


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
    if earlier is not None and earlier != _grade(score):
        return (
            f"query {query_id!r}, document {doc_id!r}: score {score} here, and {earlier} in an earlier line"
        )
    return ""


def _best_first(documents: dict[str, int]) -> tuple[str, ...]:
    relevant = [doc_id for doc_id, score in documents.items() if score > 0]
    return tuple(sorted(relevant, key=lambda doc_id: -documents[doc_id]))


def _grade(score: str) -> int:
    return int(score.partition(".")[0])
