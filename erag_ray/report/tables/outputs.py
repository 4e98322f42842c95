"""Tables and warnings about the outputs of a reader: empty, truncated, copied or misspelt ones, and judgements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from erag_ray.output_tables import SINGLE_DOCUMENT
from erag_ray.report.formats import counted, number, quoted, with_interval
from erag_ray.report.model import Column, Format, Table, Value
from erag_ray.report.values import columns, estimate, names, part_name, plain
from erag_ray.runs import END_TO_END, GOLD_PASSAGES, NO_PASSAGES, REFERENCES

NUM_SHOWN = 3
WIDTH = 40
"""Characters of an output that is quoted."""
MIN_OUTPUTS = 20
"""Kinds of lists with fewer outputs give no warning."""
ODD = {"num_empty": 0.05, "num_at_limit": 0.1, "num_copied": 0.01, "num_misspelt": 0.02}
"""Column of OUTPUTS -> share above which there is a warning."""
ODD_REPETITION = 0.1
"""There is a warning if one output is more frequent than the most common gold answer by more than this share."""
ODD_JUDGEMENTS = 0.01
"""Share of outputs without a judgement above which there is a warning."""
MEANINGS = {
    "num_empty": "are empty",
    "num_at_limit": "end at the limit of max_new_tokens, not by themselves",
    "num_copied": "repeat the answer of a worked example in the prompt (reader.num_examples)",
    "num_misspelt": "are an answer but for case or punctuation, and score 0",
}
KIND = ["reader", "kind", "depth"]


def kind_name(kind: str, depth: int) -> str:
    """Return a readable name for a kind of list."""
    names = {
        NO_PASSAGES: "no passages",
        GOLD_PASSAGES: "gold passages",
        SINGLE_DOCUMENT: "single documents",
    }
    return names.get(kind) or f"first {counted(depth, 'document')}"


OUTPUT_COLUMNS = (
    *names("given"),
    Column("outputs", Format.COUNT, "Number of outputs of the reader"),
    Column("empty", Format.SHARE),
    Column("at limit", Format.SHARE, "As long as max_new_tokens allows"),
    Column("copied", Format.SHARE, "The answer of a worked example in the prompt"),
    Column("misspelt", Format.SHARE, "An answer or verdict but for case or punctuation, which scores 0"),
    Column("commonest outputs", Format.TEXT),
)


def output_table(outputs: pl.DataFrame, common: pl.DataFrame, dataset: str) -> Table:
    """Return the shares of unusual outputs, and the most common outputs, by kind of list."""
    selected = outputs.filter(dataset=dataset)
    return Table(
        name=part_name("outputs", dataset),
        title=f"{dataset}: what the reader writes",
        columns=OUTPUT_COLUMNS,
        rows=tuple(_output_row(row, common) for row in _in_order(selected)),
        caption="Shares of outputs. at limit: as long as max_new_tokens allows. copied: the answer of a worked example "
        "in the prompt. misspelt: an answer or verdict but for case or punctuation, which scores 0. "
        f"{_majority(selected)}The ten commonest outputs are in the tables common_outputs.",
        dataset=dataset,
    )


JUDGEMENTS_SHOWN = {
    "num_correct": "correct",
    "num_incorrect": "incorrect",
    "num_abstained": "abstained",
    "num_unusable": "no judgement",
    "num_not_asked": "empty",
}


def judgement_table(judgements: pl.DataFrame, dataset: str) -> Table:
    """Return the shares of the judge's verdicts on a reader's outputs, by kind of list."""
    rows = tuple(
        plain(
            kind_name(row["kind"], row["depth"]),
            row["num_outputs"],
            *(row[name] / row["num_outputs"] for name in JUDGEMENTS_SHOWN),
        )
        for row in _in_order(judgements.filter(dataset=dataset))
    )
    return Table(
        name=part_name("judgements", dataset),
        title=f"{dataset}: verdicts of the judge on the outputs",
        columns=(
            *names("given"),
            Column("outputs", Format.COUNT),
            *columns(JUDGEMENTS_SHOWN.values(), Format.SHARE),
        ),
        rows=rows,
        caption="Shares of outputs. correct scores 1; incorrect, abstained and empty (not judged) score 0. no "
        "judgement: the judge wrote something else, or its request failed; the score is null.",
        is_main=True,
        dataset=dataset,
    )


def judgement_warnings(judgements: pl.DataFrame) -> Iterator[str]:
    """Yield a warning for each kind of list with many outputs without a judgement."""
    counted = judgements.filter(pl.col("num_outputs") >= MIN_OUTPUTS)
    for row in _in_order(counted.filter(pl.col("num_unusable") > ODD_JUDGEMENTS * pl.col("num_outputs"))):
        share = row["num_unusable"] / row["num_outputs"]
        yield (
            f"{row['dataset']}, {kind_name(row['kind'], row['depth'])}: {share:.1%} of the outputs have no judgement, "
            "and so no score; turn off the judge's thinking (judge.extra_body), or use another judge.model"
        )


def _in_order(outputs: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield rows of OUTPUTS in order: no passages, single documents, lists by depth, gold passages."""
    positions = {NO_PASSAGES: 0, SINGLE_DOCUMENT: 1, END_TO_END: 2, GOLD_PASSAGES: 3}
    order = pl.col("kind").replace_strict(positions, return_dtype=pl.Int8)
    yield from outputs.sort("reader", order, "depth").iter_rows(named=True)


