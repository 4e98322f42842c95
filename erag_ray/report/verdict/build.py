"""Compute the verdict: which run serves the reader best, with what certainty, and how well labels predict that.

Whether one run is better than another is decided in `erag_ray.report.verdict.standing`, which states the rule. Labels
are compared with utility at the largest depth.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl

from erag_ray.report.build import title_of
from erag_ray.report.formats import number, quoted, with_interval
from erag_ray.report.load import Results
from erag_ray.report.model import DatasetVerdict, Finding, Verdict
from erag_ray.report.tables.auxiliary import width_ratio
from erag_ray.report.tables.correlations import informative
from erag_ray.report.tables.outputs import MIN_OUTPUTS, ODD
from erag_ray.report.verdict.answer import answer, needed_questions, not_compared, other_depths
from erag_ray.report.verdict.labels import agreement_of_labels, failures_of_labels, labels_first
from erag_ray.report.verdict.leaderboard import ranking
from erag_ray.report.verdict.standing import Standing, standing
from erag_ray.runs import END_TO_END, GOLD_PASSAGES, NO_PASSAGES

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


def verdict(results: Results) -> Verdict:
    """Return the verdict over all datasets."""
    results = replace(results, correlations=informative(results.correlations))
    datasets = results.means["dataset"].unique().sort()
    standings = (standing(results, dataset) for dataset in datasets)
    verdicts = tuple(_of_dataset(results, ranked) for ranked in standings if ranked is not None)
    findings = (*_costs(results.costs), *_missing(results.missing))
    return Verdict(question=title_of(results), datasets=verdicts, findings=findings)


def _of_dataset(results: Results, standing: Standing) -> DatasetVerdict:
    findings = [
        *needed_questions(standing),
        *not_compared(standing),
        *other_depths(standing),
        *_auxiliary(results.auxiliary_means, standing),
        *_reader(standing),
        *_depth(results.best_depths, standing),
        *labels_first(results, standing),
        *agreement_of_labels(results, standing),
        *failures_of_labels(results.cell_shares, standing),
        *_outputs(results.outputs, standing),
    ]
    return DatasetVerdict(
        dataset=standing.dataset,
        answer=answer(standing),
        findings=tuple(findings),
        ranking=ranking(standing),
        score=standing.score,
        depth=standing.depth,
        num_queries=max(row["num_queries"] for row in standing.means.values()),
    )


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
        best = standing.best["mean"]
        worse = (
            without is not None and standing.sign * (without - best) >= 0 and best != 0 and standing.sign != 0
        )
        tail = "; no run serves it better than no passages at all" if worse else ""
        yield Finding(topic="reader", text=f"the reader scores {' and '.join(parts)}{tail}", is_warning=worse)


def _depth(best: pl.DataFrame, standing: Standing) -> Iterator[Finding]:
    rows = best.filter((pl.col("low") > 0) | (pl.col("high") < 0), dataset=standing.dataset)
    for row in (
        rows.sort(pl.col("difference").abs(), "run_id", descending=[True, False])
        .head(1)
        .iter_rows(named=True)
    ):
        sign = 1 if row["difference"] > 0 else -1
        low, high = sorted((sign * row["low"], sign * row["high"]))
        gain = f"{_with_interval(sign * row['difference'], low, high)} {'above' if sign > 0 else 'below'}"
        text = (
            f"fewer documents serve it better: {row['run_id']} with {row['depth']} is {gain} {row['deepest']}"
        )
        yield Finding(topic="depth", text=text)


def _outputs(outputs: pl.DataFrame, standing: Standing) -> Iterator[Finding]:
    rows = outputs.filter(pl.col("num_outputs") >= MIN_OUTPUTS, dataset=standing.dataset)
    counts = rows.select("num_outputs", *ODD_OUTPUTS).sum().row(0, named=True) if rows.height else {}
    odd = [
        f"{counts[column] / counts['num_outputs']:.0%} {name}"
        for column, name in ODD_OUTPUTS.items()
        if counts and (counts[column] or 0) > ODD[column] * counts["num_outputs"]
    ]
    if odd:
        yield Finding(topic="outputs", text=f"of the reader's outputs {', '.join(odd)}", is_warning=True)
    for row in outputs.filter(dataset=standing.dataset).head(1).iter_rows(named=True):
        majority = row["majority_score"]
        if majority is not None and standing.sign > 0 and majority > (standing.best["mean"] or 0):
            answer = quoted(row["majority_answer"], WIDTH)
            text = f"the most common gold answer, {answer}, alone would score {_number(majority)}"
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


def _tokens(count: int) -> str:
    return f"{count / 1e6:,.1f} million" if count >= 1e6 else f"{count:,}"


def _duration(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
