"""Requests that must exist, their cached responses, and what follows of each response alone: scores and labels."""

from __future__ import annotations

import collections
import functools
import itertools
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import polars as pl
from oracle.inputs import World, normal, tokens

NO_PASSAGES, GOLD = "no_passages", "gold_passages"
REFERENCES = (NO_PASSAGES, GOLD)
OF_READER = ("erag", "erag_facts")
ANSWER = "answer"
GRADED, JUDGED = "llm_relevance", "relevance"
"""The annotator that asks the judge for grades, and the kind of its requests."""
SPANS = ("exact_match", "match")
Labels = dict[tuple[str, str], float | None]
"""(question, document) -> label, None: not judged."""
Group = tuple[str, str, str]
"""Reader, score, annotator."""
Row = tuple[Any, ...]


class Outside(NamedTuple):
    """An annotator from outside that labels a document by the reader's output for it."""

    applies: Callable[[str], bool]
    label: Callable[[str], float]


class Readings:
    """The responses of a comparison, by question and documents."""

    def __init__(self, world: World, out: pathlib.Path, outside: Mapping[str, Outside]) -> None:
        self.world, self.outside = world, outside
        self.requests = pl.read_parquet(out / "compare" / "requests" / "*.parquet").to_dicts()
        cache, stored = pathlib.Path(world.config["cache_dir"]) / "responses", {}
        for model in {row["model"] for row in self.requests}:
            for row in pl.read_parquet(cache / model / "*.parquet").iter_rows(named=True):
                stored[row["model"], row["question_key"], row["passages_key"]] = row
        self.responses: dict[tuple[str, tuple[str, ...]], dict[str, Any]] = {}
        self.grades: dict[tuple[str, str], str] = {}
        # the further answers to a list: kind, question, documents -> output
        self.again: dict[tuple[str, str, tuple[str, ...]], Any] = {}
        self.kinds = [f"{ANSWER}_{repeat}" for repeat in range(2, world.config["repeats"] + 1)]
        self.reader: dict[str, str] = {}
        # model -> its responses, each once
        self.used = collections.defaultdict[str, dict[Row, dict[str, Any]]](dict)
        for row in self.requests:
            key = row["question_key"], row["passages_key"]
            response = stored[row["model"], *key]
            self.used[row["model"]][key] = response
            if row["kind"].startswith(f"{ANSWER}_"):
                self.again[row["kind"], row["query_id"], tuple(row["doc_ids"])] = response["output"]
            elif row["kind"] == JUDGED:
                self.grades[row["query_id"], row["doc_ids"][0]] = response["output"]
            else:
                self.responses[row["query_id"], tuple(row["doc_ids"])] = response
                self.reader[row["query_id"]] = row["reader"]
        self.by_reader = [*OF_READER, *outside]
        is_read = not {*self.by_reader}.isdisjoint(world.config["annotators"])
        self.singles = [pair for pair in world.pairs if is_read and pair[0] in world.read]
        self.fact_labels = self._fact_labels()
        self.labels = self._labels()
        self.lists = self._lists()

    def output(self, query_id: str, doc_ids: list[str]) -> Any:
        return self.responses[query_id, tuple(doc_ids)]["output"]

    def score(self, query_id: str, doc_ids: list[str]) -> float | None:
        question = self.world.questions[query_id]
        return score(question.score, self.output(query_id, doc_ids), tuple(question.answers))

    def answers(self, query_id: str, doc_ids: list[str]) -> list[tuple[Any, float | None]]:
        """All answers to a list, and their scores."""
        again = [self.again[kind, query_id, tuple(doc_ids)] for kind in self.kinds]
        question = self.world.questions[query_id]
        outputs = [self.output(query_id, doc_ids), *again]
        return [(one, score(question.score, one, tuple(question.answers))) for one in outputs]

    def utility(self, query_id: str, doc_ids: list[str]) -> float | None:
        """The mean score of the answers to a list."""
        judged = [value for _, value in self.answers(query_id, doc_ids) if value is not None]
        return math.fsum(judged) / len(judged) if judged else None

    def is_enough(self, value: float | None) -> bool | None:
        return None if value is None else value >= self.world.least

    def names(self, query_id: str) -> tuple[str, str]:
        return self.reader[query_id], self.world.questions[query_id].score

    def _lists(self) -> list[tuple[str, str, int, list[str]]]:
        """Run, question, depth and documents of every list that is scored, those of the references too."""
        world, found = self.world, []
        for name in world.read:
            for run, depth in itertools.product(world.runs, world.end_to_end_depths):
                found.append((run, name, depth, world.documents(run, name, depth)))
            found.append((NO_PASSAGES, name, 0, []))
            gold = world.gold(name)[: world.depth]
            found += [(GOLD, name, world.depth, gold)] if gold else []
        return found

    def expected_requests(self) -> set[tuple[str, str, tuple[str, ...]]]:
        """The (kind, question, documents) of all requests that the job must make."""
        world, found = self.world, {("answer", name, tuple(docs)) for _, name, _, docs in self.lists}
        found |= {(kind, name, tuple(docs)) for _, name, _, docs in self.lists for kind in self.kinds}
        found |= {("answer", name, (doc_id,)) for name, doc_id in self.singles}
        if GRADED in world.config["annotators"]:
            found |= {(JUDGED, name, (doc_id,)) for name, doc_id in world.judged_pairs}
        if world.config["credits"]:
            for name, run in itertools.product(world.read, world.runs):
                documents = world.documents(run, name, max(world.end_to_end_depths))
                for size in range(len(documents) + 1):
                    found |= {("answer", name, some) for some in itertools.combinations(documents, size)}
        return found

    def _labels(self) -> dict[Group, tuple[list[str], Labels]]:
        """The questions that each annotator was asked about, and its labels."""
        world, groups = self.world, dict[Group, list[str]]()
        for name, one in world.questions.items():
            of_kind = {
                "erag": True,
                "erag_facts": bool(one.facts),
                "provenance": bool(one.pages),
                GRADED: True,
            }
            of_kind |= {annotator: of.applies(name) for annotator, of in self.outside.items()}
            for annotator in world.config["annotators"]:
                is_asked = annotator not in self.by_reader or name in world.read
                if of_kind.get(annotator, one.score in SPANS) and is_asked:
                    key = self.names(name) if annotator in OF_READER else ("", "")
                    groups.setdefault((*key, annotator), []).append(name)
        labels = {
            key: {pair: self._label(key[2], *pair) for pair in world.pairs if pair[0] in {*ids}}
            for key, ids in groups.items()
        }
        # where the judge is not asked about a question, its labels are null
        asked = {key: world.judged if key[2] == GRADED else ids for key, ids in groups.items()}
        return {key: (asked[key], labels[key]) for key in groups}

    def _fact_labels(self) -> dict[tuple[str, str], list[float | None]]:
        """(question, document) -> the score of the output against the forms of each fact."""
        return {
            (name, doc_id): [
                score(one.score, self.output(name, [doc_id]), tuple(forms)) for forms in one.facts
            ]
            for name, doc_id in self.world.pairs
            if (one := self.world.questions[name]).facts and name in self.world.read
        }

    def _label(self, annotator: str, name: str, doc_id: str) -> float | None:
        world = self.world
        question, passage = world.questions[name], world.corpus[doc_id]
        if annotator in self.outside:
            output = self.output(name, [doc_id])
            return None if output is None else self.outside[annotator].label(output)
        answers = [one for one in question.answers if any(map(str.isalnum, one))]
        match annotator:
            case "erag":
                return self.score(name, [doc_id])
            case "erag_facts":
                values = self.fact_labels[name, doc_id]
                return None if None in values else math.fsum(values) / len(values)  # type: ignore[arg-type]
            case "llm_relevance":
                # a grade of 2 or 3 is relevant
                is_asked = (name, doc_id) in world.judged_pairs
                return float(int(self.grades[name, doc_id]) >= 2) if is_asked else None
            case "provenance":
                return None if passage["page_id"] is None else float(passage["page_id"] in question.pages)
            case "contains_answer_kilt":
                return float(any(normal(one) and normal(one) in normal(passage["text"]) for one in answers))
        return float(contains_dpr(passage["text"], answers))


