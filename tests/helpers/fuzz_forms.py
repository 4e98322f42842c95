"""Small valid files of every form, and readers of each that check the tables they get."""

import io
import json
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import polars as pl
from fuzzing import as_json, as_lines, check_messages
from input_files import SEA, article, kilt, predicted, qa

from erag_ray.data.datasets.qrels import read_qrels
from erag_ray.data.datasets.queries import load_queries
from erag_ray.data.datasets.questions import read_triviaqa
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.passages.load import load_passages
from erag_ray.data.passages.pages import read_pages
from erag_ray.data.runs.load import load_run
from erag_ray.extras.train.data.reading_comprehension import load_reading_comprehension
from erag_ray.store import schemas

Rows = list[Any]
Read = Callable[[pathlib.Path, Diagnostics], Rows]


def read_questions(path: pathlib.Path, diagnostics: Diagnostics) -> Rows:
    loaded = load_queries(path, diagnostics, dataset="nq")
    if diagnostics.errors:
        return []
    schemas.conform(loaded.queries, schemas.QUERIES)
    schemas.conform(loaded.provenance, schemas.PROVENANCE)
    return loaded.queries.rows()


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


def read_judged(path: pathlib.Path, diagnostics: Diagnostics) -> Rows:
    return sorted(read_qrels([str(path)], diagnostics).items())


QRELS = b"query-id\tcorpus-id\tscore\nb1\td1\t1\nb1\td2\t2\nb1\td3\t0\nb2\td1\t1\nb3\td9\t0\n"


TREC_QRELS = b"b1 0 d1 1\nb1\tQ0\td2  2\nb1 0 d3 -1\n\xc3\xa9 0 d1 1\n"


TRIVIA = {"Data": [SEA, {"QuestionId": "tc_2", "Question": "Which hill?"}]}


def read_trivia(path: pathlib.Path, diagnostics: Diagnostics) -> Rows:
    found = read_triviaqa([str(path)], ["tc_1", "tc_2"], diagnostics)
    pl.DataFrame({"text": [*found.values()]}, schema={"text": pl.String})
    return sorted(found.items())


def read_corpus(path: pathlib.Path, diagnostics: Diagnostics) -> Rows:
    corpus = load_passages(path, diagnostics)
    if not diagnostics.errors:
        schemas.conform(corpus, schemas.CORPUS)
    return corpus.rows()


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
    return entries.rows()


TREC = b"q1 Q0 d1 1 9.5 t\nq1 Q0 d2 2 9.5 t\nq1\tQ0\td3 3 -1e-3 t\n2 Q0 d1 1 4 t\n2 Q0 \xc3\xa9 2 3 t\n"


PREDICTIONS = [
    predicted({"doc_id": "d1", "score": 2}, {"passage_id": 5}, query_id="q1"),
    predicted({"wikipedia_id": "7", "text": "it was"}, {"wikipedia_id": 8, "score": 0.5}, query_id=2),
    predicted(query_id="q4"),
]


def read_all_pages(path: pathlib.Path, diagnostics: Diagnostics) -> Rows:
    rows = [(page.page_id, page.title, *page.paragraphs) for page, _ in read_pages(str(path), diagnostics)]
    assert all(isinstance(text, str) for row in rows for text in row)
    return rows


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
    return loaded.queries.rows()


GIVEN = [
    {"question": "Who?", "title": "One", "context": "Ann did it.", "answers": ["Ann", " Ann", "A."]},
    {"question": "어디?", "context": "여기", "answers": ["여기"]},
]


LINES: dict[str, tuple[str, list[dict[str, Any]], Read]] = {
    "kilt": ("nq-dev-kilt.jsonl", KILT, read_questions),
    "beir": ("queries.jsonl", BEIR, read_questions),
    "plain": ("nq.jsonl", PLAIN, read_questions),
    "passages": ("passages.jsonl", PASSAGES, read_corpus),
    "beir corpus": ("corpus.jsonl.gz", BEIR_CORPUS, read_corpus),
    "predictions": ("dpr.jsonl", PREDICTIONS, read_lists),
    "given": ("squad.jsonl", GIVEN, read_given),
    "kilt pages": ("kilt_knowledgesource.json", KILT_PAGES, read_all_pages),
    "wiki pages": ("wiki.jsonl", WIKI_PAGES, read_all_pages),
}


OBJECTS: dict[str, tuple[str, Any, Read]] = {
    "klue": ("klue.json", KLUE, read_questions),
    "klue pages": ("klue.json", KLUE, read_all_pages),
    "squad": ("squad.json", SQUAD, read_questions),
    "triviaqa": ("web-dev.json", TRIVIA, read_trivia),
}


def as_parquet(columns: dict[str, list[Any]]) -> bytes:
    out = io.BytesIO()
    pl.DataFrame(columns).write_parquet(out)
    return out.getvalue()


PARQUET_RUN = {"query_id": [*"qqp"], "doc_id": [*"aba"], "rank": [1, 2, 1], "score": [2.0, 1.0, 3.0]}
PARQUET: dict[str, tuple[str, dict[str, list[Any]], Read]] = {
    "passages.parquet": (
        "p.parquet",
        {name: [*"abc"] for name in ("doc_id", "page_id", "title", "text")},
        read_corpus,
    ),
    "run.parquet": ("r.parquet", PARQUET_RUN, read_lists),
    "pages.parquet": ("w.parquet", {"title": [*"abc"], "text": [*"abc"]}, read_all_pages),
}


TEXTS: dict[str, tuple[str, bytes, Read]] = {
    **{name: (file, as_lines(records), read) for name, (file, records, read) in LINES.items()},
    **{name: (file, as_json(content).encode(), read) for name, (file, content, read) in OBJECTS.items()},
    **{name: (file, as_parquet(columns), read) for name, (file, columns, read) in PARQUET.items()},
    "klue by hand": ("klue.json", json.dumps(KLUE, indent=1, ensure_ascii=False).encode(), read_questions),
    "trec": ("run.trec", TREC, read_lists),
    "qrels": ("test.tsv", QRELS, read_judged),
    "trec qrels": ("qrels.txt", TREC_QRELS, read_judged),
}


def check(file: str, data: bytes, read: Read) -> tuple[Rows, Diagnostics]:
    """What a reader says of a file with these bytes; its messages must be clean and name the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / file
        path.write_bytes(data)
        diagnostics = Diagnostics()
        rows = read(path, diagnostics)
        check_messages(diagnostics, path)
    return rows, diagnostics
