"""A comparison as a report: a few lines on the console, and the Markdown comment for a pull request."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from erag_ray.analyses.answer import needed_text
from erag_ray.analyses.costs import cost_text
from erag_ray.analyses.parts.formats import change, counted, number, quoted, with_documents
from erag_ray.analyses.parts.model import DatasetVerdict, Finding, Format, Report, Section, Table
from erag_ray.analyses.parts.model import Verdict as ReportVerdict
from erag_ray.analyses.parts.shapes import Row, estimate, field, listing, name_field, rows_of
from erag_ray.extras.gate.changes import Difference
from erag_ray.extras.gate.config import GateConfig
from erag_ray.extras.gate.decide import Decision, Verdict
from erag_ray.extras.gate.side import Side
from erag_ray.report.markdown import markdown
from erag_ray.store.schemas import LIST_OUTPUTS
from erag_ray.store.stages.stage import read_costs

MAX_LISTED = 10
"""Questions listed each way."""
WIDTH = 60
"""Maximum number of characters of a quoted text."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """The decision of a gate, and all that it rests on."""

    baseline: Side
    candidate: Side
    depth: int
    config: GateConfig
    pairs: pl.DataFrame
    """query_id, dataset, score, question, answers, baseline, candidate, difference: questions that both have judged."""
    num_unjudged: int
    """Questions without an end-to-end score in one of the two; they are left out."""
    num_predicted: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Dataset -> questions whose difference is predicted, instead of left out; only of datasets with predictions."""
    changes: Sequence[Difference]
    decisions: Mapping[str, Decision]
    """By dataset."""
    verdict: Verdict
    is_unchanged: bool
    """The reader got the same requests and its outputs score the same: there is nothing to test."""


def report_of(comparison: Comparison) -> Report:
    """Return the report of a comparison: verdict, tables by dataset, what changed, and the questions that changed."""
    baseline, candidate = comparison.baseline, comparison.candidate
    where = "" if baseline.folder == candidate.folder else f" of {candidate.folder}"
    sides = f"{candidate.run}{where} against {baseline.run} of {baseline.folder}"
    flipped = (_questions(comparison, "lost"), _questions(comparison, "won"))
    tables = (_by_dataset(comparison), _changed(comparison), *flipped)
    verdict = ReportVerdict(
        question=f"{sides}, {with_documents(comparison.depth)}: {comparison.verdict}",
        datasets=tuple(_of_dataset(comparison, name, one) for name, one in comparison.decisions.items()),
        findings=tuple(_findings(comparison)),
    )
    section = Section(name="gate", title="Gate", parts=tuple(table for table in tables if table.rows))
    return Report(title=f"Gate: {comparison.verdict}", verdict=verdict, sections=(section,))


def comment_of(report: Report) -> str:
    """Return a report as Markdown; changes are only in their table."""
    findings = tuple(one for one in report.verdict.findings if one.topic != "run")
    verdict = dataclasses.replace(report.verdict, findings=findings)
    return markdown(dataclasses.replace(report, verdict=verdict))


def _of_dataset(comparison: Comparison, name: str, one: Decision) -> DatasetVerdict:
    pairs = comparison.pairs.filter(dataset=name)
    means = [number(_mean(pairs, side), drop_zero=True) for side in ("baseline", "candidate")]
    scope = " on the answered questions" if name in comparison.num_predicted else ""
    interval = "" if one.low is None else f" [{change(one.low)}, {change(one.high)}]"
    answer = (
        f"{one.verdict}: {pairs['score'][0]} {means[0]} -> {means[1]}{scope}, difference "
        f"{change(one.difference)}{interval}, margin {number(comparison.config.margin, drop_zero=True)}"
    )
    findings = [Finding(topic="certainty", text=_needed(one))] if one.verdict == "not settled" else []
    return DatasetVerdict(dataset=name, answer=answer, findings=tuple(findings))


def _mean(pairs: pl.DataFrame, side: str) -> float:
    return float(pairs[side].to_numpy().mean())


def _needed(one: Decision) -> str:
    start = f"not settled with {counted(one.num_questions, 'question')}"
    if one.num_needed is None:
        return f"{start}; a difference of exactly -margin is settled by no number of questions"
    return f"{start}; {needed_text(one.num_needed, one.num_questions)} would be needed for this difference"


