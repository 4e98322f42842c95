"""Tables and a figure of credit inside the list, and of lists in another order or company."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from erag_ray.extras.credit.agreement import EFFECTS, LISTS
from erag_ray.report import (
    Column,
    Figure,
    Format,
    Table,
    Value,
    across,
    columns,
    estimate,
    names,
    part_name,
    plain,
)

LEAVE_ONE_OUT = "leave_one_out"


def parts(tables: Mapping[str, pl.DataFrame], dataset: str, runs: Sequence[str]) -> Iterator[Table | Figure]:
    """Yield the tables and figures of a dataset (`Extension.parts`)."""
    yield from credit_parts(tables["credit_agreement"], tables["credit_shares"], dataset, runs)
    if dataset in tables["order_effects"]["dataset"]:
        yield order_table(tables["order_effects"], dataset, runs)


def credit_parts(
    agreement: pl.DataFrame, shares: pl.DataFrame, dataset: str, runs: Sequence[str]
) -> Iterator[Table | Figure]:
    """Yield how labels order the documents of a list by credit, and what becomes of eRAG's label in the list.

    Args:
        agreement: CREDIT_AGREEMENT.
        shares: CREDIT_SHARES.
        dataset: the dataset.
        runs: its runs, in the order of the rows.
    """
    chosen = agreement.filter(dataset=dataset, slice="", over=LISTS)
    for statistic in chosen["statistic"].unique(maintain_order=True).head(1):
        rows = _by_run(chosen.filter(statistic=statistic), runs)
        yield _agreement_figure(rows, dataset, statistic)
        yield _agreement_table(rows, dataset, statistic)
    of_slices = _by_run(shares.filter(dataset=dataset), runs)
    for of_slice in of_slices["slice"].unique().sort():
        rows = of_slices.filter(slice=of_slice).drop_nulls("share")
        if rows.height:
            yield _share_table(rows, dataset, of_slice)


def order_table(effects: pl.DataFrame, dataset: str, runs: Sequence[str]) -> Table:
    """Return how far the end-to-end score moves when a list is put in another order or among unrelated documents.

    Args:
        effects: ORDER_EFFECTS.
        dataset: the dataset.
        runs: its runs, in the order of the rows.
    """
    rows = _by_run(effects.filter(dataset=dataset), runs)
    return Table(
        name=part_name("orders", dataset),
        title=f"{dataset}: the score when the list is changed",
        columns=(
            *names("run"),
            Column("documents", Format.COUNT),
            *names("change"),
            Column("difference", Format.CHANGE, "of the mean score, against the list as it is"),
            Column("p", Format.P_VALUE, "Holm, over runs, depths and changes"),
            Column("scores that change", Format.SHARE, "share of the questions"),
        ),
        rows=tuple(
            (
                *plain(row["run_id"], row["depth"], row["order"]),
                Value(
                    row["difference"], row["low_adjusted"], row["high_adjusted"], reason=row["reason"] or ""
                ),
                Value(row["p_adjusted"], reason=row["reason"] or ""),
                Value(row["share_changed"], row["share_low"], row["share_high"]),
            )
            for row in rows.iter_rows(named=True)
        ),
        caption="Intervals and p are paired over questions, with Holm's correction. A reader that does not see the "
        "order of its documents (FiD) cannot be moved by it.",
        dataset=dataset,
    )


def _by_run(rows: pl.DataFrame, runs: Sequence[str]) -> pl.DataFrame:
    order = pl.DataFrame({"run_id": list(runs), "number": range(len(runs))})
    return rows.join(order, on="run_id").sort("number", maintain_order=True).drop("number")


def _agreement_figure(rows: pl.DataFrame, dataset: str, statistic: str) -> Figure:
    data = rows.drop_nulls("agreement").select(
        pl.col("run_id").alias("run"), "annotator", "credit", "agreement", "low", "high"
    )
    return Figure(
        name=part_name("credit_agreement", dataset),
        title=f"{dataset}: which labels order a list's documents as credit does",
        data=data,
        mark="interval",
        x="agreement",
        y="annotator",
        low="low",
        high="high",
        color="run",
        facet="credit",
        x_title=f"{statistic} with credit, within lists",
        is_main=True,
        dataset=dataset,
    )


def _agreement_table(rows: pl.DataFrame, dataset: str, statistic: str) -> Table:
    annotators = rows["annotator"].unique(maintain_order=True).to_list()
    groups = rows.group_by("run_id", "depth", "credit", maintain_order=True)
    return Table(
        name=part_name("credit", dataset),
        title=f"{dataset}: {statistic} of labels with credit, within lists",
        columns=(*names("run"), Column("documents", Format.COUNT), *names("credit"), *columns(annotators)),
        rows=tuple(
            (
                *plain(*key),
                *across(
                    {row["annotator"]: estimate(row, "agreement") for row in part.iter_rows(named=True)},
                    annotators,
                ),
            )
            for key, part in groups
        ),
        caption="The mean over the lists in which both vary; intervals draw questions. Marginal and Shapley credits "
        "sum to the list's score minus the closed-book score, so they do not compete with labels in predicting "
        "it. A list of one document has its gain as credit.",
        dataset=dataset,
    )


def _share_table(rows: pl.DataFrame, dataset: str, of_slice: str) -> Table:
    chosen = rows.filter(credit=LEAVE_ONE_OUT) if LEAVE_ONE_OUT in rows["credit"] else rows
    by, keys = (["value"] if of_slice else []), ["run_id", "depth", "credit"]
    return Table(
        name=part_name("credit_shares", dataset, of_slice),
        title=f"{dataset}: documents by eRAG's label and their credit{f', by {of_slice}' if of_slice else ''}",
        columns=(
            *names("run"),
            Column("documents", Format.COUNT),
            *names("credit", *([of_slice] if of_slice else [])),
            *(Column(effect.replace("_", " "), Format.SHARE, meaning) for effect, meaning in EFFECTS.items()),
        ),
        rows=tuple(
            (
                *plain(*key),
                *across(
                    {row["effect"]: estimate(row, "share") for row in part.iter_rows(named=True)}, EFFECTS
                ),
            )
            for key, part in chosen.group_by([*keys, *by], maintain_order=True)
        ),
        caption="Shares of the documents down to this depth; intervals draw questions. "
        + " ".join(f"{effect.replace('_', ' ')}: {meaning}." for effect, meaning in EFFECTS.items()),
        dataset=dataset,
    )
