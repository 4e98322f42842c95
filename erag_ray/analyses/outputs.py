"""Outputs of the reader: odd ones, which no retriever can change, and the verdicts of a judge on them."""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from erag_ray.analyses.contract import READER, Analysis, Results, View
from erag_ray.analyses.parts.formats import counted, number, quoted
from erag_ray.analyses.parts.model import Finding, Format, Note, Part, Table
from erag_ray.analyses.parts.shapes import field, listing, name_field, rows_of
from erag_ray.analyses.standing import Standing
from erag_ray.data.runs.references import END_TO_END, GOLD_PASSAGES, NO_PASSAGES
from erag_ray.inference.output_tables import SINGLE_DOCUMENT
from erag_ray.measures.agreement import TIE_DIGITS
from erag_ray.store.schemas import COMMON_OUTPUTS, JUDGEMENTS, OUTPUTS

NUM_SHOWN = 3
WIDTH = 40
"""Characters of an output that is quoted."""
MIN_OUTPUTS = 20
"""Kinds of lists with fewer outputs give no warning."""
ODD: Mapping[str, tuple[float, str]] = {
    "num_empty": (0.05, "are empty"),
    "num_at_limit": (0.1, "end at the limit of max_new_tokens, not by themselves"),
    "num_copied": (0.01, "repeat the answer of a worked example in the prompt (reader.num_examples)"),
    "num_misspelt": (0.02, "are an answer but for case or punctuation, and score 0"),
    "num_marked_up": (0.05, "are JSON, in \\boxed{} or have citation marks, which scores compare as text"),
}
"""Column of OUTPUTS -> share above which there is a warning, and its words."""
ODD_REPETITION = 0.1
"""There is a warning if one output is more frequent than the most common gold answer by more than this share."""
KIND = ["reader", "kind", "depth"]
ODD_OUTPUTS = {
    "num_empty": "empty",
    "num_at_limit": "cut at max_new_tokens",
    "num_copied": "copied from an example",
    "num_misspelt": "an answer in another case or punctuation, which scores 0",
    "num_marked_up": "in markup (JSON, \\boxed{}, citation marks)",
}
"""Column of OUTPUTS -> its name in a sentence."""
QUOTED = 30
"""Characters of an answer in a verdict."""


def kind_name(row: Mapping[str, Any]) -> str:
    names = {NO_PASSAGES: "no passages", GOLD_PASSAGES: "gold passages", SINGLE_DOCUMENT: "single documents"}
    lists = f"first {counted(row['depth'], 'document')}" if row["depth"] else "systems"
    return names.get(row["kind"]) or lists


def show(view: View) -> Iterator[Part]:
    """Yield the outputs of the reader by kind of list, and which of them are odd."""
    outputs, common = view.rows(OUTPUTS), view.rows(COMMON_OUTPUTS)
    if outputs.height:
        yield output_table(view, outputs, common)
    if view.standing is not None:
        yield from _findings(outputs, view.standing)


def output_table(view: View, outputs: pl.DataFrame, common: pl.DataFrame) -> Table:
    def most_common(row: Mapping[str, Any]) -> str:
        texts = of_kind(common, row).filter(pl.col("place") <= NUM_SHOWN).select("output", "share").rows()
        return "; ".join(f"{quoted(output, WIDTH)} ({of_all:.0%})" for output, of_all in texts)

    return listing(
        in_order(outputs.with_columns(pl.col(name) / pl.col("num_outputs") for name in ODD)),
        (
            name_field("given", kind_name),
            field("outputs", "num_outputs", Format.COUNT, "Number of outputs of the reader"),
            field("empty", "num_empty", Format.SHARE),
            field("at limit", "num_at_limit", Format.SHARE, "As long as max_new_tokens allows"),
            field("copied", "num_copied", Format.SHARE, "Answer of a worked example in the prompt"),
            field(
                "misspelt", "num_misspelt", Format.SHARE, "Right but for case or punctuation, which scores 0"
            ),
            field("markup", "num_marked_up", Format.SHARE, "JSON, \\boxed{} or citation marks, as text"),
            field("most common outputs", most_common, Format.TEXT),
        ),
        caption="Shares of outputs. at limit: as long as max_new_tokens allows. copied: the answer of a worked example "
        "in the prompt. misspelt: right but for case or punctuation, which scores 0. markup: JSON, \\boxed{} or "
        f"citation marks, as text. {_majority(outputs)}The ten most common outputs are in the tables common_outputs.",
        **view.about("outputs", "what the reader writes"),
    )


