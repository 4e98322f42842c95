"""How much what is said of runs depends on the pool: labels -> POOLING, one run left out at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from erag_ray.agreement import agree_over_runs
from erag_ray.evaluate.columns import DIGITS, table_of
from erag_ray.evaluate.common import POOL, Settings
from erag_ray.evaluate.values import list_values
from erag_ray.schemas import POOLING

GROUP = ["dataset", "reader", "score", "annotator", "depth", "measure", "cutoff"]
TAU = "kendall_tau_b"


def pooling(
    labels: pl.DataFrame,
    runs: pl.DataFrame,
    applicable: Mapping[str, pl.Series],
    queries: pl.DataFrame,
    settings: Settings,
) -> pl.DataFrame:
    """POOLING: what measures with a pooled ideal lose when a run, and what only it has found, leaves the pool.

    After Zobel (SIGIR 1998): a pool is fair to a run that it does not hold if the others keep their order and values.
    ``tau`` compares the order of the other runs' means with and without it, ``shift`` is the largest change of a mean
    among them, ``judged`` the share of the run's own documents that have a label, over the annotator's queries. At the
    full depth and its cut-off.

    Args:
        labels: as for `list_values`, and so the others.
        runs: RUNS.
        applicable: annotator -> query_ids.
        queries: QUERIES.
        settings: what to compute.
    """
    deepest = replace(settings, depths=[max(settings.depths)], cutoffs=[])
    cut = runs.filter(pl.col("rank") <= max(settings.depths))
    whole = _means(labels, cut, applicable, queries, deepest)
    rows: list[tuple[object, ...]] = []
    for run_id in cut["run_id"].unique().sort():
        others = cut.filter(pl.col("run_id") != run_id)
        if others.is_empty():
            continue
        without = _means(labels, others, applicable, queries, deepest)
        rows += _changes(run_id, whole.join(without, on=[*GROUP, "run_id"], suffix="_without"))
    judged = _judged(labels, cut, queries)
    table = pl.DataFrame(rows, schema=[*GROUP, "run_id", "num_runs", "tau", "shift", "reason"], orient="row")
    typed = table.cast(dict.fromkeys(("dataset", "reader", "score", "annotator", "run_id"), pl.String))
    joined = typed.join(judged, on=["dataset", "reader", "score", "annotator", "run_id"], how="left")
    return table_of(joined.select(POOLING.columns.names).rows(), POOLING)


def _means(
    labels: pl.DataFrame,
    runs: pl.DataFrame,
    applicable: Mapping[str, pl.Series],
    queries: pl.DataFrame,
    settings: Settings,
) -> pl.DataFrame:
    values = list_values(labels, runs, applicable, queries, settings).filter(pl.col("ideal") == POOL)
    named = values.join(queries.select("query_id", "dataset"), on="query_id")
    return named.group_by(*GROUP, "run_id", maintain_order=True).agg(pl.col("value").mean().round(DIGITS))


def _changes(run_id: str, both: pl.DataFrame) -> Iterator[tuple[object, ...]]:
    for key, part in both.drop_nulls(["value", "value_without"]).group_by(GROUP, maintain_order=True):
        first, second = part["value"].to_numpy(), part["value_without"].to_numpy()
        found = agree_over_runs(first, second, TAU)
        shift = float(np.abs(first - second).max())
        # the order of a few runs is a fact about them, so the lack of a p-value is no reason
        yield (
            *key,
            run_id,
            part.height,
            found.value,
            shift,
            None if found.value is not None else found.reason,
        )


def _judged(labels: pl.DataFrame, runs: pl.DataFrame, queries: pl.DataFrame) -> pl.DataFrame:
    """The share of each run's documents that have a label, by annotator."""
    named = runs.join(queries.select("query_id", "dataset"), on="query_id")
    parts = []
    for key, own in labels.group_by("reader", "score", "annotator", maintain_order=True):
        asked = named.join(own.select("query_id", "doc_id", "label"), on=["query_id", "doc_id"], how="inner")
        shares = asked.group_by("dataset", "run_id").agg(judged=pl.col("label").is_not_null().mean())
        names = dict(zip(("reader", "score", "annotator"), map(pl.lit, key), strict=True))
        parts.append(shares.with_columns(**names))
    return pl.concat(parts)
