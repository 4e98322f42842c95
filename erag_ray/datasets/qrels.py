"""BEIR's qrels (``query-id <tab> corpus-id <tab> score``, with or without a header) -> gold passages."""

from __future__ import annotations

from erag_ray.datasets.findings import Findings
from erag_ray.datasets.lines import read_lines

Qrels = dict[str, tuple[str, ...]]


def read_qrels(paths: list[str], findings: Findings) -> Qrels:
    """Query -> its documents judged above 0, best first; a query judged only 0 is there, without any."""
    judged: dict[str, dict[str, int]] = {}
    for path in paths:
        for position, (number, line) in enumerate(read_lines(path, findings)):
            fields = [field.strip() for field in line.split("\t")]
            if position == 0 and fields[-1].lower() == "score":
                continue
            if fault := _fault(fields):
                findings.problem(f"bad lines in {path}", f"{path}:{number}: {fault}")
            else:
                judged.setdefault(fields[0], {})[fields[1]] = int(fields[2])
    return {query_id: _best_first(documents) for query_id, documents in judged.items()}


def _fault(fields: list[str]) -> str:
    if len(fields) != 3:
        return f"{len(fields)} columns, where query-id, corpus-id and score are expected, separated by tabs"
    if not (fields[0] and fields[1]):
        return "an empty id"
    try:
        int(fields[2])
    except ValueError:
        return f"score {fields[2]!r} is not a whole number"
    return ""


def _best_first(documents: dict[str, int]) -> tuple[str, ...]:
    relevant = [doc_id for doc_id, score in documents.items() if score > 0]
    return tuple(sorted(relevant, key=lambda doc_id: -documents[doc_id]))