def in_order(outputs: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield rows by kind of list in order: no passages, single documents, lists by depth, gold passages."""
    positions = {NO_PASSAGES: 0, SINGLE_DOCUMENT: 1, END_TO_END: 2, GOLD_PASSAGES: 3}
    order = pl.col("kind").replace_strict(positions, return_dtype=pl.Int8)
    yield from rows_of(outputs.sort("reader", order, "depth"))


def of_kind(common: pl.DataFrame, row: Mapping[str, Any]) -> pl.DataFrame:
    return common.filter(pl.col(key) == row[key] for key in ("dataset", *KIND))


def _majority(outputs: pl.DataFrame) -> str:
    for row in rows_of(outputs.head(1)):
        answer, score = quoted(row["majority_answer"], WIDTH), number(row["majority_score"])
        share = f"{answer} ({row['majority_share']:.1%} of questions)"
        return f"The most common gold answer, {share}, alone scores {score}. "
    return ""


def _findings(outputs: pl.DataFrame, standing: Standing) -> Iterator[Finding]:
    """Yield which outputs of a dataset are odd, and whether the most common gold answer would score more."""
    rows = outputs.filter(pl.col("num_outputs") >= MIN_OUTPUTS)
    counts = rows.select("num_outputs", *ODD_OUTPUTS).sum().row(0, named=True) if rows.height else {}
    odd = [
        f"{counts[column] / counts['num_outputs']:.0%} {name}"
        for column, name in ODD_OUTPUTS.items()
        if counts and (counts[column] or 0) > ODD[column][0] * counts["num_outputs"]
    ]
    if odd:
        yield Finding(topic="outputs", text=f"of the reader's outputs {', '.join(odd)}", is_warning=True)
    for row in rows_of(rows.head(1)):
        majority = row["majority_score"]
        least = (standing.best["mean"] or 0) + 10**-TIE_DIGITS
        if majority is not None and standing.sign > 0 and majority > least:
            answer, score = quoted(row["majority_answer"], QUOTED), number(majority, drop_zero=True)
            text = f"the most common gold answer, {answer}, alone would score {score}"
            yield Finding(topic="outputs", text=text, is_warning=True)


def show_all(results: Results) -> Iterator[Note]:
    """Yield warnings about unusual outputs of a reader; kinds of lists with few outputs are left out."""
    enough = results[OUTPUTS].filter(pl.col("num_outputs") >= MIN_OUTPUTS)
    lines: list[str] = []
    for part in enough.sort("dataset").partition_by("dataset", maintain_order=True):
        for row in in_order(part):
            lines += _share_warnings(row, results[COMMON_OUTPUTS])
    for text in lines:
        yield Note(text=text, is_warning=True)


def _share_warnings(row: Mapping[str, Any], common: pl.DataFrame) -> Iterator[str]:
    start = f"{row['dataset']}, {kind_name(row)}: "
    for name, (limit, meaning) in ODD.items():
        share = (row[name] or 0) / row["num_outputs"]
        if share > limit:
            yield f"{start}{share:.1%} of the reader's outputs {meaning}"
    for output, share in of_kind(common, row).filter(place=1).select("output", "share").rows():
        if output.strip() and share > row["majority_share"] + ODD_REPETITION:
            yield (
                f"{start}{share:.1%} of the reader's outputs are {quoted(output, WIDTH)}; the most common gold answer, "
                f"{quoted(row['majority_answer'], WIDTH)}, is that of {row['majority_share']:.1%} of the questions"
            )


ANALYSIS = Analysis(shows=(OUTPUTS, COMMON_OUTPUTS), show=show, show_all=show_all, group=READER)


ODD_JUDGEMENTS = 0.01
"""Share of outputs without a judgement above which there is a warning."""
SHOWN = {
    "num_correct": "correct",
    "num_incorrect": "incorrect",
    "num_abstained": "abstained",
    "num_unusable": "no judgement",
    "num_not_asked": "empty",
}


def show_judgements(view: View) -> Iterator[Part]:
    """Yield the verdicts of the judge by kind of list, and how many outputs have none, if these are many."""
    rows = view.rows(JUDGEMENTS)
    shares = rows.with_columns(pl.col(name) / pl.col("num_outputs") for name in SHOWN)
    if rows.height:
        yield listing(
            in_order(shares),
            (
                name_field("given", kind_name),
                field("outputs", "num_outputs", Format.COUNT),
                *(field(head, name, Format.SHARE) for name, head in SHOWN.items()),
            ),
            caption="Shares of outputs. correct scores 1; incorrect, abstained and empty (not judged) score 0. no "
            "judgement: the judge wrote something else, or its request failed; the score is null.",
            is_main=True,
            **view.about("judgements", "verdicts of the judge on the outputs"),
        )
    total, unusable = (sum(rows[name].to_list()) for name in ("num_outputs", "num_unusable"))
    if total >= MIN_OUTPUTS and unusable > ODD_JUDGEMENTS * total:
        text = f"{unusable / total:.1%} of the outputs have no judgement, and so no score; turn off the "
        text += "judge's thinking (judge.extra_body), or use another judge.model"
        yield Finding(topic="missing", text=text, is_warning=True)


OF_JUDGEMENTS = Analysis(shows=(JUDGEMENTS,), is_optional=True, show=show_judgements, group=READER)
