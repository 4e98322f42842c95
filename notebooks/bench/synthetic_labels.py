"""Runs, labels and utilities to measure evaluation with: as large and as sparse as those of the paper's Table 1."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.store.schemas import LABELS, QUERIES, RUNS, UTILITY, conform

READER = "reader"
FIRST = 10
"""So many documents of a list decide what the reader makes of it."""


@dataclass(frozen=True, kw_only=True)
class Tables:
    """Inputs of an evaluation: QUERIES, RUNS, LABELS and UTILITY."""

    queries: pl.DataFrame
    runs: pl.DataFrame
    labels: pl.DataFrame
    used: pl.DataFrame


def tables(
    num_queries: int,
    depth: int,
    annotators: list[str],
    seed: int,
    *,
    dataset: str = "generated",
    num_runs: int = 2,
    graded: bool = False,
) -> Tables:
    """Generate tables of two runs that share about half of their documents.

    Every query has twice as many documents as a list; each run draws its list from them.

    Labels are 0 or 1, in a share of 2, 5 or 20 % of a query's documents; with ``graded`` those of the annotator erag,
    and the utility, have three digits.
    """
    random = np.random.default_rng(seed)
    ids = pl.Series([f"{dataset}-{number:08x}" for number in random.permutation(num_queries)])
    score = "token_f1" if graded else "exact_match"
    queries = pl.DataFrame({"query_id": ids}).with_columns(
        dataset=pl.lit(dataset), question=pl.lit("?"), answers=pl.lit(["answer"]), score=pl.lit(score)
    )
    chosen = [
        random.random((num_queries, 2 * depth)).argsort(axis=1)[:, :depth].copy() for _ in range(num_runs)
    ]
    useful = random.random((num_queries, 2 * depth)) < random.choice([0.02, 0.05, 0.2], (num_queries, 1))
    parts = [_run(f"run{number}", ids, documents) for number, documents in enumerate(chosen)]
    used = [
        _utility(f"run{number}", ids, np.take_along_axis(useful, documents, 1), random, score)
        for number, documents in enumerate(chosen)
    ]
    runs = pl.concat(parts)
    pairs = runs.select("query_id", "doc_id").unique().sort("query_id", "doc_id")
    known = runs.select("query_id", "doc_id", label=pl.Series(_labels(useful, chosen))).unique(
        ["query_id", "doc_id"]
    )
    labelled = pairs.join(known, on=["query_id", "doc_id"], how="left", maintain_order="left")
    data = Tables(
        queries=queries.select(QUERIES.columns.names),
        runs=runs,
        labels=pl.concat([_annotated(name, labelled, random, score) for name in annotators]),
        used=pl.concat(used),
    )
    for table, schema in (
        (data.queries, QUERIES),
        (data.runs, RUNS),
        (data.labels, LABELS),
        (data.used, UTILITY),
    ):
        conform(table, schema, unique=False)
    return data


def _run(name: str, ids: pl.Series, documents: npt.NDArray[np.integer]) -> pl.DataFrame:
    count, depth = documents.shape
    query = np.repeat(np.arange(count), depth)
    # ids of different documents from query to query, some of them shared, as passages are
    numbers = pl.Series(documents.ravel() + query * 37 % 1_000_003)
    columns = {
        "query_id": ids[query],
        "rank": np.tile(np.arange(1, depth + 1, dtype=np.int32), count),
        "doc_id": numbers.cast(pl.String),
    }
    return pl.DataFrame(columns).select(
        run_id=pl.lit(name), query_id="query_id", rank="rank", doc_id="doc_id", score=pl.lit(None, pl.Float64)
    )


def _labels(
    useful: npt.NDArray[np.bool_], chosen: Sequence[npt.NDArray[np.integer]]
) -> npt.NDArray[np.float64]:
    return np.concatenate([np.take_along_axis(useful, one, 1).ravel() for one in chosen]).astype(np.float64)


def _utility(
    run_id: str, ids: pl.Series, useful: npt.NDArray[np.bool_], random: np.random.Generator, score: str
) -> pl.DataFrame:
    value = useful[:, :FIRST].mean(axis=1) + random.normal(0, 0.2, len(useful))
    scored = np.clip(value, 0, 1).round(3) if score == "token_f1" else (value > 0.2).astype(np.float64)
    return pl.DataFrame({"query_id": ids, "value": scored}).select(
        reader=pl.lit(READER),
        score=pl.lit(score),
        run_id=pl.lit(run_id),
        query_id="query_id",
        depth=pl.lit(useful.shape[1], pl.Int32),
        value="value",
    )


def _annotated(
    annotator: str, labelled: pl.DataFrame, random: np.random.Generator, score: str
) -> pl.DataFrame:
    """Labels with an error in one of a hundred."""
    is_erag = annotator == "erag"
    flipped = random.random(labelled.height) < 0.01
    label = np.where(flipped, 1 - labelled["label"].to_numpy(), labelled["label"].to_numpy())
    if is_erag and score == "token_f1":
        label = (label * random.random(len(label))).round(3)
    return labelled.select(
        reader=pl.lit(READER if is_erag else ""),
        score=pl.lit(score if is_erag else ""),
        annotator=pl.lit(annotator),
        query_id="query_id",
        doc_id="doc_id",
        label=pl.Series(label),
    )
