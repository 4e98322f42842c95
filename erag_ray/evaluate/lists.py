"""RUNS and LABELS -> matrices of labels in rank order; a document is looked up once, whatever is made of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.evaluate.common import Floats
from erag_ray.evaluate.lookup import Integers, numbered, places_of, taken
from erag_ray.numba_jit import compiled

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Documents:
    """The documents of all runs, run after run, list after list, in rank order."""

    run_ids: list[str]
    edges: Integers
    """[num_runs + 1], where the documents of each run start, and the end."""
    rows: Integers
    """[num_docs], the number of the query; -1: not asked."""
    ranks: Integers
    """[num_docs], from 1."""
    doc_ids: pl.Series

    def of_run(self, run_id: str) -> slice:
        """Where a run's documents stand."""
        number = self.run_ids.index(run_id)
        return slice(int(self.edges[number]), int(self.edges[number + 1]))


def documents_of(runs: pl.DataFrame, queries: pl.DataFrame, depth: int) -> Documents:
    """The documents of RUNS down to a depth; ``rows`` are places in ``queries``."""
    cut = taken(runs, runs["rank"].to_numpy() <= depth)
    lists, number = numbered(cut, ["run_id", "query_id"])
    named, run_of_list = numbered(lists, ["run_id"])
    run = run_of_list[number]
    if (np.diff(run) < 0).any():
        order = np.argsort(run, kind="stable")
        cut, number, run = cut[order], number[order], run[order]
    return Documents(
        run_ids=named["run_id"].to_list(),
        edges=np.searchsorted(run, np.arange(named.height + 1)),
        rows=rows_of(lists, queries)[number],
        ranks=cut["rank"].cast(pl.Int64).to_numpy(),
        doc_ids=cut["doc_id"],
    )


def rows_of(table: pl.DataFrame, queries: pl.DataFrame) -> Integers:
    """The place in ``queries`` of each row's query, -1 where it has none."""
    distinct, number = numbered(table, ["query_id"])
    found = distinct.join(
        queries.select("query_id").with_row_index("row"), on="query_id", how="left", maintain_order="left"
    )
    return found["row"].cast(pl.Int64).fill_null(-1).to_numpy()[number]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The documents of all runs with one annotator's labels, over the queries to which it applies."""

    documents: Documents
    num_queries: int
    rows: Integers
    """[num_docs], the number of the query among those; -1: the annotator does not apply."""
    places: Integers
    """[num_docs], where the document's label stands; -1: nowhere."""
    label_rows: Integers
    """[num_labels], the number of each label's query, or -1."""
    labels: Floats
    """[num_labels], NaN: not judged."""

    def matrix(self, run_id: str, depth: int) -> tuple[Floats, Integers, Integers]:
        """Labels [num_queries, depth] in rank order, the lists' lengths, and down to which rank all is judged."""
        return _fill(*self._documents(run_id), self.labels, self.num_queries, depth)

    def pool(self, run_ids: Collection[str], depth: int) -> tuple[Floats, Flags]:
        """Labels of the union of these runs' lists, descending, at least 0, and for which queries all were judged."""
        is_in, is_whole = np.zeros(len(self.labels), np.bool_), np.ones(self.num_queries, np.bool_)
        for run_id in run_ids:
            _add(*self._documents(run_id), self.labels, depth, is_in, is_whole)
        counts = np.bincount(self.label_rows[is_in], minlength=self.num_queries)
        found = _gather(self.label_rows, self.labels, is_in, self.num_queries, max(1, counts.max(initial=0)))
        # the labels are negative there, to stand in descending order
        found.sort(axis=1)
        # 0 - 0 is 0, and -0 would be a value of its own
        return 0.0 - found, is_whole

    def _documents(self, run_id: str) -> tuple[Integers, Integers, Integers]:
        part = self.documents.of_run(run_id)
        return self.rows[part], self.documents.ranks[part], self.places[part]


@compiled
def _fill(
    rows: Integers, ranks: Integers, places: Integers, labels: Floats, num_queries: int, depth: int
) -> tuple[Floats, Integers, Integers]:
    matrix = np.zeros((num_queries, depth))
    lengths = np.zeros(num_queries, np.int64)
    judged_to = np.full(num_queries, depth)
    for number in range(len(rows)):
        row, column = rows[number], ranks[number] - 1
        if row >= 0 and column < depth:
            lengths[row] += 1
            label = labels[places[number]] if places[number] >= 0 else np.nan
            if np.isnan(label):
                judged_to[row] = min(judged_to[row], column)
            else:
                matrix[row, column] = label
    return matrix, lengths, judged_to


@compiled
def _add(
    rows: Integers,
    ranks: Integers,
    places: Integers,
    labels: Floats,
    depth: int,
    is_in: Flags,
    is_whole: Flags,
) -> None:
    """A run's documents are put into a pool: its labels, and whether all documents of a query have one."""
    for number in range(len(rows)):
        if rows[number] >= 0 and ranks[number] <= depth:
            if places[number] >= 0:
                is_in[places[number]] = True
            if places[number] < 0 or np.isnan(labels[places[number]]):
                is_whole[rows[number]] = False


@compiled
def _gather(rows: Integers, labels: Floats, is_in: Flags, num_queries: int, width: int) -> Floats:
    """The labels in a pool, [num_queries, width], negative; 0 for the unjudged and behind the last."""
    matrix = np.zeros((num_queries, width))
    lengths = np.zeros(num_queries, np.int64)
    for place in range(len(rows)):
        if is_in[place]:
            if labels[place] > 0:
                matrix[rows[place], lengths[rows[place]]] = -labels[place]
            lengths[rows[place]] += 1
    return matrix


def judged(
    documents: Documents,
    labels: pl.DataFrame,
    label_rows: Integers,
    queries: pl.DataFrame,
    wanted: pl.DataFrame,
) -> Judged:
    """The documents with their labels.

    Args:
        documents: of the runs, numbered by ``queries``.
        labels: LABELS of one annotator.
        label_rows: its queries, numbered by ``queries``.
        queries: QUERIES.
        wanted: those of them to which it applies: their places are the rows of what is made.
    """
    rows = documents.rows
    if wanted.height < queries.height:
        # the last one stands for -1
        among_wanted = np.append(rows_of(queries, wanted), -1)
        rows, label_rows = among_wanted[rows], among_wanted[label_rows]
    places = places_of(rows, documents.doc_ids, label_rows, labels["doc_id"], wanted.height)
    return Judged(
        documents=documents,
        num_queries=wanted.height,
        rows=rows,
        places=places,
        label_rows=label_rows,
        labels=labels["label"].fill_null(np.nan).to_numpy(),
    )
