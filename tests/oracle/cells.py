"""CELLS and what follows from them: shares, complements; slices by closed-book answers."""

import collections
import itertools
from collections.abc import Iterator
from typing import Any

from oracle.chance import known
from oracle.lists import ANY, Name
from oracle.readings import REFERENCES, Readings, Row
from oracle.results import Part, parts_of

NAMES = {
    # a document alone, the list, the reader by itself
    (True, True, False): "found",
    (True, True, True): "kept",
    (True, False, False): "distracted",
    (True, False, True): "distracted_known",
    (False, True, False): "combined",
    (False, True, True): "list_only",
    (False, False, True): "lost",
    (False, False, False): "missing",
}
RATES = {
    "combined_given_list": (("combined",), ("found", "kept", "combined", "list_only")),
    "distracted_given_alone": (
        ("distracted", "distracted_known"),
        ("found", "kept", "distracted", "distracted_known"),
    ),
}
EVENTS = {**{name: ((name,), tuple(NAMES.values())) for name in NAMES.values()}, **RATES}


def cells_of(readings: Readings) -> list[Row]:
    found: list[Row] = []
    for run, name, depth, documents in readings.lists:
        if run not in REFERENCES:
            alone = None
            if "erag" in readings.world.config["annotators"]:
                labels = [readings.is_enough(readings.score(name, [one])) for one in documents]
                alone = True if True in labels else None if None in labels else False
            facts = alone, readings.suffices(name, documents), readings.suffices(name, [])
            cell = None if None in facts else NAMES[facts]  # type: ignore[index]
            found.append((*readings.names(name), run, name, depth, *facts, cell))
    return found


def slices_of(readings: Readings, part: Part) -> Iterator[Part]:
    """The questions of a dataset by each value of each slice."""
    world, knows = readings.world, {None: "(none)", True: "yes", False: "no"}
    for path in dict.fromkeys(world.config["slices"]):
        values = collections.defaultdict[str, list[str]](list)
        for name in part.ids:
            if path != "known":
                values[world.questions[name].at(path)].append(name)
            elif name in world.read:
                values[knows[readings.suffices(name, [])]].append(name)
        if list(values) != ["(none)"]:
            yield from (part.among(ids, (path, value)) for value, ids in values.items())


def cell_tables(readings: Readings) -> dict[str, list[Row]]:
    world, cells = readings.world, cells_of(readings)
    alone, indicators, has_cell = (collections.defaultdict[Any, Any](kind) for kind in (dict, dict, set))
    for reader, score, run, name, depth, is_alone, _, _, cell in cells:
        key = (world.questions[name].dataset, reader, score, "erag", run, depth)
        alone[Name(*key, "", depth, ANY)][name] = None if is_alone is None else float(is_alone)
        for measure, (event, among) in EVENTS.items():
            value = float(cell in event) if cell in among else None
            indicators[Name(*key, measure, depth, ANY)][name] = value
        if cell:
            has_cell[key].add(name)
    shares: list[Row] = []
    for part in parts_of(world, indicators):
        for piece in (part, *slices_of(readings, part)):
            for name, row in piece.columns.items():
                places, judged = known(row), has_cell[name[:6]]
                share = piece.share(row[places] == 1, places)
                counts = sum(row[places] == 1), len(places), len({*piece.ids} - judged)
                names = part.dataset, name.reader, name.score, name.run_id, name.depth
                shares.append((*names, *piece.slice, name.measure, *share, *counts))
    complements = [row for part in parts_of(world, alone) for row in _complements(part)]
    return {"cells": cells, "cell_shares": shares, "complements": complements}


def _complements(part: Part) -> Iterator[Row]:
    ordered = sorted(part.columns.items(), key=lambda item: item[0].run_id)
    for (a, x), (b, y) in itertools.combinations(ordered, 2):
        if (a.reader, a.score, a.depth) == (b.reader, b.score, b.depth):
            places = known(x, y)
            p, q = (row[places] == 1 for row in (x, y))
            events = {"useful_a": p, "useful_b": q, "only_a": p & ~q, "only_b": q & ~p, "either": p | q}
            found = {key: part.share(one, places) for key, one in events.items()}
            both = zip(found["only_a"], found["only_b"], strict=True)
            found["gain"] = tuple(None if None in one else min(one) for one in both)  # type: ignore[type-var]
            names = part.dataset, a.reader, a.score, a.run_id, b.run_id, a.depth
            counts = len(places), len(x) - len(places)
            yield from ((*names, quantity, *interval, *counts) for quantity, interval in found.items())
