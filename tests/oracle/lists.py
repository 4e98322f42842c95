"""Ranked lists and their labels -> every measure of every list, by the definitions of trec_eval and of KILT."""

import collections
import itertools
import math
from typing import Any, NamedTuple

import numpy as np
from oracle import chance
from oracle.inputs import World
from oracle.readings import SPANS, Labels, Readings, Row, contains_dpr

ANY, LIST, POOL = "any", "list", "pool"
END_TO_END = "end_to_end"
OF_IDEAL = ("R", "AP", "nDCG", "alpha-nDCG")
OF_BINARY = ("R", "AP", "RR")
BY_DEFAULT = ("P", "R", "AP", "RR", "nDCG", "Success")
OF_FACTS = ("Coverage", "alpha-nDCG")
SPECIAL = {
    "erag_facts": OF_FACTS,
    "udcg": ("UDCG",),
    "udcg_provenance": ("UDCG",),
    "distracting": ("P",),
    "gain": ("P", "Success", "Harmful"),
}
"""Annotator -> its measures, if they are not those of the config."""
OWN = (*OF_FACTS, "UDCG")
"""Measures that only one annotator has."""


class Name(NamedTuple):
    """What a column of values is of, in the order of the columns of MEANS."""

    dataset: str
    reader: str
    score: str
    annotator: str
    run_id: str
    depth: int
    measure: str
    cutoff: int
    ideal: str


Columns = dict[Name, dict[str, float | None]]
"""Column -> question -> value, None: not judged."""


def columns_of(readings: Readings) -> Columns:
    """Every measure of every list by every annotator."""
    found, world = collections.defaultdict[Name, dict[str, float | None]](dict), readings.world
    for (group, (ids, labels)), run, depth in itertools.product(
        readings.labels.items(), world.runs, world.depths
    ):
        cutoffs = sorted({depth, *(one for one in world.config["cutoffs"] if one <= depth)})
        for name, measure, cutoff in itertools.product(ids, _measures(world, *group[1:]), cutoffs):
            for ideal in (LIST, POOL) if measure in OF_IDEAL else (ANY,):
                column = Name(world.questions[name].dataset, *group, run, depth, measure, cutoff, ideal)
                found[column][name] = _of_question(readings, column, name, labels)
    return found


def utilities_of(readings: Readings) -> Columns:
    """The end-to-end scores as columns, those of the references too."""
    found = collections.defaultdict[Name, dict[str, float | None]](dict)
    for run, name, depth, documents in readings.lists:
        one = readings.world.questions[name]
        column = Name(one.dataset, *readings.names(name), END_TO_END, run, depth, one.score, depth, ANY)
        found[column][name] = readings.utility(name, documents)
    return found


def _of_question(readings: Readings, column: Name, name: str, labels: Labels) -> float | None:
    world, measure, cutoff = readings.world, column.measure, column.cutoff
    documents = world.documents(column.run_id, name, column.depth)
    pool = sorted({one for run in world.runs for one in world.documents(run, name, column.depth)})
    base, top = pool if column.ideal == POOL else documents, documents[:cutoff]
    if any(labels[name, one] is None for one in (top if column.ideal == ANY else base)):
        return None
    if measure in OF_FACTS:
        return _of_facts(readings, name, measure, top, base, cutoff)
    gains = {one: labels[name, one] or 0.0 for one in {*top, *base}}
    if world.config["threshold"] is not None and measure in OF_BINARY:
        gains = {one: float(gain >= world.least) for one, gain in gains.items()}
    ideal_gains = sorted((gains[one] for one in base), reverse=True)
    return _measure(measure, [gains[one] for one in top], ideal_gains, cutoff)


def _measures(world: World, score: str, annotator: str) -> tuple[str, ...]:
    if annotator in SPECIAL:
        return SPECIAL[annotator]
    if world.config["measures"] is not None:
        return tuple(world.config["measures"])
    are_graded = score == "token_f1" or annotator in ("gold_likelihood", "usable", "llm_relevance_graded")
    takes_all = world.config["threshold"] is not None or not are_graded
    return tuple(one for one in BY_DEFAULT if takes_all or one not in OF_BINARY)


