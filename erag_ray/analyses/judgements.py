"""JUDGEMENTS: verdicts of a judge on the reader's outputs."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from erag_ray.analyses.contract import READER, Analysis, Results, View
from erag_ray.analyses.outputs import MIN_OUTPUTS, in_order, kind_name
from erag_ray.analyses.parts.model import Format, Note, Table
from erag_ray.analyses.parts.shapes import field, listing, name_field
from erag_ray.store.schemas import JUDGEMENTS

ODD_JUDGEMENTS = 0.01
"""Share of outputs without a judgement above which there is a warning."""
SHOWN = {
    "num_correct": "correct",
    "num_incorrect": "incorrect",
    "num_abstained": "abstained",
    "num_unusable": "no judgement",
    "num_not_asked": "empty",
}


def show(view: View) -> Iterator[Table]:
    """Yield the shares of the judge's verdicts, by kind of list."""
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


def show_all(results: Results) -> Iterator[Note]:
    """Yield a warning for each kind of list with many outputs without a judgement."""
    yield from (Note(text=text, is_warning=True) for text in judgement_warnings(results[JUDGEMENTS]))


def judgement_warnings(judgements: pl.DataFrame) -> Iterator[str]:
    """Yield a warning for each kind of list of JUDGEMENTS with many outputs without a judgement."""
    is_odd = pl.col("num_unusable") > ODD_JUDGEMENTS * pl.col("num_outputs")
    for row in in_order(judgements.filter(pl.col("num_outputs") >= MIN_OUTPUTS, is_odd)):
        share = row["num_unusable"] / row["num_outputs"]
        yield (
            f"{row['dataset']}, {kind_name(row)}: {share:.1%} of the outputs have no judgement, and so no score; turn "
            "off the judge's thinking (judge.extra_body), or use another judge.model"
        )


ANALYSIS = Analysis(shows=(JUDGEMENTS,), is_optional=True, show=show, show_all=show_all, group=READER)
