"""LIST_TOKENS: prompt tokens of the lists that the reader gets, next to their utility."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import polars as pl

from erag_ray.analyses.contract import READER, Analysis, View
from erag_ray.analyses.means import MEANS
from erag_ray.analyses.order import in_run_order
from erag_ray.analyses.parts.model import Format, Table
from erag_ray.analyses.parts.shapes import estimate, field, listing, name_field, rows_of
from erag_ray.data.runs.references import END_TO_END, REFERENCE_NAMES
from erag_ray.store.schemas import LIST_TOKENS, QUERIES


def show(view: View) -> Iterator[Table]:
    """Yield utility and mean prompt tokens of every run and depth, the reference runs last."""
    lengths = view.rows(LIST_TOKENS).group_by("run_id", "depth").agg(pl.col("num_prompt_tokens").mean())
    utility = view.rows(MEANS).filter(annotator=END_TO_END).select("run_id", "depth", "mean", "low", "high")
    order = [*view.runs, *REFERENCE_NAMES]
    lists = lengths.filter(pl.col("run_id").is_in(order)).join(utility, on=["run_id", "depth"], how="left")
    if view.results[LIST_TOKENS].height:
        yield listing(
            rows_of(in_run_order(lists, order).sort("run_number", "depth")),
            (
                name_field("run", lambda row: REFERENCE_NAMES.get(row["run_id"], row["run_id"])),
                field("documents", "depth", Format.COUNT),
                field("utility", functools.partial(estimate, name="mean")),
                field("prompt tokens", "num_prompt_tokens", Format.TENTHS),
            ),
            caption="Prompt tokens: mean length of what the reader gets end to end, with question and instructions, "
            "by its own tokens (served models: as the server counts; functions: estimated). Of two runs with equal "
            "utility the one with fewer tokens costs less. Utility: mean score of the reader's output.",
            **view.about("tokens", "utility and prompt tokens"),
        )


ANALYSIS = Analysis(shows=(LIST_TOKENS, MEANS, QUERIES), is_optional=True, show=show, group=READER)
