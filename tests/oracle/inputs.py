"""Original files -> questions, passages and ranked lists."""

import collections
import functools
import itertools
import json
import pathlib
import re
import string
import unicodedata
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import regex
import xxhash

SCORES = {"fever": "accuracy", "wow": "token_f1"}
"""Dataset -> its score; of all others exact match."""
FILE_NAME = re.compile(r"(\w+)-(?:dev|train|test)-kilt\.jsonl$")


class Question(NamedTuple):
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
        return [*dict.fromkeys(itertools.chain(*self.page_sets))]

    def at(self, path: str) -> str:
        return str(functools.reduce(lambda record, key: record[key], path.split("."), self.record))


class World:
    """The inputs of a comparison."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config, self.depth, of_judge = config, config["depth"], config["judge"]
        records = [(path, record) for path in config["queries"] for record in _json_lines(path)]
        self.questions = {
            record["id"]: _question(record, path, config)
            for path, record in sorted(records, key=lambda item: item[1]["id"])
        }
        # run -> question -> (document, score), best first, down to the depth
        self.runs = {name: _run(path, self.depth, self.questions) for name, path in config["runs"].items()}
        self.pairs = sorted(self._pairs([*self.questions], self.depth))
        wanted = {doc_id for _, doc_id in self.pairs}
        pages = {page for one in self.questions.values() for page in one.pages}
        passages = [passage for path in config["passages"] for passage in _passages(path)]
        # documents of the runs and passages of gold pages, in the order of the files
        self.corpus = {
            one["doc_id"]: one for one in passages if one["doc_id"] in wanted or one["page_id"] in pages
        }
        self.end_to_end_depths = config["end_to_end_depths"] or [self.depth]
        self.depths = sorted({*self.end_to_end_depths, self.depth})
        self.least = 0.5 if config["threshold"] is None else config["threshold"]
        self.read = self._sample(config["reader_queries"])
        self.judged = self._sample(of_judge["num_queries"])
        self.judged_pairs = self._pairs(self.judged, of_judge["depth"] or self.depth)

    @property
    def datasets(self) -> list[str]:
        return sorted({one.dataset for one in self.questions.values()})

    def _pairs(self, names: list[str], depth: int) -> set[tuple[str, str]]:
        return {
            (name, one) for run in self.runs for name in names for one in self.documents(run, name, depth)
        }

    def _sample(self, count: int | None) -> list[str]:
        """The questions that a model is asked about: of each dataset those with the lowest hashes."""
        seed = self.config["seed"]
        hashes = {name: xxhash.xxh3_64_intdigest(f"{seed}:{name}".encode()) for name in self.questions}
        chosen = (sorted(self.ids(dataset), key=hashes.__getitem__)[:count] for dataset in self.datasets)
        return [name for ids in chosen for name in sorted(ids)]

    def ids(self, dataset: str) -> list[str]:
        return sorted(name for name, one in self.questions.items() if one.dataset == dataset)

    def cluster(self, query_id: str) -> str | None:
        value = self.questions[query_id].record.get(self.config["clusters"])
        return None if value is None else str(value)

    def in_clusters(self, dataset: str) -> tuple[list[str], list[int] | None]:
        """A dataset's questions, those of the largest cluster first, and each one's number; None: each by itself."""
        ids, members = self.ids(dataset), collections.defaultdict[Any, list[str]](list)
        for name in ids:
            members[self.cluster(name) or (name,)].append(name)
        if len(members) == len(ids):
            return ids, None
        groups = sorted(members.values(), key=len, reverse=True)
        return [*itertools.chain(*groups)], [at for at, group in enumerate(groups) for _ in group]

    def documents(self, run: str, query_id: str, depth: int | None = None) -> list[str]:
        return [doc_id for doc_id, _ in self.runs[run].get(query_id, [])[:depth]]

    def gold(self, query_id: str) -> list[str]:
        """Passages of the gold pages, in the order of the corpus, those that contain an answer first."""
        question = self.questions[query_id]
        answers = [one for one in map(normal, question.answers) if any(map(str.isalnum, one))]
        texts = {
            name: normal(one["text"]) for name, one in self.corpus.items() if one["page_id"] in question.pages
        }
        return sorted(texts, key=lambda name: not any(one in texts[name] for one in answers))


@functools.cache
def normal(text: str) -> str:
    """KILT's normalisation (``kilt/eval_downstream.py``)."""
    kept = "".join(one for one in text.lower() if one not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


@functools.cache
def tokens(text: str) -> list[str]:
    """DPR's tokens (``qa_validation.py``), for scripts with spaces."""
    return regex.findall(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]", unicodedata.normalize("NFD", text).lower())


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
    lists = collections.defaultdict[str, list[tuple[Any, ...]]](list)
    if path.endswith(".parquet"):
        for row in pl.read_parquet(path).iter_rows(named=True):
            lists[row["query_id"]].append((-row["rank"], row["doc_id"], row.get("score")))
    else:
        for line in pathlib.Path(path).read_text().splitlines():
            query_id, _, doc_id, _, score, *_ = line.split()
            lists[query_id].append((np.float32(score), doc_id, float(score)))
    # equal scores: the larger id first, as trec_eval does
    ordered = {name: sorted(lists[name], key=lambda row: row[:2], reverse=True)[:depth] for name in lists}
    return {name: [row[1:] for row in rows] for name, rows in ordered.items() if name in questions}
