"""Sentences on the order of the runs: who leads, who is worse and by how much, what is inconclusive or not compared."""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from erag_ray.analyses.parts.formats import counted, number, p_text, with_documents, with_interval
from erag_ray.analyses.parts.model import Finding
from erag_ray.analyses.standing import Comparison, Standing
from erag_ray.measures.agreement import TIE_DIGITS

MAX_QUESTIONS = 1_000_000
"""Larger numbers of needed questions are not printed."""
NUM_NAMED = 5
"""Runs or comparisons that a sentence names."""
_number = functools.partial(number, drop_zero=True)
_with_interval = functools.partial(with_interval, drop_zero=True)


def answer(standing: Standing) -> str:
    """Return the answer of one dataset: which run serves the reader best, and with what certainty."""
    run, at = standing.runs[0], with_documents(standing.depth)
    mean = f"{standing.score} {_mean(standing, standing.best)} {at}"
    if standing.is_useless:
        return f"no run scores above 0: {mean}"
    if len(standing.runs) == 1:
        others = "no other run has a score there" if standing.not_judged else "there is no other run"
        return f"{run}: {mean}; {others}"
    if not standing.pairs:
        return f"{run} leads with {mean}; the table comparisons, which says how sure that is, is missing"
    if not standing.sign:
        start = f"{standing.score} is neither better nor worse with more, so no run is best by it"
        return f"{start}; most: {listed_and(standing.leaders)}, {mean}{_nearest(standing)}"
    if why := why_none_leads(standing):
        return f"no run leads: of {listed_and(standing.leaders)} {why}"
    return _ranked(standing, mean)


def _ranked(standing: Standing, mean: str) -> str:
    names = listed_and(standing.leaders)
    elsewhere = _settled_elsewhere(standing)
    worse = sorted(standing.of_state("worse"), key=lambda one: one.difference or 0.0)
    rest = [rival for rival in standing.rivals if rival.state != "worse" and rival.run not in elsewhere]
    is_alone = len(standing.leaders) == 1
    named = [f"{one.run} by {_number(one.difference, _digits([one.difference or 0]))}" for one in worse]
    named = named if rest or not is_alone else named[1:]
    others = _nearest(standing) + (f"; worse: {_listed(named)}" if named else "")
    if not standing.rivals and not elsewhere:
        return f"{names} have the same mean: {mean}"
    if is_alone and not rest:
        return f"{names} serves the reader best: {mean}{_also(elsewhere)}{others}"
    lead = f"{'leads with' if is_alone else 'lead equally with'} {mean}{_also(elsewhere)}"
    if worse:
        return (
            f"{_listed([*standing.leaders, *(rival.run for rival in rest)], ' or ')}: {names} {lead}{others}"
        )
    if standing.pairs.any_significant(standing.depth):
        return f"no run is significantly worse than {names}, which {lead}{others}"
    start = "no two runs" if len(standing.runs) > 2 else "the two runs do not"
    return f"{start} differ significantly: {names} {lead}{others}"


def why_none_leads(standing: Standing) -> str:
    """Return why runs that lead by points cannot be called equal; "" if they can. It takes missing scores."""
    pairs = itertools.combinations(standing.leaders, 2)
    states = {one.state if (one := standing.pairs.between(a, b, standing.depth)) else None for a, b in pairs}
    if "not compared" in states:
        return "not all have scores on the same questions"
    return "each is below another on the questions that both answered" if states - {"equal"} else ""


def _settled_elsewhere(standing: Standing) -> dict[str, str]:
    """Return how the run that leads is better than each run that equals it here, at a depth where they differ."""
    texts = {}
    for rival in standing.of_state("equal"):
        better = [
            one for one in _significant_elsewhere(standing, standing.runs[0], rival.run) if one.points > 0
        ]
        if better:
            best = max(better, key=lambda one: one.difference or 0.0)
            where = with_documents(best.depth)
            texts[rival.run] = f"equal to {rival.run} there and {_lead(standing, best)} {where}"
    return texts


def _also(texts: Mapping[str, str]) -> str:
    return "".join(f", {text}" for text in list(texts.values())[:NUM_NAMED])


def _significant_elsewhere(standing: Standing, run: str, other: str) -> list[Comparison]:
    """Return the comparisons of a run with another one that are significant at other depths."""
    others = (depth for depth in standing.depths if depth != standing.depth)
    comparisons = (standing.pairs.between(run, other, depth) for depth in others)
    return [one for one in comparisons if one is not None and one.is_significant]


def _nearest(standing: Standing) -> str:
    """Return the difference to the nearest run that does not lead, an inconclusive one if there is one."""
    candidates = standing.of_state("inconclusive") or standing.of_state("worse")
    nearest = min(candidates, key=lambda one: abs(one.difference or 0.0), default=None)
    return "" if nearest is None else f", {_lead(standing, nearest)}"


def _lead(standing: Standing, rival: Comparison) -> str:
    over = _over(standing, rival.num_queries, rival.num_dropped)
    return f"{_difference(standing, rival)}{over}, p {p_text(rival.p)}{_corrected(standing)}"