def contains_dpr(text: str, answers: list[str]) -> bool:
    """Whether the tokens of an answer that has a letter or a number are consecutive in a text."""
    words, wanted = tokens(text), [tokens(one) for one in answers if any(map(str.isalnum, one))]
    return any(words[i : i + len(one)] == one for one in wanted if one for i in range(len(words)))


@functools.cache
def score(name: str, output: str | None, answers: tuple[str, ...]) -> float | None:
    """The score of an output; the best gold answer counts, and those that are nothing once normalised never match."""
    if output is None:
        return None
    text = output.strip()
    usable = [one.strip() for one in answers if (one if name == "accuracy" else normal(one))]
    if not text or not usable:
        return 0.0
    if name == "accuracy":
        return float(text in usable)
    if name == "exact_match":
        return float(any(normal(text) == normal(one) for one in usable))
    return max(_f1(normal(text).split(), normal(one).split()) for one in usable)


def _f1(words: list[str], gold: list[str]) -> float:
    common = sum((collections.Counter(words) & collections.Counter(gold)).values())
    return 2 * common / (len(words) + len(gold)) if common else 0.0


def input_tables(readings: Readings) -> dict[str, list[Row]]:
    """The rows of the tables of inputs, labels and outputs."""
    world, lists, names = readings.world, readings.lists, readings.names
    reader, questions = readings.reader, world.questions.values()
    paths = [one for one in dict.fromkeys(world.config["slices"]) if one != "known"]
    ranked = [(run, name, rows) for run, of_run in world.runs.items() for name, rows in of_run.items()]
    return {
        "queries": [(one.query_id, one.dataset, one.question, one.answers, one.score) for one in questions],
        "provenance": [
            (one.query_id, at, page, None) for one in questions for at, page in enumerate(one.pages, 1)
        ],
        "corpus": [(name, one["page_id"], one["title"], one["text"]) for name, one in world.corpus.items()],
        "runs": [(run, name, rank, *row) for run, name, rows in ranked for rank, row in enumerate(rows, 1)],
        "gold": [
            (name, at, doc_id) for name in world.questions for at, doc_id in enumerate(world.gold(name), 1)
        ],
        "labels": [
            (*key, *one, label) for key, (_, found) in readings.labels.items() for one, label in found.items()
        ],
        "document_outputs": [
            (reader[name], name, doc, readings.output(name, [doc]))
            for name, doc in world.pairs
            if (name, (doc,)) in readings.responses
        ],
        "facts": [(one.query_id, at, forms) for one in questions for at, forms in enumerate(one.facts, 1)],
        "fact_labels": [
            (*names(one[0]), *one, at, label)
            for one, labels in readings.fact_labels.items()
            for at, label in enumerate(labels, 1)
        ],
        "slices": [(one.query_id, path, one.at(path)) for one in questions for path in paths],
        "utility": [
            (*names(one), run, one, depth, readings.utility(one, docs)) for run, one, depth, docs in lists
        ],
        "repeats": [
            (*names(one), run, one, depth, repeat, *row)
            for run, one, depth, docs in lists
            for repeat, row in enumerate(readings.answers(one, docs), 1)
            if readings.kinds
        ],
        "clusters": [(name, world.cluster(name)) for name in world.questions],
        "list_outputs": [
            (reader[one], run, one, depth, readings.output(one, docs)) for run, one, depth, docs in lists
        ],
        "list_tokens": [
            (reader[one], run, one, depth, readings.responses[one, tuple(docs)]["num_prompt_tokens"])
            for run, one, depth, docs in lists
        ],
    }
