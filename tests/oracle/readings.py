"""Requests that must exist, their cached responses, and what follows of each response alone: scores and labels."""

import collections
import itertools
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import polars as pl
from oracle.inputs import World, normal, tokens

NO_PASSAGES, GOLD = "no_passages", "gold_passages"
REFERENCES = (NO_PASSAGES, GOLD)
BY_SCORE = ("erag", "erag_facts", "gain", "udcg", "distracting")
BY_READER = ("gold_likelihood", "usable", "udcg_provenance")
"""Annotators whose labels depend on reader and score, or on the reader."""
ANSWER, ABSTAINS, LIKELIHOOD = "answer", "no_response", "gold_likelihood"
OF_JUDGE, JUDGED = ("llm_relevance", "llm_relevance_graded"), "relevance"
"""The annotators that ask the judge, and the kind of their requests."""
ORDERS: dict[str, Callable[[list[str]], list[str]]] = {"reversed": lambda documents: documents[::-1]}
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
        # kind, question, documents -> response, and model -> its responses, each once
        self.responses = dict[Row, dict[str, Any]]()
        self.used = collections.defaultdict[str, dict[Row, dict[str, Any]]](dict)
        for row in self.requests:
            key = row["question_key"], row["passages_key"]
            response = self.used[row["model"]][key] = stored[row["model"], *key]
            self.responses[row["kind"], row["query_id"], *row["doc_ids"]] = response
        self.reader = {row["query_id"]: row["reader"] for row in self.requests if row["kind"] != JUDGED}
        self.kinds = [ANSWER, *(f"{ANSWER}_{number}" for number in range(2, world.config["repeats"] + 1))]
        self.by_reader = [*BY_SCORE, *BY_READER, *outside]
        is_read = not {*self.by_reader}.isdisjoint(world.config["annotators"])
        self.singles = [pair for pair in world.pairs if is_read and pair[0] in world.read]
        # run, question, depth and documents of every list that is scored, those of the references too
        self.lists: list[tuple[str, str, int, list[str]]] = []
        for name in world.read:
            for run, depth in itertools.product(world.runs, world.end_to_end_depths):
                self.lists.append((run, name, depth, world.documents(run, name, depth)))
            self.lists.append((NO_PASSAGES, name, 0, []))
            if gold := world.gold(name)[: world.depth]:
                self.lists.append((GOLD, name, world.depth, gold))
        # run, depth and order -> question -> the score of the changed list
        self.changed = collections.defaultdict[Row, dict[str, float | None]](dict)
        for run, name, depth, documents in self.lists:
            for order in world.config["orders"] if run not in REFERENCES else ():
                self.changed[run, depth, order][name] = self.score(name, ORDERS[order](documents))
        # (question, document) -> the score of the output against the forms of each fact
        self.fact_labels = {
            (name, doc_id): [score(one.score, self.output(name, [doc_id]), forms) for forms in one.facts]
            for name, doc_id in world.pairs
            if (one := world.questions[name]).facts and name in world.read
        }
        self.labels = self._labels()

    def output(self, query_id: str, doc_ids: list[str], kind: str = ANSWER) -> Any:
        return self.responses[kind, query_id, *doc_ids]["output"]

    def score(self, query_id: str, doc_ids: list[str], kind: str = ANSWER) -> float | None:
        question = self.world.questions[query_id]
        return score(question.score, self.output(query_id, doc_ids, kind), question.answers)

    def scores(self, query_id: str, doc_ids: list[str]) -> list[float | None]:
        """The score of each answer to a list."""
        return [self.score(query_id, doc_ids, kind) for kind in self.kinds]

    def utility(self, query_id: str, doc_ids: list[str]) -> float | None:
        """The mean score of the answers to a list."""
        judged = [one for one in self.scores(query_id, doc_ids) if one is not None]
        return math.fsum(judged) / len(judged) if judged else None

    def is_enough(self, value: float | None) -> bool | None:
        return None if value is None else value >= self.world.least

    def suffices(self, query_id: str, doc_ids: list[str]) -> bool | None:
        return self.is_enough(self.utility(query_id, doc_ids))

    def names(self, query_id: str) -> tuple[str, str]:
        return self.reader[query_id], self.world.questions[query_id].score

    def expected_requests(self) -> set[Row]:
        """The kind, question and documents of all requests that the job must make."""
        world = self.world
        found: set[Row] = {(kind, name, *docs) for _, name, _, docs in self.lists for kind in self.kinds}
        found |= {(ANSWER, *pair) for pair in self.singles}
        kinds = {LIKELIHOOD: LIKELIHOOD} | dict.fromkeys(("usable", "udcg", "distracting"), ABSTAINS)
        for kind in {kinds[one] for one in world.config["annotators"] if one in kinds}:
            found |= {(kind, *pair) for pair in self.singles}
        if not {*OF_JUDGE}.isdisjoint(world.config["annotators"]):
            found |= {(JUDGED, *pair) for pair in world.judged_pairs}
        for run, name, _, documents in self.lists if world.config["orders"] else ():
            found |= {(ANSWER, name, *documents[::-1])} if run not in REFERENCES else set()
        if world.config["credits"]:
            for name, run in itertools.product(world.read, world.runs):
                documents = world.documents(run, name, max(world.end_to_end_depths))
                for size in range(len(documents) + 1):
                    found |= {(ANSWER, name, *some) for some in itertools.combinations(documents, size)}
        return found

    def _labels(self) -> dict[Group, tuple[list[str], Labels]]:
        """The questions that each annotator was asked about, and its labels."""
        world, groups = self.world, collections.defaultdict[Group, list[str]](list)
        for name, one in world.questions.items():
            applies: dict[str, Any] = dict.fromkeys((*BY_SCORE, *BY_READER, *OF_JUDGE), True)
            applies |= {"erag_facts": one.facts, "provenance": one.pages, "udcg_provenance": one.pages}
            applies |= {annotator: of.applies(name) for annotator, of in self.outside.items()}
            for annotator in world.config["annotators"]:
                is_asked = annotator not in self.by_reader or name in world.read
                if applies.get(annotator, one.score in SPANS) and is_asked:
                    reader, of_score = self.names(name) if annotator in self.by_reader else ("", "")
                    key = (
                        "" if annotator in self.outside else reader,
                        of_score if annotator in BY_SCORE else "",
                    )
                    groups[*key, annotator].append(name)
        labels = dict[Group, tuple[list[str], Labels]]()
        for key, ids in groups.items():
            of_pairs = {pair: self._label(key[2], *pair) for pair in world.pairs if pair[0] in {*ids}}
            # where the judge is not asked about a question, its labels are null
            labels[key] = world.judged if key[2] in OF_JUDGE else ids, of_pairs
        return labels

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
            case "gain":
                both = self.score(name, [doc_id]), self.score(name, [])
                return None if None in both else both[0] - both[1]  # type: ignore[operator]
            case "gold_likelihood":
                row = self.responses[LIKELIHOOD, name, doc_id]
                pairs = zip(row["logprobs"], row["num_answer_tokens"], strict=True)
                return math.exp(max(total / count for total, count in pairs))
            case "usable":
                logprobs = self.responses[ABSTAINS, name, doc_id]["logprobs"]
                return 1 - min(1.0, math.fsum(map(math.exp, logprobs)))
            case "udcg" | "udcg_provenance" | "distracting":
                relevance = "provenance" if annotator == "udcg_provenance" else "erag"
                is_relevant = self.is_enough(self._label(relevance, name, doc_id))
                usable = self._label("usable", name, doc_id) or 0.0
                if is_relevant is None:
                    return None
                if annotator == "distracting":
                    return float(not is_relevant and usable > 0.8)
                return usable if is_relevant else -usable / 3
            case "llm_relevance" | "llm_relevance_graded" if (name, doc_id) not in world.judged_pairs:
                return None
            case "llm_relevance":
                # a grade of 2 or 3 is relevant, or yes at least as likely as no
                least = 0.5 if self.output(name, [doc_id], JUDGED) is None else 2 / 3
                return float((self._label("llm_relevance_graded", name, doc_id) or 0.0) >= least - 1e-9)
            case "llm_relevance_graded":
                row = self.responses[JUDGED, name, doc_id]
                if row["output"] is not None:
                    return int(row["output"]) / 3
                half = len(row["logprobs"]) // 2
                yes, no = (
                    sum(map(math.exp, part)) for part in (row["logprobs"][:half], row["logprobs"][half:])
                )
                return yes / (yes + no)
            case "provenance":
                return None if passage["page_id"] is None else float(passage["page_id"] in question.pages)
            case "contains_answer_kilt":
                return float(any(normal(one) and normal(one) in normal(passage["text"]) for one in answers))
        return float(contains_dpr(passage["text"], answers))


