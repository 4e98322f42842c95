"""The rule of the verdict: at which depth runs are compared, who leads, and what is known of every other run.

1. **Depth**: the one at which the end-to-end score is best on average over the runs; of equal ones the smallest. All
   p-values are corrected over all pairs of runs and all depths, so a statement at any depth may be made.
2. **Who leads**: every statement on two runs is about the questions that both have answered. A run gets a point for
   each run that it is above and loses one for each that it is below; the runs with the most points lead, but none that
   has scores on less than half as many questions as another one. Without missing scores these are the runs with the
   best mean. If several lead, one that is significantly better than each of
   the others at another depth, and nowhere worse, is the only leader; else they all do, and no name decides.
3. **What is known of every other run**: it is *worse* if the adjusted p is at most alpha (1 - confidence), *equal* if
   the two means are equal, *inconclusive* else, and *not compared* if too few questions are answered in both.
4. **Direction**: where less of the score is better, the order is reversed. Where neither is, the runs are in the order
   of the score and none is called the best.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from erag_ray.analyses.parts.model import State
from erag_ray.data.runs.references import END_TO_END, REFERENCES
from erag_ray.measures.agreement import TIE_DIGITS
from erag_ray.measures.scores import score_sign


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A run that leads against another run, at one depth; differences are above 0 where the first is better.

    ``low``, ``high`` and ``p`` are adjusted by Holm over all pairs of runs and depths.
    """

    run: str
    depth: int
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    num_queries: int
    num_dropped: int
    num_needed: int | None
    reason: str | None
    alpha: float

    @property
    def is_significant(self) -> bool:
        """Whether the two runs differ, one way or the other."""
        return self.p is not None and self.p <= self.alpha

    @property
    def points(self) -> int:
        """1 if the first run is above the other, -1 if it is below, 0 if they are equal or not compared."""
        difference = round(self.difference or 0.0, TIE_DIGITS)
        return (difference > 0) - (difference < 0)

    @property
    def state(self) -> State:
        if self.difference is None:
            return "not compared"
        if not self.points:
            return "equal"
        return "worse" if self.is_significant and self.points > 0 else "inconclusive"


