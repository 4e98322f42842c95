"""CREDITS, CREDIT_AGREEMENT and CREDIT_SHARES of lists of few documents, by all their subsets."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Iterator

import numpy as np
from oracle import chance
from oracle.cells import cells_of, slices_of
from oracle.readings import Readings, Row
from oracle.results import Part, parts_of

EFFECTS = ("credited", "redundant", "only_in_company", "hurts_in_company", "harmful", "no_effect")


@dataclasses.dataclass(frozen=True)
class Credit:
    """A document in its list, with a label of it and its part in the score of the list."""

    names: Row
    """Reader, score, run."""
    query_id: str
    depth: int
    credit: str
    doc_id: str
    rank: int
    value: float | None
    annotator: str = ""
    label: float | None = None

    @property
    def error(self) -> float | None:
        """The standard error: nothing is sampled."""
        return None if self.value is None else 0.0

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
            parts = []
            for others, weight in _weights(credit, documents, doc_id).items():
                sets = [[one for one in documents if one in chosen] for chosen in ({*others, doc_id}, others)]
                after, before = (readings.score(name, one) for one in sets)
                parts.append(None if after is None or before is None else weight * (after - before))
            value = None if None in parts else round(math.fsum(parts), 12)  # type: ignore[arg-type]
            yield Credit((*readings.names(name), run), name, depth, credit, doc_id, rank, value)


def _weights(credit: str, documents: list[str], doc_id: str) -> dict[tuple[str, ...], float]:
    """Sets of other documents -> how much the change by this one counts there."""
    if credit == "leave_one_out":
        return {tuple(one for one in documents if one != doc_id): 1.0}
    if credit == "marginal":
        return {tuple(documents[: documents.index(doc_id)]): 1.0}
    found, orders = dict[tuple[str, ...], float](), list(itertools.permutations(documents))
    for order in orders:
        before = tuple(sorted(order[: order.index(doc_id)]))
        found[before] = found.get(before, 0.0) + 1 / len(orders)
    return found


def credit_tables(readings: Readings) -> dict[str, list[Row]]:
    found = list(_credits(readings))
    labelled = [
        dataclasses.replace(one, annotator=annotator, label=labels[one.query_id, one.doc_id])
        for one in found
        for (reader, _, annotator), (_, labels) in readings.labels.items()
        if (one.query_id, one.doc_id) in labels and reader in ("", one.names[0])
    ]
    agreement, shares = list[Row](), list[Row]()
    for names, part, group in _groups(readings, labelled):
        agreement += [(*names, *row) for row in _agreement(part, group)]
        effects = [(one.query_id, effect) for one in group if (effect := one.effect(readings))]
        shares += [(*names[:-1], *row) for row in _shares(part, effects)] if effects else []
    return {
        "credits": [
            (*one.names, one.query_id, one.credit, one.doc_id, one.depth, one.rank, one.value, one.error)
            for one in found
        ],
        "credit_agreement": agreement,
        "credit_shares": shares,
    }


def _groups(readings: Readings, documents: list[Credit]) -> Iterator[tuple[Row, Part, list[Credit]]]:
    """Yield the documents of each part of the questions, by list, credit and annotator; of a cell, those of its run."""
    credited = {one.query_id for one in documents}
    world = copy.copy(readings.world)
    world.questions = {name: one for name, one in world.questions.items() if name in credited}
    for whole in parts_of(world, {}):
        in_cells: dict[tuple[str, str], list[str]] = {}
        for _, _, run, name, depth, _, _, _, cell in cells_of(readings):
            if name in whole.ids and cell and depth == documents[0].depth:
                in_cells.setdefault((run, cell), []).append(name)
        parts = [("", part) for part in (whole, *slices_of(readings, whole))]
        parts += [(run, whole.among(ids, ("(cell)", cell))) for (run, cell), ids in in_cells.items()]
        for only_run, part in parts:
            groups: dict[Row, list[Credit]] = {}
            for one in documents:
                if one.query_id in part.ids and only_run in ("", one.names[2]):
                    groups.setdefault(
                        (*one.names, one.depth, *part.slice, one.credit, one.annotator), []
                    ).append(one)
            yield from (((part.dataset, *names), part, group) for names, group in groups.items())


def _agreement(part: Part, group: list[Credit]) -> Iterator[Row]:
    judged = [one for one in group if one.label is not None and one.value is not None]
    x, y = (np.array([getattr(one, key) for one in judged], dtype=float) for key in ("label", "value"))
    places = [part.ids.index(one.query_id) for one in judged]
    weights, number = part.weights[:, places], part.number(list({*places}))
    for statistic in part.statistics:
        of_lists = dict[str, float]()
        for name in {one.query_id for one in judged}:
            of_list = [place for place, one in enumerate(judged) if one.query_id == name]
            if (value := chance.of_all(statistic, x[of_list], y[of_list])) is not None:
                of_lists[name] = value
        halves = {one: (value + 1) / 2 for one, value in of_lists.items()}
        clusters = part.clusters_at([part.ids.index(one) for one in halves])
        interval = chance.wilson([*halves.values()], part.confidence, clusters)
        row = [None if end is None else 2 * end - 1 for end in interval[: 3 if len(halves) > 1 else 1]]
        row += [None] * (3 - len(row))
        num = sum(one.query_id in of_lists for one in judged)
        yield (statistic, "lists", *row, len(of_lists), num, len(group) - len(judged), not of_lists)
        of_all, ends = chance.of_all(statistic, x, y), (None, None)
        if of_all is not None:
            resampled = chance.statistic_of(statistic, x, y, weights)
            ends = chance.ends(resampled, part.confidence, number)  # type: ignore[assignment]
        counts = len({one.query_id for one in judged}), len(judged), len(group) - len(judged)
        yield (statistic, "documents", of_all, *ends, *counts, ends[0] is None)


def _shares(part: Part, documents: list[tuple[str, str]]) -> Iterator[Row]:
    places = [part.ids.index(name) for name, _ in documents]
    clusters = part.clusters_at(places) or places
    for effect in EFFECTS:
        events = [one == effect for _, one in documents]
        interval = chance.wilson(events, part.confidence, clusters)
        yield (effect, *interval, sum(events), len(documents), len({*places}))
