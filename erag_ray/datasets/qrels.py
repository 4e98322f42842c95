"""Gold passages from qrels files in TREC's or BEIR's format.

TREC: ``query 0 document grade``, separated by white space. BEIR: ``query-id <tab> corpus-id <tab> score``, with or
without a header.
"""

from __future__ import annotations

import re

from erag_ray.files import FIELD, Diagnostics, read_lines

# at most the digits of a 64-bit number; int() would also accept digits of other scripts and 1_000
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
Qrels = dict[str, tuple[str, ...]]


def read_qrels(paths: list[str], diagnostics: Diagnostics) -> Qrels:
    """Return query -> its documents with grades above 0, best first (empty for a query with only 0)."""
    judged: dict[str, dict[str, int]] = {}
    for path in paths:
        for position, (number, line) in enumerate(read_lines(path, diagnostics)):
            fields = _fields(line)
            if position == 0 and fields[-1].lower() == "score":
                continue
            if fault := _fault(line, fields, judged):
                diagnostics.error(f"bad lines in {path}", f"{path}:{number}: {fault}")
            else:
                judged.setdefault(fields[0], {})[fields[1]] = int(fields[2])
    return {query_id: _best_first(documents) for query_id, documents in judged.items()}


def _fields(line: str) -> list[str]:
    """Return query, document and grade of a TREC line; otherwise the tab-separated columns (the same three in BEIR)."""
    columns = [column.strip() for column in line.split("\t")]
    words = FIELD.findall(line)
    is_beir = len(columns) == 3 and words[-1] == columns[-1]
    return [words[0], *words[2:]] if len(words) == 4 and not is_beir else columns


def _fault(line: str, fields: list[str], judged: dict[str, dict[str, int]]) -> str:
    if len(fields) != 3:
        forms = "query 0 document grade (TREC), or query-id, corpus-id and score between tabs (BEIR)"
        return f"{len(FIELD.findall(line))} columns, not in either known format: {forms}"
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
