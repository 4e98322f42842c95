"""What the loaders must give for each form of file, told in another way; and readers that check them."""

from __future__ import annotations

import gzip
import json
import math
import pathlib
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
from fuzzing import (
    as_json,
    as_lines,
    distinct,
    list_of_objects,
    need,
    objects,
    one_id,
    text_lines,
    text_or_nothing,
    whole,
)
from input_files import SEA, article, kilt, predicted, qa

from erag_ray.data.datasets.qrels import read_qrels
from erag_ray.data.datasets.queries import load_queries
from erag_ray.data.datasets.reading_comprehension import load_reading_comprehension
from erag_ray.data.datasets.triviaqa import read_triviaqa
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.passages.load import load_passages
from erag_ray.data.passages.pages import read_pages
from erag_ray.data.runs.load import load_run
from erag_ray.store import schemas

Rows = list[Any]
Read = Callable[[pathlib.Path, Diagnostics], Rows]
Oracle = Callable[[bytes], Rows]


def kilt_question(record: dict[str, Any]) -> tuple[Any, ...] | None:
    outputs = list_of_objects(record.get("output"))
    given = [output["answer"] for output in outputs if output.get("answer") is not None]
    sources = [source for output in outputs for source in list_of_objects(output.get("provenance"))]
    pages = [
        page_form(one_id(source["wikipedia_id"]))
        for source in sources
        if source.get("wikipedia_id") is not None
    ]
    gold = record.get("gold_doc_ids")
    need(gold is None or gold in ("", {}) or isinstance(gold, list))
    meta = record.get("meta")
    impossible = [record.get("is_impossible"), meta.get("is_impossible") if isinstance(meta, dict) else None]
    return question(
        one_id(record.get("id")),
        text_or_nothing(record.get("input")),
        given,
        distinct(pages),
        distinct([one_id(name) for name in gold or []]),
        impossible=any(one is True for one in impossible),
    )


def page_form(name: str) -> str:
    return " ".join(unicodedata.normalize("NFC", name).replace("_", " ").split())


def question(
    query_id: str, text: Any, answers: Sequence[Any], pages: Rows, gold: Rows, *, impossible: bool = False
) -> tuple[Any, ...] | None:
    need(isinstance(text, str) and all(isinstance(answer, str) for answer in answers))
    if impossible:
        return query_id, None
    kept = distinct([answer.strip() for answer in answers if answer.strip()])
    need(text.strip() and kept)
    return query_id, text, kept, pages, gold


def beir_question(record: dict[str, Any]) -> tuple[Any, ...] | None:
    metadata = record.get("metadata")
    need(metadata is None or metadata in ("", []) or isinstance(metadata, dict))
    return question(one_id(record.get("_id")), record.get("text"), answers_of(metadata or {}), [], [])


def answers_of(holder: dict[str, Any]) -> Rows:
    found: Rows = []
    for value in (holder.get("answer"), holder.get("answers")):
        value = value.get("text") if isinstance(value, dict) else value
        found += value if isinstance(value, list) else [] if value is None else [value]
    return [answer.get("text") if isinstance(answer, dict) else answer for answer in found]


def plain_question(record: dict[str, Any], place: str) -> tuple[Any, ...] | None:
    keys = [key for key in ("id", "query_id", "_id") if key in record]
    ids = [one_id(record[key]) for key in keys if not is_nothing(record[key])]
    need(not keys or (ids and ("id" in keys or len({*ids}) == 1)))
    query_id = ids[0] if keys else place
    impossible = record.get("is_impossible") is True
    return question(query_id, record.get("question"), answers_of(record), [], [], impossible=impossible)


def squad_question(record: dict[str, Any]) -> tuple[Any, ...] | None:
    title = unicodedata.normalize("NFC", text_or_nothing(record.get("title"))).strip()
    need(isinstance(record.get("question"), str))
    return question(
        one_id(record.get("guid") if "guid" in record else record.get("id")),
        record["question"],
        answers_of(record),
        [title] if title else [],
        [],
        impossible=record.get("is_impossible") is True,
    )


def line_question(record: dict[str, Any], place: str) -> tuple[Any, ...] | None:
    """The oracle of the forms in JSON Lines, which are told by the names of their fields."""
    if "question" in record and {"answer", "answers", "answers_all"} & {*record}:
        return plain_question(record, place)
    if "_id" in record and "text" in record:
        return beir_question(record)
    if "input" in record or "output" in record:
        return kilt_question(record)
    need("question" in record)
    return squad_question(record) if "guid" in record else plain_question(record, place)