def _difference(standing: Standing, rival: Comparison) -> str:
    """Return how far the first run is from another, with the interval that agrees with the p-value."""
    sign = 1 if rival.points >= 0 else -1
    value, *ends = (None if end is None else sign * end for end in (rival.difference, rival.low, rival.high))
    low, high = ends if sign > 0 else reversed(ends)
    is_above = (rival.points >= 0) == (standing.sign >= 0)
    digits = _digits([end for end in (value, low, high) if end is not None])
    interval = "" if low is None or high is None else f" [{_number(low, digits)}, {_number(high, digits)}]"
    return f"{_number(value, digits)} {'above' if is_above else 'below'} {rival.run}{interval}"


def _digits(values: Sequence[float]) -> int:
    """Return how many digits tell each value from 0 that is not 0, so that an interval and its p-value agree."""
    values = [one for one in values if round(one, TIE_DIGITS)]
    return next((digits for digits in (3, 4, 5) if all(round(one, digits) for one in values)), 6)


def _corrected(standing: Standing) -> str:
    num_runs, num_depths = len(standing.runs) + len(standing.not_judged), len(standing.depths)
    parts = [f"{num_runs} runs"] * (num_runs > 2) + [f"{num_depths} depths"] * (num_depths > 1)
    return f" (Holm, {', '.join(parts)})" if parts else ""


def needed_questions(standing: Standing) -> Iterator[Finding]:
    """Yield which comparisons are inconclusive, and how many questions would settle each."""
    rivals = standing.of_state("inconclusive")
    is_equal = len(standing.leaders) > 1 and standing.pairs and not why_none_leads(standing)
    if not standing.sign or standing.is_useless or not (rivals or is_equal):
        return
    parts = [f"{listed_and(standing.leaders)} are equal here"] if is_equal else []
    most = max([rival.num_queries for rival in rivals] or [standing.best["num_queries"]])
    texts = [needed_text(rival.num_needed or 0, rival.num_queries) for rival in rivals]
    named = [f"{text} against {rival.run}" for text, rival in zip(texts, rivals, strict=True)]
    if rivals:
        is_only = len(rivals) == 1 and not is_equal
        differences = f"needed for these differences: {_listed(named)}"
        parts.append(f"{texts[0]} would be needed for this difference" if is_only else differences)
    text = "; ".join([f"not settled with {counted(most, 'question')}", *parts])
    yield Finding(topic="certainty", text=text)


def needed_text(num_needed: int, num_queries: int) -> str:
    """Return how many questions would settle what ``num_queries`` do not."""
    if num_needed > MAX_QUESTIONS:
        return f"more than {MAX_QUESTIONS:,}"
    return f"about {max(num_needed, num_queries + 1):,}"


def not_compared(standing: Standing) -> Iterator[Finding]:
    """Yield the runs of which nothing can be said, and why."""
    texts = [f"{rival.run} ({rival.reason})" for rival in standing.of_state("not compared")]
    where = with_documents(standing.depth)
    texts += [f"{run} (no question has a score {where})" for run in standing.not_judged]
    if texts:
        text = f"not compared with {standing.runs[0]}: {_listed(texts)}"
        yield Finding(topic="missing", text=text, is_warning=True)
    few = standing.with_few_scores
    if few:
        texts = [f"{run} ({_mean(standing, {**standing.means[run], 'num_dropped': 1})})" for run in few]
        text = f"scores on less than half as many questions as another run, too few to lead: {_listed(texts)}"
        yield Finding(topic="missing", text=text, is_warning=True)


def other_depths(standing: Standing) -> Iterator[Finding]:
    """Yield what other depths show of runs that are not settled here, and where the order is another one."""
    if not standing.sign:
        return
    texts = [
        f"{with_documents(one.depth)} {run} is {_lead(standing, one)}"
        for run, other in itertools.permutations(standing.leaders, 2)
        for one in _significant_elsewhere(standing, run, other)
        if one.points > 0
    ]
    texts += [
        f"{with_documents(one.depth)} {standing.runs[0]} is {_lead(standing, one)}"
        for rival in standing.rivals
        for one in _significant_elsewhere(standing, standing.runs[0], rival.run)
        if len(standing.leaders) == 1
        if one.points < 0 or rival.state in ("inconclusive", "not compared")
    ]
    if texts:
        yield Finding(topic="depth", text=f"at other depths: {_listed(texts, '; ', '; ')}")


def _listed(names: Sequence[str], last: str = ", ", between: str = ", ") -> str:
    """Join at most `NUM_NAMED` names and the count of the others, the last one by a word such as " or "."""
    more = len(names) - NUM_NAMED
    shown = [*names[:NUM_NAMED], *([counted(more, "other")] if more > 0 else [])]
    return last.join([between.join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def listed_and(names: Sequence[str]) -> str:
    return _listed(names, " and ")


def _mean(standing: Standing, row: Mapping[str, Any]) -> str:
    over = _over(standing, row["num_queries"], row["num_dropped"])
    return _with_interval(row["mean"], row["low"], row["high"]) + over


def _over(standing: Standing, num_queries: int, num_dropped: int) -> str:
    """Return which questions a mean is over, where some have no score; with estimates, which answers it is from."""
    words = "from the answers to" if standing.num_estimated else "over"
    return f" {words} {counted(num_queries, 'question')}" if num_dropped else ""
