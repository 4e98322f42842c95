"""REPEAT_SPREADS: the spread of the mean score between answers to a list, and between questions."""

from __future__ import annotations

import collections
import itertools
import math
from typing import NamedTuple

import numpy as np
from oracle.readings import REFERENCES, Readings, Row


class Scored(NamedTuple):
    """A question's mean over the answers to its list, the variance of one answer and of the mean, and how many."""

    mean: float
    once: float
    noise: float
    count: int


def repeat_spreads(readings: Readings) -> list[Row]:
    """For each run's mean, and for each difference of two, over the questions with at least two scores."""
    lists = collections.defaultdict[Row, dict[str, dict[str, Scored]]](lambda: collections.defaultdict(dict))
    for run, name, depth, documents in readings.lists:
        values = [one for one in readings.scores(name, documents) if one is not None]
        if len(values) > 1:
            once = float(np.var(values, ddof=1))
            key = readings.world.questions[name].dataset, *readings.names(name), depth
            lists[key][run][name] = Scored(float(np.mean(values)), once, once / len(values), len(values))
    found = []
    for (*key, depth), runs in lists.items():
        found += [(*key, run, "", depth, *_spread([*rows.values()])) for run, rows in runs.items()]
        for a, b in itertools.combinations(sorted({*runs} - {*REFERENCES}), 2):
            both = [(runs[a][name], runs[b][name]) for name in runs[a] if name in runs[b]]
            rows = [
                Scored(x.mean - y.mean, x.once + y.once, x.noise + y.noise, min(x.count, y.count))
                for x, y in both
            ]
            found += [(*key, a, b, depth, *_spread(rows))] if rows else []
    return found


def _spread(rows: list[Scored]) -> Row:
    size, once, noise = len(rows), *(float(np.mean([row[at] for row in rows])) for at in (1, 2))
    head = size, max(row.count for row in rows), float(np.mean([row.mean for row in rows]))
    if size < 2:
        return (*head, None, math.sqrt(once), *[None] * 4)
    total = float(np.var([row.mean for row in rows], ddof=1))
    between = max(0.0, total - noise)
    share = min(1.0, noise / total) if total else None
    errors = (math.sqrt(variance / size) for variance in (total, between + once, between))
    return (*head, math.sqrt(between), math.sqrt(once), share, *errors)
