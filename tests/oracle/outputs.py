"""OUTPUTS, COMMON_OUTPUTS, REPEAT_SPREADS, the requests and their costs."""

import collections
import itertools
import math
from typing import Any

import numpy as np
from oracle import chance
from oracle.inputs import World, normal
from oracle.lists import END_TO_END
from oracle.readings import ANSWER, REFERENCES, Readings, Row, score

VERDICTS = {"fever": ["SUPPORTS", "REFUTES"]}
LIMITS = {"wow": 150}


def output_tables(readings: Readings) -> dict[str, list[Row]]:
    world = readings.world
    lists = collections.defaultdict[Row, set[Row]](set)
    every = [("single_document", name, 1, [doc_id]) for name, doc_id in readings.singles]
    for run, name, depth, documents in [*every, *readings.lists]:
        kind = run if run in (*REFERENCES, "single_document") else END_TO_END
        key = (world.questions[name].dataset, readings.reader[name], kind, depth)
        lists[key].add((name, *documents))
    of_reader, found, common = world.config["reader"], list[Row](), list[Row]()
    for key, members in lists.items():
        limit = of_reader["max_new_tokens"] or LIMITS.get(key[0], 50)
        responses = ((one[0], readings.responses[ANSWER, *one]) for one in members)
        rows = [(name, one) for name, one in responses if one["output"] is not None]
        if not rows:  # all of them are errors
            continue
        counts = collections.Counter(texts := [one["output"] for _, one in rows])
        numbers = (
            len(texts),
            len(counts),
            sum(not text.strip() for text in texts),
            # a function knows of no limit
            None
            if of_reader["kind"] == "function"
            else sum(one["num_output_tokens"] >= limit for _, one in rows),
            0,
            sum(_is_misspelt(world, name, one["output"]) for name, one in rows),
            sum("\\boxed{" in text or text.startswith('{"') or "[1]" in text for text in texts),
        )
        found.append((*key, *numbers, *_majority(world, key[0])))
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:10]
        common += [(*key, at, text, count, count / len(rows)) for at, (text, count) in enumerate(ordered, 1)]
    costs = list[Row]()
    for model, used in readings.used.items():
        tokens = (sum(one[f"num_{of}_tokens"] for one in used.values()) for of in ("prompt", "output"))
        costs.append(("compare", model, len(used), len(used), *tokens, 0, None))
    return {
        "repeat_spreads": repeat_spreads(readings),
        "compare/outputs": found,
        "compare/common_outputs": common,
        "compare/requests": [(kind, name, docs) for kind, name, *docs in readings.expected_requests()],
        "compare/costs": costs,
    }


def _is_misspelt(world: World, name: str, output: str) -> bool:
    question = world.questions[name]
    answers = [*question.answers, *VERDICTS.get(question.dataset, [])]
    if question.score != "accuracy" or output.strip() in answers:
        return False
    return bool(normal(output)) and normal(output) in [normal(one) for one in answers]


def _majority(world: World, dataset: str) -> Row:
    """The most common gold answer, the share of questions with it, and its mean score."""
    questions = [one for one in world.questions.values() if one.dataset == dataset]
    counts = collections.Counter(answer for one in questions for answer in {*one.answers})
    answer, count = min(counts.items(), key=lambda item: (-item[1], item[0]))
    scores = [score(one.score, answer, one.answers) or 0.0 for one in questions]
    return answer, count / len(questions), chance.mean(scores)


def repeat_spreads(readings: Readings) -> list[Row]:
    """For each run's mean, and for each difference of two, over the questions with at least two scores."""
    lists = collections.defaultdict[Row, Any](lambda: collections.defaultdict(dict))
    for run, name, depth, documents in readings.lists:
        values = [one for one in readings.scores(name, documents) if one is not None]
        if len(values) > 1:
            once = np.var(values, ddof=1)
            key = readings.world.questions[name].dataset, *readings.names(name), depth
            lists[key][run][name] = np.mean(values), once, once / len(values), len(values)
    found = list[Row]()
    for (*key, depth), runs in lists.items():
        found += [(*key, run, "", depth, *_spread([*rows.values()])) for run, rows in runs.items()]
        for a, b in itertools.combinations(sorted({*runs} - {*REFERENCES}), 2):
            both = [(*runs[a][name], *runs[b][name]) for name in runs[a] if name in runs[b]]
            rows = [(x - y, once + other, p + q, min(m, n)) for x, once, p, m, y, other, q, n in both]
            found += [(*key, a, b, depth, *_spread(rows))] if rows else []
    return found


def _spread(rows: list[Row]) -> Row:
    """Of rows of a mean over answers, the variances of one answer and of the mean, and how many they are."""
    means, (once, noise), size = (
        [row[0] for row in rows],
        np.mean([row[1:3] for row in rows], axis=0),
        len(rows),
    )
    head = size, max(row[3] for row in rows), np.mean(means)
    if size < 2:
        return (*head, None, math.sqrt(once), *[None] * 4)
    total = np.var(means, ddof=1)
    between = max(0.0, total - noise)
    share = min(1.0, noise / total) if total else None
    errors = (math.sqrt(variance / size) for variance in (total, between + once, between))
    return (*head, math.sqrt(between), math.sqrt(once), share, *errors)
