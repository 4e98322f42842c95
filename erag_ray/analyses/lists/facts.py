"""FACT_LABELS -> measures of ranked lists over the facts of each question, as columns of PER_QUERY."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from erag_ray.analyses.lists.matrices import Flags
from erag_ray.analyses.settings import ANY, OWN_LIST, Floats, ListValues, Name, Settings
from erag_ray.annotators import PAIR
from erag_ray.measures.lists import FACT_MEASURES, FactLists, Integers

QUERIES_AT_A_TIME = 2000


def fact_columns(
    labels: pl.DataFrame, runs: pl.DataFrame, queries: pl.DataFrame, settings: Settings
) -> list[ListValues]:
    """Return every measure of `FACT_MEASURES` of all lists.

    Queries with equal numbers of facts are computed at once. A query without a list has the value 0. A
    value is NaN where a document within the cut-off (with an ideal: any of its base) was not judged for all facts.
    ``labels`` are FACT_LABELS by one reader and score, ``queries`` those that have facts.
    """
    counts = labels.group_by("query_id").agg(num_facts=pl.col("fact").max())
    counted = queries.join(counts, on="query_id", how="left", maintain_order="left").with_row_index("number")
    columns: dict[Name, Floats] = {}
    for (num_facts,), alike in counted.group_by(pl.col("num_facts").fill_null(1), maintain_order=True):
        for part in alike.iter_slices(QUERIES_AT_A_TIME):
            for name, values in _columns(_documents(labels, runs, part, int(str(num_facts))), settings):
                columns.setdefault(name, np.empty(queries.height))[part["number"].to_numpy()] = values
    return list(columns.items())


@dataclass(frozen=True, kw_only=True)
class _Documents:
    """The documents of all runs, and their labels for each fact."""

    num_queries: int
    listed: pl.DataFrame
    """run_id, row (of the query), rank, pair (row of ``labels``)."""
    run_ids: pl.Series
    labels: Floats
    """[num_pairs, num_facts], NaN: not judged."""

    def lists(self, run_id: str, depth: int) -> tuple[Floats, Integers]:
        """Return labels [num_queries, depth, num_facts], 0 where not judged, and the rank down to which all is."""
        listed = self.listed.filter(pl.col("rank") <= depth, run_id=run_id)
        matrix = np.zeros((self.num_queries, depth, self.labels.shape[1]))
        matrix[listed["row"], listed["rank"] - 1] = self.labels[listed["pair"]]
        is_unjudged = np.any(np.isnan(matrix), axis=2)
        judged_to = np.where(is_unjudged.any(axis=1), is_unjudged.argmax(axis=1), depth)
        return np.nan_to_num(matrix), judged_to

    def pool(self, depth: int) -> tuple[Floats, Flags]:
        """Return labels [num_queries, width, num_facts] of all runs' documents, and whether a query's are judged."""
        pool = self.listed.filter(pl.col("rank") <= depth).select("row", "pair").unique().sort("row", "pair")
        position = pool.select(pl.int_range(pl.len()).over("row")).to_series()
        matrix = np.zeros((self.num_queries, int(str(position.max() or 0)) + 1, self.labels.shape[1]))
        matrix[pool["row"], position] = self.labels[pool["pair"]]
        is_whole = ~np.any(np.isnan(matrix).reshape(self.num_queries, -1), axis=1)
        return np.nan_to_num(matrix), is_whole


def _documents(labels: pl.DataFrame, runs: pl.DataFrame, queries: pl.DataFrame, num_facts: int) -> _Documents:
    listed = runs.join(queries.select("query_id", row=pl.int_range(pl.len())), on="query_id")
    pairs = listed.select(PAIR).unique().sort(PAIR).with_columns(pair=pl.int_range(pl.len()))
    known = labels.join(pairs, on=PAIR).drop_nulls("label")
    matrix = np.full((pairs.height, num_facts), np.nan)
    matrix[known["pair"], known["fact"] - 1] = known["label"]
    return _Documents(
        num_queries=queries.height,
        listed=listed.join(pairs, on=PAIR),
        run_ids=runs["run_id"].unique().sort(),
        labels=matrix,
    )


def _columns(documents: _Documents, settings: Settings) -> Iterator[ListValues]:
    for depth in settings.depths:
        pool = documents.pool(depth)
        for run_id in documents.run_ids:
            matrix, judged_to = documents.lists(run_id, depth)
            own_list = matrix, judged_to >= depth
            for name, (measure, uses_ideal) in FACT_MEASURES.items():
                for ideal in settings.ideals if uses_ideal else settings.ideals[:1]:
                    base, is_whole = own_list if ideal == OWN_LIST else pool
                    values = measure(FactLists(labels=matrix, ideal=base))
                    for cutoff in settings.cutoffs_at(depth):
                        known, shown = (is_whole, ideal) if uses_ideal else (judged_to >= cutoff, ANY)
                        column = np.where(known, values[:, cutoff - 1], np.nan)
                        yield (run_id, depth, name, cutoff, shown), column
