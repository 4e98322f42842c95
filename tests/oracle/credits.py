"""CREDITS, CREDIT_AGREEMENT and CREDIT_SHARES of lists of few documents, by all their subsets."""

import collections
import copy
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from oracle import chance
from oracle.cells import cells_of, slices_of
from oracle.readings import Readings, Row
from oracle.results import Part, parts_of

EFFECTS = ("credited", "redundant", "only_in_company", "hurts_in_company", "harmful", "no_effect")


class Credit(NamedTuple):
    """A document in its list, with a label of it and its part in the score of the list."""

    names: Row
    """Reader, score, run."""
    query_id: str
    credit: str
    doc_id: str
    depth: int
    rank: int
    value: float | None
    annotator: str = ""
    label: float | None = None

    def effect(self, readings: Readings) -> str | None:
        without = readings.score(self.query_id, [])
        if self.annotator != "erag" or self.label is None or self.value is None or without is None:
            return None
        if self.value < 0:
            return "harmful" if self.label < without else "hurts_in_company"
        if self.label >= readings.world.least:
            return "credited" if self.value > 0 else "redundant"
        return "only_in_company" if self.value > 0 else "no_effect"


def _credits(readings: Readings) -> Iterator[Credit]:
    world = readings.world
    depth = max(world.end_to_end_depths)
    for name, run, credit in itertools.product(world.read, world.runs, world.config["credits"]):
        documents = world.documents(run, name, depth)
        for rank, doc_id in enumerate(documents, 1):
            value = _value(readings, name, credit, documents, doc_id)
            yield Credit((*readings.names(name), run), name, credit, doc_id, depth, rank, value)


def _value(readings: Readings, name: str, credit: str, documents: list[str], doc_id: str) -> float | None:
    """The mean change of the score by this document, after those before it in each order that the credit counts."""
    orders = {
        "leave_one_out": [[one for one in documents if one != doc_id] + [doc_id]],
        "marginal": [documents],
        "shapley": [*itertools.permutations(documents)],
    }
    changes = []
    for order in orders[credit]:
        before = order[: order.index(doc_id)]
        sets = ([one for one in documents if one in chosen] for chosen in ([*before, doc_id], before))
        after, less = (readings.score(name, one) for one in sets)
        changes.append(None if after is None or less is None else after - less)
    return None if None in changes else round(chance.mean(changes), 12)


def credit_tables(readings: Readings) -> dict[str, list[Row]]:
    found = list(_credits(readings))
    labelled = [
        one._replace(annotator=annotator, label=labels[one.query_id, one.doc_id])
        for one in found
        for (reader, _, annotator), (_, labels) in readings.labels.items()
        if (one.query_id, one.doc_id) in labels and reader in ("", one.names[0])
    ]
    agreement, shares = list[Row](), list[Row]()
    for names, part, group in _groups(readings, labelled):
        agreement += [(*names, *row) for row in _agreement(part, group)]
        effects = [
            (part.ids.index(one.query_id), effect) for one in group if (effect := one.effect(readings))
        ]
        places = [place for place, _ in effects]
        for effect in EFFECTS if effects else ():
            events = [one == effect for _, one in effects]
            interval = chance.wilson(events, part.confidence, part.clusters_at(places) or places)
            shares.append((*names[:-1], effect, *interval, sum(events), len(places), len({*places})))
    return {
        # nothing is sampled: the standard error is 0
        "credits": [(*one.names, *one[1:7], None if one.value is None else 0.0) for one in found],
        "credit_agreement": agreement,
        "credit_shares": shares,
    }


def _groups(readings: Readings, documents: list[Credit]) -> Iterator[tuple[Row, Part, list[Credit]]]:
    """Yield the documents of each part of the questions, by list, credit and annotator; of a cell, those of its run."""
    credited = {one.query_id for one in documents}
    world = copy.copy(readings.world)
    world.questions = {name: one for name, one in world.questions.items() if name in credited}
    for whole in parts_of(world, {}):
        parts = [("", part) for part in (whole, *slices_of(readings, whole))]
        in_cells = collections.defaultdict[tuple[str, str], list[str]](list)
        for _, _, run, name, depth, _, _, _, cell in cells_of(readings):
            if name in whole.ids and cell and depth == documents[0].depth:
                in_cells[run, cell].append(name)
        parts += [(run, whole.among(ids, ("(cell)", cell))) for (run, cell), ids in in_cells.items()]
        for only_run, part in parts:
            groups = collections.defaultdict[Row, list[Credit]](list)
            for one in documents:
                if one.query_id in part.ids and only_run in ("", one.names[2]):
                    groups[*one.names, one.depth, *part.slice, one.credit, one.annotator].append(one)
            yield from (((part.dataset, *names), part, group) for names, group in groups.items())


def _agreement(part: Part, group: list[Credit]) -> Iterator[Row]:
    judged = [one for one in group if one.label is not None and one.value is not None]
    x, y = (np.array([getattr(one, key) for one in judged], dtype=float) for key in ("label", "value"))
    places = [part.ids.index(one.query_id) for one in judged]
    weights, number = part.weights[:, places], part.number(list({*places}))
    for statistic in part.statistics:
        halves, num_in_lists = dict[int, float](), 0
        for place in {*places}:
            of_list = [number for number, one in enumerate(places) if one == place]
            if (value := chance.of_all(statistic, x[of_list], y[of_list])) is not None:
                halves[place], num_in_lists = (value + 1) / 2, num_in_lists + len(of_list)
        row = [None if end is None else 2 * end - 1 for end in part.share([*halves.values()], [*halves])]
        counts = len(halves), num_in_lists, len(group) - len(judged)
        yield (statistic, "lists", *(row if len(halves) > 1 else (row[0], None, None)), *counts, not halves)
        of_all, ends = chance.of_all(statistic, x, y), (None, None)
        if of_all is not None:
            resampled = chance.statistic_of(statistic, x, y, weights)
            ends = chance.ends(resampled, part.confidence, number)  # type: ignore[assignment]
        counts = len({one.query_id for one in judged}), len(judged), len(group) - len(judged)
        yield (statistic, "documents", of_all, *ends, *counts, ends[0] is None)
