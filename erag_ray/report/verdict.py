"""Compute the verdict: which run serves the reader best, with what certainty, and how well labels predict that.

Runs are compared at the depth with the highest utility on average over runs. The choice among several depths is
corrected for (Bonferroni): p-values, already adjusted by Holm over pairs of runs, are multiplied by the number of
depths. Labels are compared with utility at the largest depth.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from erag_ray.agreement import num_needed
from erag_ray.evaluate import ANY, OWN_LIST, RATES
from erag_ray.report.build import title_of
from erag_ray.report.formats import number, quoted, with_interval
from erag_ray.report.load import Results
from erag_ray.report.model import DatasetVerdict, Finding, Verdict
from erag_ray.report.tables.auxiliary import width_ratio
from erag_ray.report.tables.correlations import STATISTIC_NAMES
from erag_ray.report.tables.outputs import MIN_OUTPUTS, ODD
from erag_ray.runs import END_TO_END, GOLD_PASSAGES, NO_PASSAGES, REFERENCES

MAX_QUESTIONS = 1_000_000
"""Larger numbers of needed questions are not printed."""
NUM_NAMED = 3
"""Runs or annotators that a sentence names."""
ODD_OUTPUTS = {
    "num_empty": "empty",
    "num_at_limit": "cut at max_new_tokens",
    "num_copied": "copied from an example",
}
"""Column of OUTPUTS -> its name in a sentence."""
WIDTH = 30
"""Maximum number of characters of a quoted answer."""
_number = functools.partial(number, drop_zero=True)
_with_interval = functools.partial(with_interval, drop_zero=True)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The best run against another run: the difference and whether it is significant."""

    run: str
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    num_queries: int
    detectable: float | None
    is_settled: bool

    @property
    def num_needed(self) -> int | None:
        """Questions needed to detect this difference with a power of 80 %, rounded up to two digits."""
        return num_needed(self.num_queries, self.detectable, self.difference)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Runs of one dataset at one depth, best first by mean utility."""

    dataset: str
    depth: int
    deepest: int
    """Largest depth of any list; labels are compared with utility at this depth."""
    score: str
    num_depths: int
    runs: Sequence[str]
    means: Mapping[str, Mapping[str, Any]]
    """run_id, references included -> row of MEANS."""
    rivals: Sequence[Comparison]
    """The best run against each other run, in the order of ``runs``."""

    @property
    def best(self) -> Mapping[str, Any]:
        """Row of MEANS of the best run."""
        return self.means[self.runs[0]]


def verdict(results: Results) -> Verdict:
    """Return the verdict over all datasets."""
    datasets = results.means["dataset"].unique().sort()
    standings = (standing(results, dataset) for dataset in datasets)
    verdicts = tuple(_of_dataset(results, ranked) for ranked in standings if ranked is not None)
    findings = (*_costs(results.costs), *_missing(results.missing))
    return Verdict(question=title_of(results), datasets=verdicts, findings=findings)


def standing(results: Results, dataset: str) -> Standing | None:
    """Rank the runs of a dataset at the depth with the highest mean utility; None without any utility."""
    utility = results.means.filter(
        pl.col("annotator") == END_TO_END, pl.col("dataset") == dataset
    ).drop_nulls("mean")
    candidates = utility.filter(pl.col("run_id").is_in(REFERENCES).not_())
    if candidates.is_empty():
        return None
    depths = (
        candidates.group_by("depth")
        .agg(pl.col("mean").mean().round(10))
        .sort("mean", "depth", descending=[True, False])
    )
    depth = depths.item(0, "depth")
    ranked = candidates.filter(depth=depth).sort("mean", "run_id", descending=[True, False])
    references = utility.filter(pl.col("run_id").is_in(REFERENCES)).sort("depth", descending=True)
    rows = {row["run_id"]: row for row in pl.concat([references, ranked]).iter_rows(named=True)}
    runs = ranked["run_id"].to_list()
    return Standing(
        dataset=dataset,
        depth=depth,
        deepest=depths["depth"].max(),  # type: ignore[arg-type]
        score=ranked.item(0, "score"),
        num_depths=depths.height,
        runs=runs,
        means=rows,
        rivals=list(_rivals(results, dataset, depth, runs, depths.height)),
    )


def _rivals(
    results: Results, dataset: str, depth: int, runs: Sequence[str], num_depths: int
) -> Iterator[Comparison]:
    rows = results.comparisons.filter(
        pl.col("annotator") == END_TO_END, pl.col("dataset") == dataset, pl.col("depth") == depth
    )
    pairs = {(row["run_a"], row["run_b"]): row for row in rows.iter_rows(named=True)}
    for run in runs[1:]:
        first, second = sorted((runs[0], run))
        if (first, second) in pairs:
            yield _comparison(
                pairs[first, second], run, first == run, num_depths, 1 - (results.confidence or 0.95)
            )


def _comparison(
    row: Mapping[str, Any], run: str, is_reversed: bool, num_depths: int, alpha: float
) -> Comparison:
    difference, low, high = row["difference"], row["low"], row["high"]
    if is_reversed:
        difference, low, high = (None if end is None else -end for end in (difference, high, low))
    p = None if row["p_adjusted"] is None else min(1.0, row["p_adjusted"] * num_depths)
    return Comparison(
        run=run,
        difference=difference,
        low=low,
        high=high,
        p=p,
        num_queries=row["num_queries"],
        detectable=row["detectable"],
        is_settled=p is not None and p <= alpha and bool(difference and difference > 0),
    )


def _of_dataset(results: Results, standing: Standing) -> DatasetVerdict:
    findings = [
        *_needed(standing),
        *_auxiliary(results.auxiliary_means, standing),
        *_reader(standing),
        *_depth(results.best_depths, standing),
        *_labels(results.means, standing),
        *_trust(results, standing),
        *_cells(results.cell_shares, standing),
        *_outputs(results.outputs, standing),
    ]
    return DatasetVerdict(dataset=standing.dataset, answer=_answer(standing), findings=tuple(findings))


def _answer(standing: Standing) -> str:
    run, at = standing.runs[0], f"with {standing.depth} {'document' if standing.depth == 1 else 'documents'}"
    mean = f"{standing.score} {_with_interval(standing.best['mean'], standing.best['low'], standing.best['high'])} {at}"
    if not standing.best["mean"]:
        return f"no run helps this reader: it never scores above 0 {at}"
    if len(standing.runs) == 1:
        return f"{run}: {mean}; there is no other run to compare it with"
    if not standing.rivals:
        return f"{run} leads with {mean}; the table comparisons, which says how sure that is, is missing"
    open_runs = [rival for rival in standing.rivals if not rival.is_settled]
    if not open_runs:
        return f"{run} serves the reader best: {mean}, {_lead(standing.rivals[0], standing.num_depths)}"
    if len(open_runs) < len(standing.rivals):
        beaten = len(standing.rivals) - len(open_runs)
        runs = "1 run is" if beaten == 1 else f"{beaten} runs are"
        listed = _listed([run, *(rival.run for rival in open_runs)])
        return f"{listed}: {run} leads with {mean}, {_lead(open_runs[0], standing.num_depths)}; {runs} worse"
    runs = "no two runs" if len(standing.rivals) > 1 else "the two runs do not"
    return f"{runs} differ significantly: {run} leads with {mean}, {_lead(standing.rivals[0], standing.num_depths)}"


def _lead(rival: Comparison, num_depths: int) -> str:
    if rival.difference is None:
        return f"and {rival.run} never scores above 0"
    ahead = f"{_number(rival.difference)} above {rival.run}"
    interval = "" if rival.low is None else f" [{_number(rival.low)}, {_number(rival.high)}]"
    depths = f" (Holm, {num_depths} depths)" if num_depths > 1 else ""
    return f"{ahead}{interval}, p {_p(rival.p)}{depths}"


def _needed(standing: Standing) -> Iterator[Finding]:
    rival = next((rival for rival in standing.rivals if not rival.is_settled), None)
    if rival is None or not standing.best["mean"]:
        return
    num, needed = rival.num_queries, rival.num_needed
    if rival.difference is None:
        text = f"there is no test against {rival.run}, which never scores above 0"
    elif needed is None:
        text = f"{standing.runs[0]} and {rival.run} are equal here"
    elif needed > MAX_QUESTIONS:
        text = f"more than {MAX_QUESTIONS:,} would be needed for so small a difference"
    else:
        text = f"about {max(needed, num + 1):,} would be needed for this difference"
    yield Finding(topic="certainty", text=f"not settled with {num:,} question{'s' * (num != 1)}; {text}")


def _auxiliary(means: pl.DataFrame, standing: Standing) -> Iterator[Finding]:
    """Yield how many questions were answered, and what the auxiliary label of the others adds."""
    rows = means.filter(annotator=END_TO_END, dataset=standing.dataset, depth=standing.depth)
    ratios = pl.Series(
        [width_ratio(row) for row in rows.iter_rows(named=True)], dtype=pl.Float64
    ).drop_nulls()
    if len(ratios):
        name, num_read, num_queries = rows.select("auxiliary", "num_read", "num_queries").row(0)
        text = f"{num_read:,} of {num_queries:,} questions were answered; with {name} of all, intervals are "
        text += f"{_number(ratios.median(), 2)} times as wide as without it"  # type: ignore[arg-type]
        yield Finding(topic="certainty", text=text)


def _reader(standing: Standing) -> Iterator[Finding]:
    without, gold = (standing.means.get(name, {}).get("mean") for name in (NO_PASSAGES, GOLD_PASSAGES))
    parts = [
        f"{_number(value)} {name}"
        for value, name in ((without, "without passages"), (gold, "with the gold passages"))
        if value is not None
    ]
    if parts:
        worse = without is not None and without >= standing.best["mean"] > 0
        tail = "; no run serves it better than no passages at all" if worse else ""
        yield Finding(topic="reader", text=f"the reader scores {' and '.join(parts)}{tail}", is_warning=worse)


def _depth(best: pl.DataFrame, standing: Standing) -> Iterator[Finding]:
    rows = best.filter(pl.col("low") > 0, dataset=standing.dataset).sort("difference", descending=True)
    for row in rows.head(1).iter_rows(named=True):
        gain = _with_interval(row["difference"], row["low"], row["high"])
        text = f"fewer documents serve it better: {row['run_id']} with {row['depth']} is {gain} above {row['deepest']}"
        yield Finding(topic="depth", text=text)


def _labels(means: pl.DataFrame, standing: Standing) -> Iterator[Finding]:
    """Yield which annotators rank the same run first, by P over the whole list."""
    if len(standing.runs) < 2 or not standing.best["mean"]:
        return
    rows = means.filter(
        pl.col("annotator") != END_TO_END,
        dataset=standing.dataset,
        depth=standing.deepest,
        measure="P",
        cutoff=standing.deepest,
        ideal=ANY,
    ).drop_nulls("mean")
    first = rows.sort("mean", "run_id", descending=[True, False]).unique(
        "annotator", keep="first", maintain_order=True
    )
    choices = sorted(first.select("annotator", "run_id").rows(), key=lambda row: (row[0] != "erag", row[0]))
    same = [annotator for annotator, run in choices if run == standing.runs[0]]
    other = [f"{annotator} ({run})" for annotator, run in choices if run != standing.runs[0]]
    heads = ("put the same run first:", "another:" if same else "put another run first:")
    parts = [f"{head} {', '.join(names)}" for head, names in zip(heads, (same, other), strict=True) if names]
    if parts:
        yield Finding(topic="label", text=f"labels (P@{standing.deepest}) that {'; '.join(parts)}")


def _trust(results: Results, standing: Standing) -> Iterator[Finding]:
    """Yield the agreement over queries of P with utility, per annotator, in the best run."""
    correlations = results.correlations.filter(
        pl.col("ideal").is_in([ANY, OWN_LIST]),
        over="queries",
        dataset=standing.dataset,
        run_id=standing.runs[0],
        depth=standing.deepest,
        cutoff=standing.deepest,
        measure="P",
    )
    for statistic in correlations["statistic"].unique(maintain_order=True).head(1):
        defined = correlations.filter(statistic=statistic).drop_nulls("value")
        best = defined.sort("value", descending=True)
        rows = list(best.head(NUM_NAMED + 1).iter_rows(named=True))
        if rows:
            symbol = STATISTIC_NAMES.get(statistic, statistic)
            text = f"agreement of P@{standing.deepest} with end-to-end ({symbol}, {standing.runs[0]}): "
            yield Finding(topic="trust", text=text + _ordered(rows, results.contrasts))
            return
    for why in correlations["reason"].drop_nulls().head(1):
        text = f"no label's agreement with end-to-end is defined: {why}"
        yield Finding(topic="trust", text=text, is_warning=True)


def _ordered(rows: Sequence[Mapping[str, Any]], contrasts: pl.DataFrame) -> str:
    """Format agreements, highest first; ``>`` where the paired interval of two neighbours excludes 0."""
    text = _agreement(rows[0])
    for row, following in itertools.pairwise(rows):
        sign = " > " if _is_settled(row, following["annotator"], contrasts) else ", "
        text += sign + _agreement(following)
    return text + (" (>: settled)" if " > " in text else "")


def _is_settled(row: Mapping[str, Any], other: str, contrasts: pl.DataFrame) -> bool:
    """Return whether the paired interval shows that an annotator agrees better than another."""
    keys = ("dataset", "run_id", "depth", "cutoff", "measure", "ideal", "statistic")
    rows = contrasts.filter(pl.col(key) == row[key] for key in keys)
    above = rows.filter(pl.col("low") > 0, annotator_a=row["annotator"], annotator_b=other)
    below = rows.filter(pl.col("high") < 0, annotator_a=other, annotator_b=row["annotator"])
    return above.height + below.height > 0


def _agreement(row: Mapping[str, Any]) -> str:
    value = f"{row['annotator']} {_with_interval(row['value'], row['low'], row['high'], 2)}"
    if row["annotator"] != "erag" or row["ceiling"] is None:
        return value
    return f"{value} of at most {_number(row['ceiling'], 2)}"


def _cells(shares: pl.DataFrame, standing: Standing) -> Iterator[Finding]:
    """Yield how often the list and the labels of single documents disagree, in the best run."""
    best = shares.filter(dataset=standing.dataset, run_id=standing.runs[0], depth=standing.deepest, slice="")
    rows = best.drop_nulls("share")
    rates = {row["cell"]: row for row in rows.filter(pl.col("cell").is_in(list(RATES))).iter_rows(named=True)}
    parts = [
        f"{_share(rates[rate])} of {text}"
        for rate, text in (
            ("combined_given_list", "answered questions have no document that suffices alone"),
            (
                "distracted_given_alone",
                "questions with a document that suffices are not answered from the list",
            ),
        )
        if rate in rates
    ]
    if parts:
        yield Finding(topic="trust", text=", ".join(parts))


def _share(row: Mapping[str, Any]) -> str:
    return f"{row['share']:.0%} [{row['low']:.0%}, {row['high']:.0%}]"


def _outputs(outputs: pl.DataFrame, standing: Standing) -> Iterator[Finding]:
    rows = outputs.filter(pl.col("num_outputs") >= MIN_OUTPUTS, dataset=standing.dataset)
    counts = rows.select("num_outputs", *ODD_OUTPUTS).sum().row(0, named=True) if rows.height else {}
    odd = [
        f"{counts[column] / counts['num_outputs']:.0%} {name}"
        for column, name in ODD_OUTPUTS.items()
        if counts and counts[column] > ODD[column] * counts["num_outputs"]
    ]
    if odd:
        yield Finding(topic="outputs", text=f"of the reader's outputs {', '.join(odd)}", is_warning=True)
    for row in outputs.filter(dataset=standing.dataset).head(1).iter_rows(named=True):
        majority = row["majority_score"]
        if majority is not None and majority > (standing.best["mean"] or 0):
            answer = quoted(row["majority_answer"], WIDTH)
            text = f"the commonest gold answer, {answer}, alone would score {_number(majority)}"
            yield Finding(topic="outputs", text=text, is_warning=True)


def _missing(missing: Sequence[str]) -> Iterator[Finding]:
    for line in missing:
        yield Finding(topic="missing", text=line, is_warning=True)


def _costs(costs: pl.DataFrame) -> Iterator[Finding]:
    if costs.height:
        yield Finding(topic="cost", text=f"cost: {cost_text(costs)}")


def cost_text(costs: pl.DataFrame) -> str:
    """Return COSTS in a line: requests, new ones in the last run, and what these took."""
    total = costs.select(pl.col("^num_.*$").sum(), pl.col("^.*seconds$").sum(), pl.col("price").sum()).row(
        0, named=True
    )
    requests, new = total["num_requests"], total["num_reader_calls"]
    parts = [f"{requests:,} requests, {new:,} of them new in the last run"]
    if new:
        parts.append(f"{_tokens(total['num_prompt_tokens'])} prompt tokens")
        parts.append(f"{_duration(total['device_seconds'])} of reader time")
    price = costs["price"].drop_nulls()
    parts += [f"price {price.sum():.4f}"] if len(price) else []
    return ", ".join(parts)


def _p(value: float | None) -> str:
    if value is None:
        return "not known"
    return "< .001" if value < 0.001 else _number(value)


def _tokens(count: int) -> str:
    return f"{count / 1e6:,.1f} million" if count >= 1e6 else f"{count:,}"


def _duration(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _listed(names: Sequence[str]) -> str:
    """Join at most `NUM_NAMED` names and the count of the others."""
    more = len(names) - NUM_NAMED
    return " or ".join([*names[:NUM_NAMED], *([f"{more} others"] if more > 0 else [])])
