"""Gold passages from qrels files in the format of TREC, BEIR or MTEB.

TREC: ``query 0 document grade``, separated by white space. BEIR: ``query-id <tab> corpus-id <tab> score``, with or
without a header. MTEB: JSON Lines, Parquet or a dataset (``hf:NAME:SPLIT``) with the fields query-id, corpus-id, score.
A header, fields and columns may have other names of `ROLES`, in any order.
"""

import csv
import functools
import re
from collections.abc import Iterator

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.ids import identifier, plain_key, shown
from erag_ray.data.files.jsonl import FIELD, Record, read_lines
from erag_ray.data.files.records import read_records
from erag_ray.store.huggingface import is_dataset

# at most the digits of a 64-bit number; int() would also accept digits of other scripts and 1_000
_WHOLE = re.compile(r"([+-]?[0-9]{1,18})(?:\.0+)?")
ROLES = {
    "query-id": ("queryid", "qid", "query", "questionid", "topic", "topicid"),
    "corpus-id": ("corpusid", "docno", "docid", "document", "documentid", "doc", "pid", "passageid", "did"),
    "score": ("score", "relevance", "rel", "grade", "label", "judgment", "judgement", "relevant"),
}
"""Field of MTEB's qrels -> names of it in other files, without case and separators."""
NAMES = tuple(ROLES)
ADVICE = f"Name the columns {', '.join(NAMES)} (also query_id, doc_id, relevance)"
Qrels = dict[str, tuple[str, ...]]


def read_qrels(paths: list[str], diagnostics: Diagnostics) -> Qrels:
    """Return query -> its documents with grades above 0, best first (empty for a query with only 0)."""
    judged: dict[str, dict[str, int]] = {}
    for path in paths:
        is_table = path.endswith(".parquet") or is_dataset(path)
        is_json = path.removesuffix(".gz").endswith((".jsonl", ".json"))
        for record in read_records(path, diagnostics) if is_table or is_json else _lines(path, diagnostics):
            columns = _names_of(tuple(record.values))
            if "" in columns:
                missing = ", ".join(name for name, column in zip(ROLES, columns, strict=True) if not column)
                record.fault("bad lines", f"no {missing}; it has {', '.join(record.values)}. {ADVICE}")
                if is_table:
                    break
            elif fault := _add(judged, record, *columns):
                record.fault("bad lines", fault)
    grades = sorted({grade for docs in judged.values() for grade in docs.values() if grade > 0})
    if len(grades) > 1:
        diagnostics.warning(
            f"qrels: all of the grades {', '.join(map(str, grades))} count as gold; write 0 for others"
        )
    ordered = {query: sorted(docs, key=lambda doc: -docs[doc]) for query, docs in judged.items()}
    return {query: tuple(doc for doc in docs if judged[query][doc] > 0) for query, docs in ordered.items()}


@functools.lru_cache(1 << 10)
def _names_of(columns: tuple[str, ...]) -> list[str]:
    """Return the columns of query, document and grade, by `ROLES`; "" for one that is not there."""
    plain = {plain_key(column): column for column in columns}
    return [next((plain[name] for name in names if name in plain), "") for names in ROLES.values()]


def _add(judged: dict[str, dict[str, int]], record: Record, query: str, document: str, grade: str) -> str:
    """Add what a record says in these columns, and return what is wrong with it, or ""."""
    for column in (query, document):
        if identifier(record.values[column]) is None:
            return f"{column} is {shown(record.values[column])}; it must be an id"
    query_id, doc_id = (str(identifier(record.values[column])) for column in (query, document))
    spare = [name for name in record.values if name not in (query, document, grade)]
    others = [name for name in spare if _names_of((name,))[2]]
    if any(record.values[name] != record.values[grade] for name in others):
        return f"several grades: {', '.join([grade, *others])}. Keep one column"
    score = str(record.values[grade])
    if not (whole := _WHOLE.fullmatch(score)):
        return f"score {score!r} is not a whole number"
    earlier = judged.setdefault(query_id, {}).setdefault(doc_id, int(whole[1]))
    if earlier != int(whole[1]):
        which = f"query {query_id!r}, document {doc_id!r}"
        return f"{which}: score {score} here, and {earlier} in an earlier line"
    return ""


def _lines(path: str, diagnostics: Diagnostics) -> Iterator[Record]:
    """Yield the rows of TREC and BEIR as those of MTEB, or by the names in a header."""
    header: list[str] = []
    for position, (number, line) in enumerate(read_lines(path, diagnostics)):
        cells, fields = _cells(line), _fields(line)
        record = Record({}, path, number, diagnostics)
        if position == 0 and all(_names_of(tuple(cells))):
            header = cells
        elif position == 0 and fields[-1].isidentifier():
            text = f"a header without known names of all three columns: {', '.join(cells)}. {ADVICE}"
            record.fault("bad lines", text)
        elif len(values := cells if header else fields) == len(names := header or [*ROLES]):
            record.values = dict(zip(names, values, strict=True))
            yield record
        else:
            forms = "query 0 document grade (TREC), or query-id, corpus-id and score between tabs (BEIR)"
            record.fault("bad lines", f"{len(line.split())} columns, not in either known format: {forms}")


def _cells(line: str) -> list[str]:
    """Return the cells of a line between tabs, commas or semicolons, else its words."""
    separator = next((sign for sign in "\t,;" if sign in line), "")
    if not separator or '"' not in line:
        return [cell.strip() for cell in line.split(separator)] if separator else FIELD.findall(line)
    return [cell.strip() for cell in next(csv.reader([line.replace("\r", " ")], delimiter=separator))]


def _fields(line: str) -> list[str]:
    """Return query, document and grade of a TREC line; otherwise the tab-separated columns (the same three in BEIR)."""
    columns = [column.strip() for column in line.split("\t")]
    words = FIELD.findall(line)
    is_beir = len(columns) == 3 and words[-1] == columns[-1]
    return [words[0], *words[2:]] if len(words) == 4 and not is_beir else columns