def questions(read: Sequence[tuple[Any, ...] | None]) -> Rows:
    """The questions that are possible; ids must not repeat."""
    ids = [one[0] for one in read if one]
    need(len(ids) == len(set(ids)) > 0)
    return [one for one in read if one and len(one) > 2]


def squad_records(data: bytes) -> list[dict[str, Any]]:
    found = []
    content = whole(json.loads(plain(data)))
    for one in content["data"]:
        about = {key: value for key, value in one.items() if key != "paragraphs"}
        for paragraph in list_of_objects(one.get("paragraphs")):
            found += [{**about, **asked} for asked in list_of_objects(paragraph.get("qas"))]
    return found


def plain(data: bytes) -> bytes:
    """The bytes under gzip, if they are."""
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def read_questions(path: pathlib.Path, diagnostics: Diagnostics) -> Rows:
    loaded = load_queries(path, diagnostics, dataset="nq")
    if diagnostics.errors:
        return []
    schemas.conform(loaded.queries, schemas.QUERIES)
    schemas.conform(loaded.provenance, schemas.PROVENANCE)
    pages = listed_by_query(loaded.provenance.drop_nulls("page_id"), "page_id")
    gold = listed_by_query(loaded.provenance.drop_nulls("doc_id"), "doc_id")
    return [
        (
            row["query_id"],
            row["question"],
            row["answers"],
            pages.get(row["query_id"], []),
            gold.get(row["query_id"], []),
        )
        for row in loaded.queries.to_dicts()
    ]


