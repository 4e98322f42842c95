"""The runs of every dataset side by side: who leads, and what is known of the others."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from erag_ray.report.model import Column, DatasetVerdict, Format, RankedRun, Table, Value
from erag_ray.report.values import across, names, plain
from erag_ray.report.verdict.standing import Standing
from erag_ray.runs import REFERENCE_NAMES

MAX_RUNS = 8
"""Runs that have a column."""
SIGNS: Mapping[str, tuple[str, str]] = {
    "leads": ("*", "leads"),
    "equal": ("=", "equal to it"),
    "inconclusive": ("?", "not settled"),
    "worse": ("<", "significantly worse"),
    "not compared": ("/", "not compared"),
}
"""State -> the sign behind a value, and its meaning."""


def ranking(standing: Standing) -> tuple[RankedRun, ...]:
    """Return the runs of a dataset, best first, then the reader without and with the gold passages."""
    states = {rival.run: rival.state for rival in standing.rivals}
    known = bool(standing.sign) and not standing.is_useless
    ranked = []
    for run, row in standing.means.items():
        state = "leads" if run in standing.leaders else states.get(run, "not compared")
        if run in REFERENCE_NAMES or not known:
            state = "reference" if run in REFERENCE_NAMES else "not compared"
        ranked.append(RankedRun(name=run, mean=row["mean"], low=row["low"], high=row["high"], state=state))
    order = [*standing.runs, *REFERENCE_NAMES]
    return tuple(sorted(ranked, key=lambda run: order.index(run.name)))


def leaderboard(datasets: Sequence[DatasetVerdict]) -> Table | None:
    """Return the best runs of every dataset as a table: end-to-end scores with a sign; None without any run."""
    ranks: dict[str, list[int]] = {}
    for dataset in datasets:
        for rank, run in enumerate(dataset.ranking):
            ranks.setdefault(run.name, []).append(rank)
    runs = [run for run in ranks if run not in REFERENCE_NAMES]
    runs.sort(key=lambda run: (statistics.fmean(ranks[run]), run))
    references = [name for name in REFERENCE_NAMES if name in ranks]
    if not runs:
        return None
    shown = runs[:MAX_RUNS]
    states = {run.state for dataset in datasets for run in dataset.ranking}
    signs = [f"{sign} {meaning}" for state, (sign, meaning) in SIGNS.items() if state in states]
    left_out = f"; the {MAX_RUNS} best of {len(runs)} runs" if len(runs) > MAX_RUNS else ""
    rows = tuple(
        (
            *plain(dataset.dataset, dataset.num_queries, dataset.score, dataset.depth),
            *across({run.name: _value(run) for run in dataset.ranking}, [*shown, *references]),
        )
        for dataset in datasets
        if dataset.ranking
    )
    return Table(
        name="leaderboard",
        title="End-to-end score",
        columns=(
            *names("dataset"),
            *(
                Column("questions", Format.COUNT),
                Column("score", Format.TEXT),
                Column("documents", Format.COUNT),
            ),
            *(Column(run) for run in shown),
            *(Column(REFERENCE_NAMES[name]) for name in references),
        ),
        rows=rows,
        caption=f"{', '.join(signs)}{left_out}" if signs else "",
    )


def _value(run: RankedRun) -> Value:
    is_reference = run.state == "reference"
    interval = (None, None) if is_reference else (run.low, run.high)
    return Value(run.mean, *interval, note="" if is_reference else SIGNS[run.state][0])