def _output_row(row: Mapping[str, Any], common: pl.DataFrame) -> tuple[Value, ...]:
    shares = (None if row[name] is None else row[name] / row["num_outputs"] for name in ODD)
    commonest = common.filter(
        pl.col("place") <= NUM_SHOWN, *(pl.col(key) == row[key] for key in ("dataset", *KIND))
    )
    texts = (
        f"{quoted(output, WIDTH)} ({share:.0%})"
        for output, share in commonest.select("output", "share").rows()
    )
    return plain(kind_name(row["kind"], row["depth"]), row["num_outputs"], *shares, "; ".join(texts))


def _majority(outputs: pl.DataFrame) -> str:
    for row in outputs.head(1).iter_rows(named=True):
        answer, score = quoted(row["majority_answer"], WIDTH), number(row["majority_score"])
        return f"The commonest gold answer, {answer} ({row['majority_share']:.1%} of questions), alone scores {score}. "
    return ""


def depth_table(best: pl.DataFrame, dataset: str) -> Table:
    """Return the depth that serves the reader best in each run."""
    rows = best.filter(dataset=dataset).sort("reader", "run_id").iter_rows(named=True)
    return Table(
        name=part_name("best_depths", dataset),
        title=f"{dataset}: how many documents serve the reader best",
        columns=(
            *names("run"),
            Column("best depth", Format.COUNT),
            Column("deepest", Format.COUNT),
            Column("utility at the best depth minus at the deepest", Format.NUMBER),
        ),
        rows=tuple(
            (*plain(row["run_id"], row["depth"], row["deepest"]), _gain_of_depth(row)) for row in rows
        ),
        caption="Paired over queries; the interval is corrected for the number of runs and depths (Bonferroni). Since "
        "the best depth is chosen by the same queries, the difference is a little too large.",
        dataset=dataset,
    )


def _gain_of_depth(row: Mapping[str, Any]) -> Value:
    if not row["difference"]:
        return Value(reason="no depth serves better than the deepest lists")
    return estimate(row, "difference")


def output_warnings(
    outputs: pl.DataFrame, common: pl.DataFrame, best: pl.DataFrame, means: pl.DataFrame
) -> list[str]:
    """Return warnings about unusual outputs of a reader; kinds of lists with few outputs are left out."""
    counted = outputs.filter(pl.col("num_outputs") >= MIN_OUTPUTS)
    lines: list[str] = []
    for part in counted.sort("dataset").partition_by("dataset", maintain_order=True):
        for row in _in_order(part):
            lines += _share_warnings(row, common)
    return [*lines, *_majority_warnings(counted, means), *_depth_warnings(best)]


def _majority_warnings(outputs: pl.DataFrame, means: pl.DataFrame) -> Iterator[str]:
    """Yield a warning for each reader that scores below the most common gold answer."""
    utility = means.filter(pl.col("annotator") == END_TO_END, pl.col("run_id").is_in(REFERENCES).not_())
    best = utility.group_by("dataset", "reader").agg(utility=pl.col("mean").max())
    majorities = outputs.unique(["dataset", "reader"]).join(best, on=["dataset", "reader"])
    for row in (
        majorities.filter(pl.col("utility") < pl.col("majority_score")).sort("dataset").iter_rows(named=True)
    ):
        yield (
            f"{row['dataset']}: the reader's best utility is {number(row['utility'])}, and the commonest gold answer "
            f"alone, {quoted(row['majority_answer'], WIDTH)}, scores {number(row['majority_score'])}"
        )


def _share_warnings(row: Mapping[str, Any], common: pl.DataFrame) -> Iterator[str]:
    start = f"{row['dataset']}, {kind_name(row['kind'], row['depth'])}: "
    for name, limit in ODD.items():
        share = (row[name] or 0) / row["num_outputs"]
        if share > limit:
            yield f"{start}{share:.1%} of the reader's outputs {MEANINGS[name]}"
    first = common.filter(pl.col("place") == 1, *(pl.col(key) == row[key] for key in ("dataset", *KIND)))
    for output, share in first.select("output", "share").rows():
        if output.strip() and share > row["majority_share"] + ODD_REPETITION:
            yield (
                f"{start}{share:.1%} of the reader's outputs are {quoted(output, WIDTH)}; the commonest gold answer, "
                f"{quoted(row['majority_answer'], WIDTH)}, is that of {row['majority_share']:.1%} of the questions"
            )


def _depth_warnings(best: pl.DataFrame) -> Iterator[str]:
    differs = (pl.col("low") > 0) | (pl.col("high") < 0)
    for row in best.filter(differs).sort("dataset", "run_id").iter_rows(named=True):
        difference = with_interval(row["difference"], row["low"], row["high"])
        yield (
            f"{row['dataset']}, {row['run_id']}: fewer documents serve this reader better: best depth {row['depth']}, "
            f"difference from depth {row['deepest']} {difference}"
        )
