"""RUNS and LABELS -> matrices of labels in rank order; a document is looked up once, whatever is made of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.analyses.settings import Floats
from erag_ray.annotators import PAIR
from erag_ray.measures.lists import Integers, pad

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Listed:
    """The documents of a run, each [num_docs]."""

    rows: Integers
    """Numbers of the queries."""
    ranks: Integers
    places: Integers
    """Of the labels; num_labels: the document has none."""

    def to_depth(self, depth: int) -> Listed:
        is_above = self.ranks <= depth
        if is_above.all():
            return self
        return Listed(rows=self.rows[is_above], ranks=self.ranks[is_above], places=self.places[is_above])


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The documents of all runs with one annotator's labels, over the queries that it was asked about."""

    num_queries: int
    documents: Mapping[str, Listed]
    """run_id -> its documents."""
    label_rows: Integers
    """[num_labels], the number of each label's query, ascending."""
    labels: Floats
    """[num_labels + 1], NaN: not judged; so is the last one, of documents without a label."""

    def matrix(self, run_id: str, depth: int) -> tuple[Floats, Integers, Integers]:
        """Labels [num_queries, depth] in rank order, the lists' lengths, and down to which rank all is judged."""
        documents = self.documents[run_id].to_depth(depth)
        matrix = np.zeros((self.num_queries, depth))
        matrix[documents.rows, documents.ranks - 1] = self.labels[documents.places]
        is_unjudged = np.isnan(matrix)
        matrix[is_unjudged] = 0.0
        judged_to = np.where(is_unjudged.any(axis=1), is_unjudged.argmax(axis=1), depth)
        return matrix, np.bincount(documents.rows, minlength=self.num_queries), judged_to

    def pool(self, run_ids: Collection[str], depth: int) -> tuple[Floats, Flags]:
        """Labels of the union of these runs' lists, descending, at least 0, and for which queries all were judged."""
        is_in, is_whole = np.zeros(len(self.labels), np.bool_), np.ones(self.num_queries, np.bool_)
        for run_id in run_ids:
            documents = self.documents[run_id].to_depth(depth)
            is_in[documents.places] = True
            is_whole[documents.rows[np.isnan(self.labels[documents.places])]] = False
        labels = self.labels[:-1][is_in[:-1]]
        counts = np.bincount(self.label_rows[is_in[:-1]], minlength=self.num_queries)
        # negative, to stand in descending order; what is not judged counts 0
        negated = pad(np.where(labels > 0, -labels, 0.0), counts, max(1, counts.max(initial=0)))
        negated.sort(axis=1)
        # 0 - 0 is 0, and -0 would be a value of its own
        return 0.0 - negated, is_whole


def judged(runs: Mapping[str, pl.DataFrame], labels: pl.DataFrame, queries: pl.DataFrame) -> Judged:
    """The documents of runs, by their run_id, with the LABELS of one annotator.

    ``queries`` are those that it was asked about; their places are the rows of what is made.
    """
    numbers = queries.select("query_id", row=pl.int_range(pl.len()))
    known = labels.join(numbers, on="query_id").sort("row")
    numbered = known.select(*PAIR, place=pl.int_range(pl.len()))
    documents = {}
    for run_id, run in runs.items():
        listed = run.join(numbers, on="query_id").join(numbered, on=PAIR, how="left")
        places = listed["place"].fill_null(known.height).to_numpy()
        documents[run_id] = Listed(
            rows=listed["row"].to_numpy(), ranks=listed["rank"].to_numpy(), places=places
        )
    return Judged(
        num_queries=queries.height,
        documents=documents,
        label_rows=known["row"].to_numpy(),
        labels=np.append(known["label"].fill_null(np.nan).to_numpy(), np.nan),
    )
