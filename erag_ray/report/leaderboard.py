"""The runs of every dataset side by side, and on one scale: who leads, and what is known of the others."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from erag_ray.analyses.answer import why_none_leads
from erag_ray.analyses.order import MAX_RUNS, by_mean_rank
from erag_ray.analyses.parts.formats import counted, number, shortened, with_interval
from erag_ray.analyses.parts.model import DatasetVerdict, Format, RankedRun, State, Table, Value, Verdict
from erag_ray.analyses.parts.shapes import field, listing, name_field, part_name
from erag_ray.analyses.standing import Standing
from erag_ray.data.runs.references import REFERENCE_NAMES

FIGURES = ("mean", "low", "high")
MAX_NAME = 24
MAX_DRAWN = 12
"""Runs that are drawn; the others are in the tables."""
SIGNS: Mapping[str, tuple[str, str]] = {
    "leads": ("*", "leads"),
    "equal": ("=", "equal to it"),
    "inconclusive": ("?", "not settled"),
    "worse": ("<", "significantly worse"),
    "not compared": ("/", "not compared"),
    "not ranked": ("~", "not ranked"),
}
"""State -> the sign behind a value, and its meaning."""


def ranking(standing: Standing) -> tuple[RankedRun, ...]:
    """Return the runs of a dataset, best first, then the reader without and with the gold passages."""
    states: dict[str, State] = dict.fromkeys(REFERENCE_NAMES, "reference")
    other: State = "not compared" if standing.sign and not standing.is_useless else "not ranked"
    if other == "not compared":
        states |= {rival.run: rival.state for rival in standing.rivals}
        states |= dict.fromkeys(standing.leaders, "inconclusive" if why_none_leads(standing) else "leads")
    return tuple(
        RankedRun(name=run, state=states.get(run, other), **{name: row[name] for name in FIGURES})
        for run in (*standing.runs, *REFERENCE_NAMES)
        if (row := standing.means.get(run)) is not None
    )


def leaderboard(datasets: Sequence[DatasetVerdict], most: int = MAX_RUNS) -> Table | None:
    """Return the best runs of every dataset as a table: end-to-end scores with a sign; None without any run."""
    present = [[run.name for run in dataset.ranking] for dataset in datasets]
    runs = by_mean_rank(
        [name for name in of_dataset if name not in REFERENCE_NAMES] for of_dataset in present
    )
    references = [name for name in REFERENCE_NAMES if any(name in of_dataset for of_dataset in present)]
    if not runs:
        return None
    shown = runs[:most]
    states = {run.state for dataset in datasets for run in dataset.ranking}
    signs = [f"{sign} {meaning}" for state, (sign, meaning) in SIGNS.items() if state in states]
    left_out = f"; the first {most} of {len(runs)} runs" if len(runs) > most else ""
    heads = {run: REFERENCE_NAMES.get(run) or shortened(run, MAX_NAME) for run in (*shown, *references)}
    return listing(
        (
            {**vars(dataset), "runs": {run.name: run for run in dataset.ranking}}
            for dataset in datasets
            if dataset.ranking
        ),
        (
            name_field("dataset", lambda row: shortened(row["dataset"], MAX_NAME)),
            field("questions", "num_queries", Format.COUNT),
            field("score", "score", Format.TEXT),
            field("documents", lambda row: row["depth"] or None, Format.COUNT),
            *(field(head, functools.partial(_value, run)) for run, head in heads.items()),
        ),
        name="leaderboard",
        title="End-to-end score",
        caption=f"{', '.join(signs)}{left_out}" if signs else "",
    )


def _value(name: str, row: Mapping[str, Any]) -> Value:
    run: RankedRun | None = row["runs"].get(name)
    if run is None:
        return Value()
    if run.state == "reference":
        return Value(run.mean)
    return Value(run.mean, run.low, run.high, note=SIGNS[run.state][0])


def boards(verdict: Verdict) -> list[dict[str, Any]]:
    """Return what the template draws of each dataset that has runs: runs in percent of the scale, and texts."""
    return [_board(dataset) for dataset in verdict.datasets if dataset.ranking]


def _board(dataset: DatasetVerdict) -> dict[str, Any]:
    runs = [run for run in dataset.ranking if run.state != "reference"]
    ends = [end for run in dataset.ranking for end in (run.mean, run.high) if end is not None]
    # the next tenth above all of them
    top = max(0.1, math.ceil(max(ends, default=1.0) * 10 - 1e-9) / 10)
    documents = [counted(dataset.depth, "document")] if dataset.depth else []
    about = [dataset.score, *documents, counted(dataset.num_queries, "question")]
    if len(runs) > MAX_DRAWN:
        about.append(f"the first {MAX_DRAWN} of {len(runs)} runs")
    references = [run for run in dataset.ranking if run.state == "reference" and run.mean is not None]
    return {
        "dataset": dataset.dataset,
        "section": part_name("dataset", dataset.dataset),
        "badge": _badge(runs),
        "about": ", ".join(about),
        "top": number(top, 1),
        "runs": [_drawn(run, top) for run in runs[:MAX_DRAWN]],
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