def contains_dpr(text: str, answers: list[str]) -> bool:
    """Whether the tokens of an answer that has a letter or a number are consecutive in a text."""
    words, wanted = tokens(text), [tokens(one) for one in answers if any(map(str.isalnum, one))]
    return any(words[i : i + len(one)] == one for one in wanted if one for i in range(len(words)))


def score(name: str, output: str | None, answers: list[str]) -> float | None:
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
    world, tables = readings.world, collections.defaultdict[str, list[Row]](list)
    paths = [one for one in dict.fromkeys(world.config["slices"]) if one != "known"]
    for name, one in world.questions.items():
        tables["queries"].append((name, one.dataset, one.question, one.answers, one.score))
        tables["provenance"] += [(name, at, page, None) for at, page in enumerate(one.pages, 1)]
        tables["gold"] += [(name, at, doc_id) for at, doc_id in enumerate(world.gold(name), 1)]
        tables["facts"] += [(name, at, forms) for at, forms in enumerate(one.facts, 1)]
        tables["slices"] += [(name, path, one.at(path)) for path in paths]
        tables["clusters"].append((name, world.cluster(name)))
    for doc_id, passage in world.corpus.items():
        tables["corpus"].append((doc_id, passage["page_id"], passage["title"], passage["text"]))
    for run, lists in world.runs.items():
        for name, rows in lists.items():
            tables["runs"] += [(run, name, rank, *row) for rank, row in enumerate(rows, 1)]
    for key, (_, labels) in readings.labels.items():
        tables["labels"] += [(*key, *pair, label) for pair, label in labels.items()]
    for pair, of_facts in readings.fact_labels.items():
        names = (*readings.names(pair[0]), *pair)
        tables["fact_labels"] += [(*names, at, label) for at, label in enumerate(of_facts, 1)]
    for name, doc_id in world.pairs:
        if (ANSWER, name, doc_id) in readings.responses:
            row = readings.reader[name], name, doc_id, readings.output(name, [doc_id])
            tables["document_outputs"].append(row)
    for (run, depth, order), scores in readings.changed.items():
        for name, value in scores.items():
            tables["order_utility"].append((*readings.names(name), run, name, depth, order, value))
    for run, name, depth, docs in readings.lists:
        (reader, of_score), of_list = readings.names(name), (run, name, depth)
        num_tokens = readings.responses[ANSWER, name, *docs]["num_prompt_tokens"]
        tables["list_outputs"].append((reader, *of_list, readings.output(name, docs)))
        tables["list_tokens"].append((reader, *of_list, num_tokens))
        tables["utility"].append((reader, of_score, *of_list, readings.utility(name, docs)))
        for repeat, kind in enumerate(readings.kinds, 1) if len(readings.kinds) > 1 else ():
            answer = readings.output(name, docs, kind), readings.score(name, docs, kind)
            tables["repeats"].append((reader, of_score, *of_list, repeat, *answer))
    return tables