class Pairs:
    """Rows of COMPARISONS of one quantity, as comparisons of any two of its runs, either way."""

    def __init__(self, rows: pl.DataFrame, sign: int, alpha: float) -> None:
        self._rows = {(row["run_a"], row["run_b"], row["depth"]): row for row in rows.iter_rows(named=True)}
        self._sign, self._alpha = sign or 1, alpha

    def __bool__(self) -> bool:
        return bool(self._rows)

    def between(self, run: str, other: str, depth: int) -> Comparison | None:
        """Return a run against another one; None if the table has no such row."""
        row = self._rows.get((*sorted((run, other)), depth))  # type: ignore[arg-type]
        return None if row is None else self._comparison(row, other)

    def _comparison(self, row: Mapping[str, Any], other: str) -> Comparison:
        ends = [row["difference"], row["low_adjusted"], row["high_adjusted"]]
        if (self._sign > 0) != (row["run_b"] == other):
            ends = [None if end is None else 0.0 - end for end in (ends[0], ends[2], ends[1])]
        names = ("num_queries", "num_dropped", "num_needed", "reason")
        return Comparison(
            run=other,
            depth=row["depth"],
            **dict(zip(("difference", "low", "high"), ends, strict=True)),
            p=row["p_adjusted"],
            **{name: row[name] for name in names},
            alpha=self._alpha,
        )

    def leaders(self, runs: Sequence[str], depth: int) -> tuple[list[str], list[str]]:
        """Return the runs with the most points, and the others by their points, of equal ones in the given order."""
        points = dict.fromkeys(runs, 0)
        for (a, b, of_depth), row in self._rows.items():
            if of_depth == depth and a in points and b in points:
                won = self._comparison(row, b).points
                points[a] += won
                points[b] -= won
        most = max(points.values(), default=0)
        others = sorted((run for run in runs if points[run] < most), key=lambda run: -points[run])
        return [run for run in runs if points[run] == most], others

    def any_significant(self, depth: int) -> bool:
        return any(
            key[2] == depth and self._comparison(row, key[1]).is_significant
            for key, row in self._rows.items()
        )


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Runs of one dataset at one depth, best first."""

    dataset: str
    depth: int
    depths: Sequence[int]
    """All depths, ascending. Labels are compared with utility at the largest one."""
    score: str
    sign: int
    """1: more of the score is better, -1: less, 0: neither."""
    runs: Sequence[str]
    """Those that lead, then the others."""
    leaders: Sequence[str]
    not_judged: Sequence[str]
    """Runs without a score on any question."""
    means: Mapping[str, Mapping[str, Any]]
    """run_id, references included -> row of MEANS."""
    pairs: Pairs
    num_estimated: int
    """Queries of the means and differences, where some have an estimate in place of a score; 0: none has."""
    rivals: Sequence[Comparison]
    """The first run against each run that does not lead, in the order of ``runs``."""

    @property
    def best(self) -> Mapping[str, Any]:
        """Row of MEANS of the first run."""
        return self.means[self.runs[0]]

    @property
    def is_useless(self) -> bool:
        """Whether every score of every run is 0, where more is better."""
        ends = [self.means[run][name] for run in self.runs for name in ("mean", "low")]
        return self.sign == 1 and not any(ends)

    @property
    def with_few_scores(self) -> list[str]:
        """Runs that cannot lead, since they have scores on less than half as many questions as another one."""
        counts = {run: self.means[run]["num_queries"] for run in self.runs}
        return [run for run, count in counts.items() if count * 2 < max(counts.values())]

    @property
    def deepest(self) -> int:
        return self.depths[-1]

    def of_state(self, *states: State) -> list[Comparison]:
        """Return the rivals of which this is known."""
        return [rival for rival in self.rivals if rival.state in states]


def standing(means: pl.DataFrame, comparisons: pl.DataFrame, dataset: str, alpha: float) -> Standing | None:
    """Rank the runs of a dataset; None without any utility."""
    utility = means.filter(annotator=END_TO_END, dataset=dataset)
    of_runs = utility.filter(pl.col("run_id").is_in(REFERENCES).not_())
    judged = of_runs.drop_nulls("mean")
    if judged.is_empty():
        return None
    score = judged.item(0, "score")
    sign = score_sign(score)
    mean = pl.col("mean").mean().round(TIE_DIGITS) * (sign or 1)
    # given outputs may be of one depth alone
    by_depth = judged.group_by("depth").agg(mean, count=pl.len())
    depth = by_depth.sort("count", "mean", "depth", descending=[True, True, False]).item(0, "depth")
    at_depth = judged.filter(depth=depth).with_columns(rank=pl.col("mean") * -(sign or 1))
    ordered = at_depth.sort("rank", "run_id")
    pairs = Pairs(comparisons.filter(annotator=END_TO_END, dataset=dataset), sign, alpha)
    depths = judged["depth"].unique().sort().to_list()
    most = at_depth["num_queries"].max()
    may_lead = ordered.filter(pl.col("num_queries") * 2 >= most)["run_id"].to_list()
    leaders, others = pairs.leaders(may_lead, depth) if pairs else (may_lead[:1], may_lead[1:])
    leaders = _better_elsewhere(leaders, pairs, [other for other in depths if other != depth]) or leaders
    # those that lead at this depth only come next, and runs with few answers last
    equal = [run for run in may_lead if run not in leaders and run not in others]
    runs = [*leaders, *equal, *others, *(run for run in ordered["run_id"] if run not in may_lead)]
    rivals = (pairs.between(runs[0], run, depth) for run in runs[len(leaders) :])
    references = (
        utility.drop_nulls("mean").filter(pl.col("run_id").is_in(REFERENCES)).sort("depth", descending=True)
    )
    rows = pl.concat([references, at_depth.drop("rank")])
    counts = at_depth.select("num_queries", "num_estimated")
    return Standing(
        dataset=dataset,
        depth=depth,
        depths=depths,
        score=score,
        sign=sign,
        runs=runs,
        leaders=leaders,
        not_judged=sorted(set(of_runs["run_id"]) - set(runs)),
        means={row["run_id"]: row for row in rows.iter_rows(named=True)},
        pairs=pairs,
        num_estimated=max((sum(row) for row in counts.iter_rows() if all(row)), default=0),
        rivals=[rival for rival in rivals if rival is not None],
    )


def _better_elsewhere(leaders: Sequence[str], pairs: Pairs, depths: Sequence[int]) -> list[str]:
    """Return the leader that is better than each other one at some depth, and worse at none; [] if there is none."""
    for run in leaders if len(leaders) > 1 else ():
        against = [
            [pairs.between(run, other, depth) for depth in depths] for other in leaders if other != run
        ]
        points = [{one.points for one in of_run if one and one.is_significant} for of_run in against]
        if all(of_run == {1} for of_run in points):
            return [run]
    return []
