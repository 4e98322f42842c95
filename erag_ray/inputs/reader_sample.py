"""Samples of the questions of each dataset, where a job asks its reader or its judge about a sample only."""

from __future__ import annotations

import polars as pl

from erag_ray.annotators import judged_pairs, request_specs
from erag_ray.config.job import JobConfig
from erag_ray.data.datasets.queries import sample
from erag_ray.data.runs.entries import pairs


def sample_each(queries: pl.DataFrame, num_queries: int | None, seed: int) -> pl.DataFrame:
    """Return QUERIES: a `sample` of each dataset (None: all)."""
    parts = queries.partition_by("dataset", maintain_order=True)
    return pl.concat([queries.clear(), *(sample(part, num_queries, seed) for part in parts)])


def sampled(config: JobConfig, queries: pl.DataFrame, num_queries: int | None) -> pl.DataFrame:
    """Return QUERIES: at most ``num_queries`` of each dataset (None: all), of those that the reader answers."""
    counts = [count for count in (config.reader_queries, num_queries) if count is not None]
    return sample_each(queries, min(counts, default=None), config.seed)


def reader_queries(config: JobConfig, queries: pl.DataFrame) -> pl.DataFrame:
    """Return the QUERIES that the reader answers: a sample of each dataset, all without ``reader_queries``."""
    return queries if config.reader_queries is None else sampled(config, queries, None)


def judged_queries(config: JobConfig, queries: pl.DataFrame) -> pl.DataFrame:
    """Return the QUERIES whose documents the judge grades: a sample of each dataset, all without its num_queries."""
    return sample_each(queries, config.judge.num_queries, config.seed)


def sampled_queries(config: JobConfig, annotator: str, queries: pl.DataFrame) -> pl.DataFrame:
    """Return the QUERIES about which the models of an annotator are asked; all if it needs none."""
    specs, selected = list(request_specs([annotator])), queries
    if any(spec.kind.role == "reader" for spec in specs):
        selected = reader_queries(config, queries)
    if any(spec.lists is judged_pairs for spec in specs):
        judged = judged_queries(config, queries)
        selected = selected.join(judged, on="query_id", how="semi", maintain_order="left")
    return selected


def sample_notes(config: JobConfig, queries: pl.DataFrame, runs: pl.DataFrame) -> list[str]:
    """Return how many questions the reader answers, and what the others would take, for the user."""
    read = reader_queries(config, queries)
    if read.height == queries.height:
        return []
    unread = runs.join(read, on="query_id", how="anti")
    num_lists = unread.select("run_id", "query_id").unique().height * len(config.depths)
    return [
        f"the reader answers {read.height:,} of {queries.height:,} questions (reader_queries); the others have "
        f"{pairs(unread).height:,} documents and {num_lists:,} lists in the runs"
    ]
