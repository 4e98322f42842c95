"""Tables and a figure of credit inside the list, and of lists in another order or company."""

import functools
from collections.abc import Iterator

import polars as pl

from erag_ray.analyses.contract import View
from erag_ray.analyses.order import in_run_order, symbol_of
from erag_ray.analyses.parts.model import Column, Figure, Format, Table, Value
from erag_ray.analyses.parts.shapes import crosstab, estimate, field, listing, name_field, names, rows_of
from erag_ray.extras.credit.agreement import CREDIT_AGREEMENT, CREDIT_SHARES, EFFECTS, LISTS
from erag_ray.extras.credit.orders import ORDER_EFFECTS

LEAVE_ONE_OUT = "leave_one_out"
LIST_COLUMNS = (*names("run"), Column("documents", Format.COUNT), *names("credit"))


def show_agreement(view: View) -> Iterator[Table | Figure]:
    """Yield how labels order the documents of a list by credit, by the job's first statistic."""
    chosen = view.rows(CREDIT_AGREEMENT).filter(slice="", over=LISTS)
    for statistic in chosen["statistic"].unique(maintain_order=True).head(1):
        rows = in_run_order(chosen.filter(statistic=statistic), view.runs)
        annotators = rows["annotator"].unique(maintain_order=True).to_list()
        is_fewer = pl.col("num_queries") < pl.col("num_queries").max()
        note = pl.when(is_fewer).then(pl.format("n={}", "num_queries")).otherwise(pl.lit(""))
        rows = rows.with_columns(note=note)
        yield _agreement_figure(view, rows, statistic)
        yield crosstab(
            rows.group_by("run_id", "depth", "credit", maintain_order=True),
            LIST_COLUMNS,
            "annotator",
            {name: Column(name) for name in annotators},
            lambda row: estimate(row, "agreement", row["note"]),
            caption="The mean over the lists in which both vary (n: over so many lists only, so not over the same); "
            "intervals are over questions. Marginal and Shapley credits sum to the list's score minus the closed-book "
            "score, so they do not compete with labels in predicting it. A list of one has its gain as credit.",
            **view.about("credit", f"{statistic} of labels with credit, within lists"),
        )


def _agreement_figure(view: View, rows: pl.DataFrame, statistic: str) -> Figure:
    return Figure(
        data=rows.drop_nulls("agreement").select(
            pl.col("run_id").alias("run"), "annotator", "credit", "agreement", "low", "high"
        ),
        mark="interval",
        x="agreement",
        y="annotator",
        low="low",
        high="high",
        color="run",
        facet="credit",
        x_title=f"{symbol_of(statistic)} with credit",
        is_main=True,
        **view.about("credit_agreement", "which labels order a list's documents as credit does"),
    )


def show_shares(view: View) -> Iterator[Table]:
    """Yield the shares of documents by label and credit (`EFFECTS`), over all questions and by slice."""
    of_slices = in_run_order(view.rows(CREDIT_SHARES), view.runs)
    for of_slice in of_slices["slice"].unique().sort():
        rows = of_slices.filter(slice=of_slice).drop_nulls("share")
        if rows.height:
            yield _share_table(view, rows, of_slice)


def show_orders(view: View) -> Iterator[Table]:
    """Yield how far the end-to-end score moves when a list is put in another order or among unrelated documents."""
    rows = in_run_order(view.rows(ORDER_EFFECTS), view.runs)
    if rows.height:
        yield listing(
            rows_of(rows.with_columns(low="low_adjusted", high="high_adjusted")),
            (
                name_field("run", "run_id"),
                field("documents", "depth", Format.COUNT),
                name_field("change", "order"),
                field(
                    "difference",
                    functools.partial(estimate, name="difference"),
                    Format.CHANGE,
                    "of the mean score, against the list as it is",
                ),
                field("p", "p_adjusted", Format.P_VALUE, "Holm, over runs, depths and changes"),
                field(
                    "scores that change",
                    lambda row: Value(row["share_changed"], row["share_low"], row["share_high"]),
                    Format.SHARE,
                    "share of the questions",
                ),
            ),
            caption="Intervals and p are paired over questions, with Holm's correction. A reader that does not see the "
            "order of its documents (FiD) cannot be moved by it.",
            **view.about("orders", "the score when the list is changed"),
        )


def _share_table(view: View, rows: pl.DataFrame, of_slice: str) -> Table:
    chosen = rows.filter(credit=LEAVE_ONE_OUT) if LEAVE_ONE_OUT in rows["credit"] else rows
    by = [of_slice] if of_slice else []
    return crosstab(
        chosen.group_by("run_id", "depth", "credit", *["value" for _ in by], maintain_order=True),
        (*LIST_COLUMNS, *names(*by)),
        "effect",
        {
            effect: Column(effect.replace("_", " "), Format.SHARE, meaning)
            for effect, meaning in EFFECTS.items()
        },
        functools.partial(estimate, name="share"),
        caption="Shares of the documents down to this depth; intervals are over questions. "
        + " ".join(f"{effect.replace('_', ' ')}: {meaning}." for effect, meaning in EFFECTS.items()),
        **view.about(
            "credit_shares",
            f"documents by eRAG's label and their credit{f', by {of_slice}' if of_slice else ''}",
            of_slice,
        ),
    )