def _findings(comparison: Comparison) -> Iterator[Finding]:
    if comparison.is_unchanged:
        yield Finding(topic="certainty", text="the reader's requests and scores are the same in both")
    for kind in dict.fromkeys(one.kind for one in comparison.changes):
        texts = "; ".join(one.text for one in comparison.changes if one.kind == kind)
        yield Finding(topic="run", text=f"what changed: {kind}: {texts}")
    num_predicted = sum(comparison.num_predicted.values())
    if num_predicted:
        count = f"{num_predicted:,} of {comparison.num_unjudged + comparison.pairs.height:,}"
        text = f"questions without a score in one of the two, predicted from {comparison.config.auxiliary}: {count}"
        yield Finding(topic="certainty", text=text)
    if num_left_out := comparison.num_unjudged - num_predicted:
        text = f"questions without a score in one of the two, left out: {num_left_out:,}"
        yield Finding(topic="missing", text=text, is_warning=True)
    sides = (comparison.baseline, comparison.candidate)
    for side in sides[sides[0].folder == sides[1].folder :]:
        costs = read_costs(side.folder)
        if costs.height:
            yield Finding(topic="cost", text=f"cost of {side.folder}: {cost_text(costs)}")


def _how(comparison: Comparison) -> str:
    """Return how the verdicts follow from the bounds."""
    text = (
        f"Passed: the lower bound of the difference is above -{comparison.config.margin:g}. "
        f"Failed: the upper bound is below it. "
        f"Each bound holds with {100 * comparison.config.confidence:g} % (one-sided, paired over questions)."
    )
    if comparison.num_predicted:
        text += " Baseline and candidate are means of the answered questions, the difference is that of all."
    if len(comparison.decisions) == 1:
        return text
    return (
        f"{text} As a whole: passed if every dataset has passed, failed if one has failed. "
        "The verdicts on datasets are corrected by Holm, so that a bound on the right side may not suffice."
    )


def _by_dataset(comparison: Comparison) -> Table:
    return listing(
        (
            {"dataset": name, "pairs": comparison.pairs.filter(dataset=name), **vars(one)}
            for name, one in comparison.decisions.items()
        ),
        (
            name_field("dataset", "dataset"),
            name_field("score", lambda row: row["pairs"]["score"][0]),
            field("questions", "num_questions", Format.COUNT),
            field("baseline", lambda row: _mean(row["pairs"], "baseline")),
            field("candidate", lambda row: _mean(row["pairs"], "candidate")),
            field("difference", functools.partial(estimate, name="difference"), Format.CHANGE),
            field("won", lambda row: (row["pairs"]["difference"] > 0).sum(), Format.COUNT),
            field("lost", lambda row: (row["pairs"]["difference"] < 0).sum(), Format.COUNT),
            name_field("verdict", "verdict"),
        ),
        name="datasets",
        title="By dataset",
        caption=_how(comparison),
        is_main=True,
    )


def _changed(comparison: Comparison) -> Table:
    return listing(
        map(vars, comparison.changes),
        (name_field("what", "kind"), field("baseline -> candidate", "text", Format.TEXT)),
        name="changes",
        title="What changed",
        is_main=True,
    )


def _questions(comparison: Comparison, way: str) -> Table:
    """Return the questions whose score fell most (``lost``) or rose most (``won``), with both outputs."""
    sign = -1 if way == "lost" else 1
    rows = comparison.pairs.filter(pl.col("difference") * sign > 0)
    # among equal changes, questions of all datasets in turn
    ranked = rows.sort(pl.col("difference") * -sign, "query_id").with_columns(
        turn=pl.int_range(pl.len()).over("dataset")
    )
    first = ranked.sort(pl.col("difference") * -sign, "turn", "dataset").head(MAX_LISTED)
    for side in (comparison.baseline, comparison.candidate):
        of_run = side.store.read(LIST_OUTPUTS).filter(run_id=side.run, depth=comparison.depth)
        outputs = of_run.select("query_id", pl.col("output").alias(f"{side.name}_output"))
        first = first.join(outputs, on="query_id", how="left", maintain_order="left")
    more = f"The {MAX_LISTED} largest of {rows.height:,}. " if rows.height > MAX_LISTED else ""
    page = f"{comparison.candidate.folder.rstrip('/')}/report/index.html#view=question&id=ID"
    texts = {
        "question": "question",
        "gold answer": "gold_answer",
        "baseline's output": "baseline_output",
        "candidate's output": "candidate_output",
    }
    return listing(
        rows_of(first.with_columns(gold_answer=pl.col("answers").list.first())),
        (
            name_field("dataset", "dataset"),
            name_field("id", "query_id"),
            field("change", "difference", Format.CHANGE),
            *(field(head, functools.partial(_quoted, key), Format.TEXT) for head, key in texts.items()),
        ),
        name=way,
        title=f"Questions {way}",
        caption=f"{more}A question with its documents: {page}",
        is_main=True,
    )


def _quoted(key: str, row: Row) -> str:
    return "" if row[key] is None else quoted(row[key], WIDTH)
