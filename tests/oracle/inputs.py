"""Original files -> questions, passages and ranked lists."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import re
import string
import unicodedata
from typing import Any

import numpy as np
import polars as pl
import xxhash

SCORES = {"fever": "accuracy", "wow": "token_f1"}
"""Dataset -> its score; of all others exact match."""
FILE_NAME = re.compile(r"(\w+)-(?:dev|train|test)-kilt\.jsonl$")


@dataclasses.dataclass
class Question:
    """A question, and its record."""

    query_id: str
    dataset: str
    question: str
    answers: list[str]
    score: str
    page_sets: list[list[str]]
    facts: list[list[str]]
    record: dict[str, Any]

    @property
    def pages(self) -> list[str]:
        return list(dict.fromkeys(page for pages in self.page_sets for page in pages))

    def at(self, path: str) -> str:
        return str(functools.reduce(lambda record, key: record[key], path.split("."), self.record))


@dataclasses.dataclass
class World:
    """The inputs of a comparison."""

    config: dict[str, Any]
    questions: dict[str, Question]
    corpus: dict[str, dict[str, Any]]
    """Documents of the runs and passages of gold pages, in the order of the files."""
    runs: dict[str, dict[str, list[tuple[str, float | None]]]]
    """Run -> question -> (document, score), best first, down to the depth."""

    def __post_init__(self) -> None:
        self.depth = self.config["depth"]
        self.end_to_end_depths = self.config["end_to_end_depths"] or [self.depth]
        self.depths = sorted({*self.end_to_end_depths, self.depth})
        self.datasets = sorted({one.dataset for one in self.questions.values()})
        self.least = 0.5 if self.config["threshold"] is None else self.config["threshold"]
        of_judge = self.config["judge"]
        self.read = self._sample(self.config["reader_queries"])
        self.judged = self._sample(of_judge["num_queries"])
        lists = [(name, self.documents(run, name)) for run in self.runs for name in self.runs[run]]
        self.pairs = sorted({(name, doc_id) for name, documents in lists for doc_id in documents})
        depth = of_judge["depth"] or self.depth
        self.judged_pairs = {
            (name, doc_id)
            for run in self.runs
            for name in self.judged
            for doc_id in self.documents(run, name, depth)
        }

    def _sample(self, count: int | None) -> list[str]:
        """The questions that a model is asked about: of each dataset those with the lowest hashes."""

        def hashed(name: str) -> tuple[int, str]:
            return xxhash.xxh3_64_intdigest(f"{self.config['seed']}:{name}".encode()), name

        chosen = (sorted(self.ids(dataset), key=hashed)[:count] for dataset in self.datasets)
        return [name for ids in chosen for name in sorted(ids)]

    def ids(self, dataset: str) -> list[str]:
        return sorted(name for name, one in self.questions.items() if one.dataset == dataset)

    def cluster(self, query_id: str) -> str | None:
        value = self.questions[query_id].record.get(self.config["clusters"])
        return None if value is None else str(value)

    def in_clusters(self, dataset: str) -> tuple[list[str], list[int] | None]:
        """A dataset's questions, those of the largest cluster first, and each one's number; None: each by itself."""
        members: dict[Any, list[str]] = {}
        for name in self.ids(dataset):
            members.setdefault(self.cluster(name) or (name,), []).append(name)
        if len(members) == len(self.ids(dataset)):
            return self.ids(dataset), None
        groups = [*enumerate(sorted(members.values(), key=len, reverse=True))]
        return [one for _, group in groups for one in group], [at for at, group in groups for _ in group]

    def documents(self, run: str, query_id: str, depth: int | None = None) -> list[str]:
        return [doc_id for doc_id, _ in self.runs[run].get(query_id, [])[:depth]]

    def gold(self, query_id: str) -> list[str]:
        """Passages of the gold pages, in the order of the corpus, those that contain an answer first."""
        question = self.questions[query_id]
        answers, pages = (
            [normal(one) for one in question.answers if any(map(str.isalnum, normal(one)))],
            {*question.pages},
        )
        passages = [name for name, one in self.corpus.items() if one["page_id"] in pages]
        has_none = {
            name: not any(one in normal(self.corpus[name]["text"]) for one in answers) for name in passages
        }
        return sorted(passages, key=has_none.__getitem__)


@functools.cache
def normal(text: str) -> str:
    """KILT's normalisation (``kilt/eval_downstream.py``)."""
    kept = "".join(one for one in text.lower() if one not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


@functools.cache
def tokens(text: str) -> list[str]:
    """DPR's tokens (``qa_validation.py``), for scripts with spaces."""
    found, word = list[str](), ""
    for one in unicodedata.normalize("NFD", text).lower() + " ":
        kind = unicodedata.category(one)[0]
        if kind in "LNM":
            word += one
        else:
            found += [word] * bool(word) + [one] * (kind not in "ZC")
            word = ""
    return found


def read_world(config: dict[str, Any]) -> World:
    records = [(path, record) for path in config["queries"] for record in _json_lines(path)]
    questions = {record["id"]: _question(record, path, config) for path, record in records}
    questions = dict(sorted(questions.items()))
    runs = {name: _run(path, config["depth"], questions) for name, path in config["runs"].items()}
    pages = {page for one in questions.values() for page in one.pages}
    wanted = {doc_id for run in runs.values() for documents in run.values() for doc_id, _ in documents}
    passages = [passage for path in config["passages"] for passage in _passages(path)]
    corpus = {one["doc_id"]: one for one in passages if one["doc_id"] in wanted or one["page_id"] in pages}
    return World(config, questions, corpus, runs)


def _json_lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def _question(record: dict[str, Any], path: str, config: dict[str, Any]) -> Question:
    found, facts = FILE_NAME.search(path), record.get("answers_all", [])
    dataset = config["dataset"] or (found.group(1) if found else "")
    answers = [output["answer"].strip() for output in record["output"] if output.get("answer")]
    sets = [[one["wikipedia_id"] for one in output.get("provenance", [])] for output in record["output"]]
    return Question(
        query_id=record["id"],
        dataset=dataset,
        question=record["input"],
        answers=list(dict.fromkeys(answers)),
        score=config["score"] or SCORES.get(dataset, "exact_match"),
        page_sets=[list(dict.fromkeys(pages)) for pages in sets if pages],
        facts=[list(dict.fromkeys([fact] if isinstance(fact, str) else fact)) for fact in facts],
        record=record,
    )


def _passages(path: str) -> list[dict[str, Any]]:
    if path.endswith(".jsonl"):
        return _json_lines(path)
    files = sorted(pathlib.Path(path).glob("*.parquet"))
    return [row for file in files for row in pl.read_parquet(file).iter_rows(named=True)]


def _run(path: str, depth: int, questions: dict[str, Question]) -> dict[str, list[tuple[str, float | None]]]:
    lists: dict[str, list[tuple[Any, ...]]] = {}
    if path.endswith(".parquet"):
        for row in pl.read_parquet(path).iter_rows(named=True):
            lists.setdefault(row["query_id"], []).append((-row["rank"], row["doc_id"], row.get("score")))
    else:
        for line in pathlib.Path(path).read_text().splitlines():
            query_id, _, doc_id, _, score, *_ = line.split()
            lists.setdefault(query_id, []).append((np.float32(score), doc_id, float(score)))
    # equal scores: the larger id first, as trec_eval does
    ordered = {
        name: [row[1:] for row in sorted(rows, key=lambda row: row[:2])[::-1]] for name, rows in lists.items()
    }
    return {name: rows[:depth] for name, rows in ordered.items() if name in questions}
