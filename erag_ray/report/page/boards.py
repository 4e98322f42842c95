"""The first picture of the page: every run of every dataset on one scale, with what is known of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from erag_ray.analyses.parts.formats import counted, number, with_interval
from erag_ray.analyses.parts.model import DatasetVerdict, RankedRun, Verdict
from erag_ray.analyses.parts.shapes import part_name
from erag_ray.data.runs.references import REFERENCE_NAMES
from erag_ray.report.leaderboard import SIGNS

MAX_RUNS = 12
"""Runs that are drawn; the others are in the tables."""


def boards(verdict: Verdict) -> list[dict[str, Any]]:
    """Return what the template draws of each dataset that has runs: runs in percent of the scale, and texts."""
    return [_board(dataset) for dataset in verdict.datasets if dataset.ranking]


def _board(dataset: DatasetVerdict) -> dict[str, Any]:
    runs = [run for run in dataset.ranking if run.state != "reference"]
    ends = [end for run in dataset.ranking for end in (run.mean, run.high) if end is not None]
    # the next tenth above all of them
    top = max(0.1, math.ceil(max(ends, default=1.0) * 10 - 1e-9) / 10)
    about = [dataset.score, counted(dataset.depth, "document"), counted(dataset.num_queries, "question")]
    if len(runs) > MAX_RUNS:
        about.append(f"the {MAX_RUNS} best of {len(runs)} runs")
    references = [run for run in dataset.ranking if run.state == "reference" and run.mean is not None]
    return {
        "dataset": dataset.dataset,
        "section": part_name("dataset", dataset.dataset),
        "badge": _badge(runs),
        "about": ", ".join(about),
        "top": number(top, 1),
        "runs": [_drawn(run, top) for run in runs[:MAX_RUNS]],
        "marks": [
            {
                "name": REFERENCE_NAMES[run.name],
                "left": _percent(run.mean, top),
                "text": number(run.mean, drop_zero=True),
            }
            for run in references
        ],
    }


def _badge(runs: Sequence[RankedRun]) -> str:
    states = [run.state for run in runs]
    if len(runs) < 2 or "leads" not in states:
        return ""
    return "settled" if states == ["leads", *["worse"] * (len(runs) - 1)] else "not settled"


def _drawn(run: RankedRun, top: float) -> dict[str, Any]:
    left = _percent(run.mean if run.low is None else run.low, top)
    right = _percent(run.mean if run.high is None else run.high, top)
    return {
        "name": run.name,
        "mean": run.mean,
        "state": run.state,
        "says": SIGNS[run.state][1],
        "at": _percent(run.mean, top),
        "left": left,
        "width": round(right - left, 2),
        "text": with_interval(run.mean, run.low, run.high, drop_zero=True),
    }


def _percent(value: float | None, top: float) -> float:
    return round(100 * min(max((value or 0.0) / top, 0.0), 1.0), 2)