def _measure(measure: str, gains: list[float], ideal: list[float], cutoff: int) -> float:
    match measure:
        case "P":
            return math.fsum(gains) / cutoff
        case "Success":
            return max([*gains, *[0.0] * (cutoff - len(gains))])
        case "Harmful":
            return sum(gain < 0 for gain in gains) / cutoff
        case "UDCG":
            return 1 / (1 + math.exp(-math.fsum(gains) / max(1, len(gains))))
        case "RR":
            return max((gain / rank for rank, gain in enumerate(gains, 1)), default=0.0)
        case "R":
            return _ratio(sum(gains), sum(ideal))
        case "AP":
            precisions = (gain * sum(gains[:rank]) / rank for rank, gain in enumerate(gains, 1))
            return _ratio(sum(precisions), sum(ideal))
    assert measure == "nDCG", measure
    return _ratio(_dcg(gains), _dcg(ideal[:cutoff]))


def _dcg(gains: list[float]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))


def _ratio(above: float, below: float) -> float:
    return above / below if below > 0 else 0.0


def _of_facts(
    readings: Readings, name: str, measure: str, top: list[str], base: list[str], cutoff: int
) -> float:
    label = {
        one: np.array([value or 0.0 for value in readings.fact_labels[name, one]]) for one in {*top, *base}
    }
    if measure == "Coverage":
        return float(np.mean(1 - np.prod([1 - label[one] for one in top], axis=0)))

    def gain(doc_id: str, before: list[str]) -> float:
        return float(np.sum(label[doc_id] * np.prod([1 - 0.5 * label[one] for one in before], axis=0)))

    best, left = list[str](), list(base)
    while left and len(best) < cutoff:
        # of equal gains the last one, as in ndeval
        place = max(range(len(left)), key=lambda at: (round(gain(left[at], best), 12), at))
        best.append(left.pop(place))
    own, ideal = ([gain(one, docs[:at]) for at, one in enumerate(docs)] for docs in (top, best))
    return _ratio(_dcg(own), _dcg(ideal))


CUTOFFS = (1, 5, 20, 100)


def retrieval_measures(config: dict[str, Any]) -> list[Row]:
    """RETRIEVAL_MEASURES, from the files alone: hits, and KILT's two measures of pages (`eval_retrieval.py`)."""
    world, values = World(config), collections.defaultdict[Row, list[float]](list)
    for run, (name, one) in itertools.product(world.runs, world.questions.items()):
        passages = [world.corpus[doc_id] for doc_id in world.documents(run, name)]
        pages = list(dict.fromkeys(passage["page_id"] for passage in passages))
        sets, key = {frozenset(of) for of in one.page_sets}, (one.dataset, run)
        for cutoff in [one for one in CUTOFFS if one <= world.depth]:
            top = passages[:cutoff]
            if sets:
                hit = any(passage["page_id"] in one.pages for passage in top)
                values[*key, "gold_page", cutoff].append(float(hit))
                share = sum(point <= cutoff for point in _points(pages, sets)) / len(sets)
                values[*key, "kilt_recall", cutoff].append(share)
            if one.score in SPANS:
                hit = any(contains_dpr(passage["text"], one.answers) for passage in top)
                values[*key, "contains_answer", cutoff].append(float(hit))
        if sets:
            best = max(len({*pages[: len(of)]} & of) / len(of) for of in sets)
            values[*key, "kilt_r_precision", 0].append(best)
    return [(*key, chance.mean(found), len(found), 0) for key, found in values.items()]


def _points(pages: list[str], page_sets: set[frozenset[str]]) -> list[int]:
    """The points at which page sets are complete: a page of no set is a point, a set is one, with its last page."""
    left, gold, found, point = [{*of} for of in page_sets], frozenset[str]().union(*page_sets), list[int](), 0
    for page in pages:
        if page not in gold:
            point += 1
        for one in [of for of in left if page in of]:
            one.discard(page)
            if not one:
                point += 1
                found.append(point)
    return found