def listed_by_query(table: pl.DataFrame, column: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for query_id, value in table.select("query_id", column).iter_rows():
        found.setdefault(query_id, []).append(value)
    return found


EVIDENCE = {"wikipedia_id": "7", "meta": {"evidence_span": ["Ann built it"]}}
ANN = [{"answer": "Ann", "provenance": [EVIDENCE]}, {"answer": "Ann B."}]
KILT = [
    kilt("q1", "Who built it?", output=ANN, gold_doc_ids=["d1", "d2"]),
    kilt(2, "어디?", output=[{"answer": "여기", "provenance": [{"wikipedia_id": 8}]}], meta={}),
    kilt("q3", "When?", output=[], meta={"is_impossible": True}),
    kilt("q4", "Why?", "so", kilt_task="nq"),
]


BEIR = [
    {"_id": "b1", "text": "Is it?", "metadata": {"answer": "yes", "url": "x"}},
    {"_id": "b2", "text": "How many?", "metadata": {"answers": ["3", "three"]}},
]


MOON = [
    qa("k1", "달", question="무엇?", key="guid"),
    qa("k2", question="왜?", key="guid", is_impossible=True),
]
SUN = article("Sun", qa("k3", "Hot", question="?", key="guid"), context="Hot.")
KLUE = {"version": "1", "data": [article("달", *MOON, context="달은 지구를 돈다.", source="wikipedia"), SUN]}


CAFE = article(
    "Cafe\u0301",
    qa("s1", "Ann", "Ann", question="Who?"),
    qa(2, question="Why?", is_impossible=True),
    context="Ann built it.",
)
UNTITLED = {"paragraphs": article("", qa("s3", "x", question="?"), context="No title.")["paragraphs"]}
SQUAD = {"data": [CAFE, UNTITLED]}


PLAIN = [
    {"question": "Who?", "answers": ["Ann", "Ann "]},
    {"id": "p2", "question": "When?", "answer": "1874", "title": "x"},
    {"query_id": 3, "question": "어디?", "answers": [{"text": "여기"}, "거기"]},
    {"question": "Why?", "answers": [], "is_impossible": True},
]


def squad_oracle(data: bytes) -> Rows:
    return questions([*map(squad_question, squad_records(data))]) if is_squad(data) else lines_oracle(data)


def is_squad(data: bytes) -> bool:
    """Whether this is one JSON object over the whole file; else it is JSON Lines, whatever its name."""
    try:
        return isinstance(json.loads(plain(data))["data"], list)
    except Exception:
        return False


def lines_oracle(data: bytes) -> Rows:
    """Questions without an id stand in nq.jsonl."""
    lines = plain(data).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    numbers = [number for number, line in enumerate(lines, 1) if line.decode().strip()]
    pairs = zip(objects(data), numbers, strict=True)
    return questions([line_question(record, f"nq:{number}") for record, number in pairs])


def read_judged(path: pathlib.Path, diagnostics: Diagnostics) -> Rows:
    return sorted(read_qrels([str(path)], diagnostics).items())


def qrels_oracle(data: bytes) -> Rows:
    judged: dict[str, dict[str, int]] = {}
    for number, line in enumerate(text_lines(data)):
        fields = [field.strip() for field in line.split("\t")]
        words = re.split("[ \t\n\r\f\v]+", line.strip(" \t\n\r\f\v"))
        if len(words) == 4 and not (len(fields) == 3 and fields[-1] == words[-1]):
            fields = [words[0], words[2], words[3]]
        if number == 0 and fields[-1].lower() == "score":
            continue
        need(len(fields) == 3 and fields[0] and fields[1] and re.fullmatch("[+-]?[0-9]+", fields[2]))
        before = judged.setdefault(fields[0], {}).setdefault(fields[1], int(fields[2]))
        need(before == int(fields[2]))
    return [
        (query, tuple(doc for doc, grade in sorted(docs.items(), key=lambda pair: -pair[1]) if grade > 0))
        for query, docs in sorted(judged.items(), key=lambda pair: pair[0])
    ]


QRELS = b"query-id\tcorpus-id\tscore\nb1\td1\t1\nb1\td2\t2\nb1\td3\t0\nb2\td1\t1\nb3\td9\t0\n"


TREC_QRELS = b"b1 0 d1 1\nb1\tQ0\td2  2\nb1 0 d3 -1\n\xc3\xa9 0 d1 1\n"


TRIVIA = {"Data": [SEA, {"QuestionId": "tc_2", "Question": "Which hill?"}]}


def read_trivia(path: pathlib.Path, diagnostics: Diagnostics) -> Rows:
    found = read_triviaqa([str(path)], ["tc_1", "tc_2"], diagnostics)
    pl.DataFrame({"text": [*found.values()]}, schema={"text": pl.String})
    return sorted(found.items())


def trivia_oracle(data: bytes) -> Rows:
    found: dict[str, str] = {}
    content = json.loads(plain(data))
    need(isinstance(content["Data"], list))
    for entry in content["Data"]:
        if isinstance(entry, dict) and entry.get("QuestionId") in ("tc_1", "tc_2"):
            text = entry.get("Question")
            if isinstance(text, str) and text.strip():
                found.setdefault(entry["QuestionId"], text)
    return whole(sorted(found.items()))


def read_corpus(path: pathlib.Path, diagnostics: Diagnostics) -> Rows:
    corpus = load_passages(path, diagnostics)
    if not diagnostics.errors:
        schemas.conform(corpus, schemas.CORPUS)
    return corpus.rows()


def passage(record: dict[str, Any]) -> tuple[Any, ...]:
    ids = {key: one_id(record[key]) for key in ("doc_id", "_id", "id") if not is_nothing(record.get(key))}
    need("doc_id" in ids or len({*ids.values()}) == 1)
    key = next(iter(ids))
    text = next((record[name] for name in ("text", "contents") if not is_missing(record.get(name))), None)
    need(isinstance(text, str))
    doc_id, page = ids[key], record.get("page_id")
    named = one_id(page) if not is_missing(page) else doc_id if key == "_id" else ""
    page_id = page_form(named) or None
    title = record.get("title")
    return doc_id, page_id, "" if is_missing(title) else text_or_nothing(title), text


def passages_oracle(data: bytes) -> Rows:
    found = [passage(record) for record in objects(data)]
    need(len(found) == len({row[0] for row in found}) > 0)
    return found


PASSAGES = [
    {"doc_id": "d1", "page_id": "7", "title": "One", "text": "it was\nbuilt by Ann"},
    {"doc_id": "d2", "page_id": 7, "title": None, "text": "é 달"},
    {"id": "d3", "contents": "third"},
]


BEIR_CORPUS = [
    {"_id": "d1", "title": "One", "text": "it", "metadata": {}},
    {"_id": "d2", "title": "", "text": "that", "metadata": {"url": "x"}},
]


def read_lists(path: pathlib.Path, diagnostics: Diagnostics) -> Rows:
    entries = load_run("r", path, diagnostics)
    if diagnostics.errors:
        return []
    assert entries["run_id"].unique().to_list() == ["r"]
    named = entries.drop_nulls("doc_id").select(schemas.RUNS.columns.names)
    schemas.conform(named, schemas.RUNS)
    return entries.select("query_id", "rank", "doc_id", "score", "page_id", "page_text").rows()


def trec_oracle(data: bytes) -> Rows:
    lists: dict[str, Rows] = {}
    tags: set[str] = set()
    for line in text_lines(data):
        query, _, doc, _, score, *tag = re.split("[ \t\n\r\f\v]+", line.strip(" \t\n\r\f\v"))
        tags.add(" ".join(tag))
        need(tag and len(tags) == 1)
        need(math.isfinite(float(score)) and score.isascii() and "_" not in score)
        lists.setdefault(query, []).append((doc, float(score)))
    need(lists)
    rows: Rows = []
    for query, found in sorted(lists.items(), key=lambda pair: pair[0].encode()):
        need(len(found) == len({doc for doc, _ in found}))
        with np.errstate(over="ignore"):
            found.sort(key=lambda pair: (np.float32(pair[1]), pair[0].encode()), reverse=True)
        rows += [(query, rank, doc, score, None, None) for rank, (doc, score) in enumerate(found, 1)]
    return rows


TREC = b"q1 Q0 d1 1 9.5 t\nq1 Q0 d2 2 9.5 t\nq1\tQ0\td3 3 -1e-3 t\n2 Q0 d1 1 4 t\n2 Q0 \xc3\xa9 2 3 t\n"


def predictions_oracle(data: bytes) -> Rows:
    lists: dict[str, Rows] = {}
    for record in objects(data):
        query = one_id(record.get("id"))
        need(query not in lists and "output" in record)
        outputs = [list_of_objects(one.get("provenance")) for one in list_of_objects(record["output"])]
        need(sum(map(bool, outputs)) <= 1)
        lists[query] = [entry for sources in outputs for entry in map(prediction, sources)]
        named = [entry[0] for entry in lists[query] if entry[0] is not None]
        need(len(named) == len(set(named)))
    ordered = sorted(lists.items(), key=lambda pair: pair[0].encode())
    rows = [
        (query, rank, doc, score, page, text)
        for query, found in ordered
        for rank, (doc, score, page, text) in enumerate(found, 1)
    ]
    need(rows)
    return rows


def prediction(source: dict[str, Any]) -> tuple[Any, ...]:
    """An entry; an id that is null or blank is as if it were not there."""
    given = [source[key] for key in ("doc_id", "passage_id") if not is_nothing(source.get(key))]
    need("doc_id" in source or len({*map(one_id, given)}) < 2)
    doc = one_id(given[0]) if given else None
    score, text = source.get("score"), source.get("text")
    page = page_form(one_id(source.get("wikipedia_id"))) if doc is None else None
    is_number = isinstance(score, int | float) and not isinstance(score, bool)
    return doc, finite(score) if is_number else None, page, text if isinstance(text, str) and page else None


def is_missing(value: Any) -> bool:
    """Null, or the NaN that Python's JSON reads."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def finite(number: float) -> float | None:
    try:
        return float(number) if math.isfinite(number) else None
    except OverflowError:
        return None


PREDICTIONS = [
    predicted({"doc_id": "d1", "score": 2}, {"passage_id": 5}, query_id="q1"),
    predicted({"wikipedia_id": "7", "text": "it was"}, {"wikipedia_id": 8, "score": 0.5}, query_id=2),
    predicted(query_id="q4"),
]


def read_all_pages(path: pathlib.Path, diagnostics: Diagnostics) -> Rows:
    found = [page for page, _ in read_pages(str(path), diagnostics)]
    return [(page.page_id, page.title, page.paragraphs) for page in found]


def pages_oracle(data: bytes) -> Rows:
    return [page_row(record) for record in objects(data)]


def page_row(record: dict[str, Any]) -> tuple[Any, ...]:
    if "wikipedia_id" in record or "wikipedia_title" in record:
        text, title = record.get("text"), record.get("wikipedia_title")
        need(isinstance(title, str) and isinstance(text, list) and all(isinstance(one, str) for one in text))
        return one_id(record.get("wikipedia_id")).strip(), title, tuple(text or ())
    title = unicodedata.normalize("NFC", one_id(record.get("title"))).strip()
    need(isinstance(record.get("text"), str))
    return title, title, (title, *record["text"].split("\n\n"))


def squad_pages_oracle(data: bytes) -> Rows:
    if not is_squad(data):
        return pages_oracle(data)
    pages: dict[str, Rows] = {}
    for one in whole(json.loads(plain(data)))["data"]:
        title = unicodedata.normalize("NFC", one_id(one.get("title"))).strip()
        for paragraph in list_of_objects(one.get("paragraphs")):
            need(isinstance(paragraph.get("context"), str))
            pages.setdefault(title, []).append(paragraph["context"])
    return [(title, title, (title, *distinct(contexts))) for title, contexts in pages.items()]


KILT_PAGES = [
    {
        "wikipedia_id": "12",
        "wikipedia_title": "Long",
        "text": ["Long\n", "w1 w2\n", "Section::::H\n"],
        "categories": "",
    },
    {"wikipedia_id": 14, "wikipedia_title": "Short", "text": ["Short\n", "one\ttwo\n"]},
]


WIKI_PAGES = [
    {"id": "1", "url": "x", "title": "달", "text": "달\n\n달은 돈다"},
    {"title": "Cafe\u0301", "text": "a"},
]


def read_given(path: pathlib.Path, diagnostics: Diagnostics) -> Rows:
    loaded, corpus = load_reading_comprehension([str(path)], diagnostics)
    schemas.conform(loaded.queries, schemas.QUERIES)
    schemas.conform(loaded.provenance, schemas.PROVENANCE)
    schemas.conform(corpus, schemas.CORPUS)
    asked = loaded.queries.select("question", "answers").rows()
    return [(*one, *row) for one, row in zip(asked, corpus.select("title", "text").rows(), strict=True)]


def given_oracle(data: bytes) -> Rows:
    return [given_row(record) for record in objects(data)]


def given_row(record: dict[str, Any]) -> tuple[Any, ...]:
    need(isinstance(record.get("context"), str))
    _, text, kept, *_ = question("x", record.get("question"), answers_of(record), [], []) or ()
    return text, kept, text_or_nothing(record.get("title")), record["context"]


GIVEN = [
    {"question": "Who?", "title": "One", "context": "Ann did it.", "answers": ["Ann", " Ann", "A."]},
    {"question": "어디?", "context": "여기", "answers": ["여기"]},
]


LINES: dict[str, tuple[str, list[dict[str, Any]], Read, Oracle]] = {
    "kilt": ("nq-dev-kilt.jsonl", KILT, read_questions, lines_oracle),
    "beir": ("queries.jsonl", BEIR, read_questions, lines_oracle),
    "plain": ("nq.jsonl", PLAIN, read_questions, lines_oracle),
    "passages": ("passages.jsonl", PASSAGES, read_corpus, passages_oracle),
    "beir corpus": ("corpus.jsonl.gz", BEIR_CORPUS, read_corpus, passages_oracle),
    "predictions": ("dpr.jsonl", PREDICTIONS, read_lists, predictions_oracle),
    "given": ("squad.jsonl", GIVEN, read_given, given_oracle),
    "kilt pages": ("kilt_knowledgesource.json", KILT_PAGES, read_all_pages, pages_oracle),
    "wiki pages": ("wiki.jsonl", WIKI_PAGES, read_all_pages, pages_oracle),
}


OBJECTS: dict[str, tuple[str, Any, Read, Oracle]] = {
    "klue": ("klue.json", KLUE, read_questions, squad_oracle),
    "klue pages": ("klue.json", KLUE, read_all_pages, squad_pages_oracle),
    "squad": ("squad.json", SQUAD, read_questions, squad_oracle),
    "triviaqa": ("web-dev.json", TRIVIA, read_trivia, trivia_oracle),
}


TEXTS: dict[str, tuple[str, bytes, Read, Oracle]] = {
    **{name: (file, as_lines(records), *both) for name, (file, records, *both) in LINES.items()},
    **{name: (file, as_json(content).encode(), *both) for name, (file, content, *both) in OBJECTS.items()},
    "klue by hand": (
        "klue.json",
        json.dumps(KLUE, indent=1, ensure_ascii=False).encode(),
        read_questions,
        squad_oracle,
    ),
    "trec": ("run.trec", TREC, read_lists, trec_oracle),
    "qrels": ("test.tsv", QRELS, read_judged, qrels_oracle),
    "trec qrels": ("qrels.txt", TREC_QRELS, read_judged, qrels_oracle),
}
