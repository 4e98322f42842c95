"""Prompt tokens of the lists that the reader gets, beside their utility."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from erag_ray.report.model import Column, Format, Table, Value
from erag_ray.report.values import estimate, names, part_name
from erag_ray.runs import END_TO_END, REFERENCE_NAMES


def token_table(
    tokens: pl.DataFrame, queries: pl.DataFrame, means: pl.DataFrame, dataset: str, runs: Sequence[str]
) -> Table:
    """Return utility and mean prompt tokens of every run and depth, by run and with the fewest documents first.

    Args:
        tokens: LIST_TOKENS.
        queries: QUERIES.
        means: MEANS.
        dataset: the dataset.
        runs: its runs, in the order of the rows; the reference runs stand last.
    """
    of_dataset = queries.filter(dataset=dataset).select("query_id")
    lengths = tokens.join(of_dataset, on="query_id", how="semi").group_by("run_id", "depth")
    means_of_lists = lengths.agg(pl.col("num_prompt_tokens").mean()).iter_rows()
    by_list = {(run, depth): length for run, depth, length in means_of_lists}
    utility = means.filter(dataset=dataset, annotator=END_TO_END)
    scores = {(row["run_id"], row["depth"]): estimate(row, "mean") for row in utility.iter_rows(named=True)}
    order = [*runs, *REFERENCE_NAMES]
    lists = sorted(
        (pair for pair in by_list if pair[0] in order), key=lambda pair: (order.index(pair[0]), pair[1])
    )
    return Table(
        name=part_name("tokens", dataset),
        title=f"{dataset}: utility and prompt tokens",
        columns=(
            *names("run"),
            Column("documents", Format.COUNT),
            Column("utility", Format.NUMBER),
            Column("prompt tokens", Format.TENTHS),
        ),
        rows=tuple(
            (
                Value(REFERENCE_NAMES.get(run, run)),
                Value(depth),
                scores.get((run, depth), Value()),
                Value(by_list[run, depth]),
            )
            for run, depth in lists
        ),
        caption="Prompt tokens: mean length of what the reader gets end to end, with question and instructions, by its "
        "own tokens (served models: as the server counts; functions: estimated). Of two runs with equal utility the "
        "one with fewer tokens costs less. Utility: mean score of the reader's output.",
        dataset=dataset,
    )
