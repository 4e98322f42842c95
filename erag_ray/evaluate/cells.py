"""LABELS and UTILITY -> CELLS: where a list helps the reader, and where eRAG's label itself fails. Pure.

Of every question, run and depth three things are known without another reading: whether some document alone suffices
(eRAG's label), whether the list of all of them does (utility), and whether the reader needs none (closed book). They
make eight cells. The label cannot see that documents suffice only together (combined) nor that a useful document is
lost among others (distracted): the shares of these two bound how far it can be trusted on these data.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from erag_ray.agreement import wilson_interval
from erag_ray.annotators import SUFFICES
from erag_ray.evaluate.columns import DatasetColumns, NamedColumn, by_dataset, by_run, table_of
from erag_ray.evaluate.common import ANY, Floats, Settings
from erag_ray.evaluate.comparisons import NOT_JUDGED, comparisons
from erag_ray.evaluate.slices import with_slices
from erag_ray.runs import NO_PASSAGES, REFERENCES
from erag_ray.schemas import CELL_COMPARISONS, CELL_SHARES, CELLS, COMPLEMENTS, UTILITY, conform

CELL_OF: Mapping[tuple[bool, bool, bool], str] = {
    (True, True, False): "found",
    (True, True, True): "kept",
    (True, False, False): "distracted",
    (True, False, True): "distracted_known",
    (False, True, False): "combined",
    (False, True, True): "list_only",
    (False, False, True): "lost",
    (False, False, False): "missing",
}
"""Whether a document alone, the list, and the reader without documents suffice -> the cell."""
CELLS_MEANING: Mapping[str, str] = {
    "found": "a document alone suffices and so does the list: retrieval earns it",
    "kept": "the reader knows the answer and keeps it: such a question does not tell retrievers apart",
    "distracted": "a document alone suffices, the list does not: rerank, or give fewer documents",
    "distracted_known": "as distracted, and the reader knows the answer without documents",
    "combined": "only the list suffices: eRAG's label does not see evidence spread over several documents",
    "list_only": "the reader knows the answer, and with the list too, but with no document alone: the label is too "
    "strict",
    "lost": "the reader knows the answer, but not with the list nor with any document of it: worse than no retrieval",
    "missing": "nothing suffices: no useful document was found, or the gold answer is wrong",
}
"""Cell -> what it says, in reading order."""
RATES: Mapping[str, tuple[Collection[str], Collection[str]]] = {
    "combined_given_list": (("combined",), ("found", "kept", "combined", "list_only")),
    "distracted_given_alone": (
        ("distracted", "distracted_known"),
        ("found", "kept", "distracted", "distracted_known"),
    ),
}
"""Rate -> its event, and the questions that it is taken over, both as cells."""
COMPLEMENT_QUANTITIES: Mapping[str, str] = {
    "useful_a": "run A has a useful document",
    "useful_b": "run B has a useful document",
    "only_a": "run A has a useful document and run B has none",
    "only_b": "run B has a useful document and run A has none",
    "either": "A or B has a useful document",
    "gain": "A or B has a useful document, minus the share of the better one: the most that fusing the two can gain",
}
"""COMPLEMENTS.quantity -> what it is the share of."""
OF_LIST = ["reader", "score", "run_id", "query_id"]
_NAMES = list(CELLS_MEANING)


def cells(
    labels: pl.DataFrame,
    utility: pl.DataFrame,
    runs: pl.DataFrame,
    eligible: pl.DataFrame,
    threshold: float | None,
) -> pl.DataFrame:
    """CELLS of every list in UTILITY.

    A question without a list has no document that suffices. One document that does is enough, whether or not the others
    were judged. Where the annotator erag was not eligible, ``alone`` is null.

    Args:
        labels: LABELS; those of the annotator erag are used.
        utility: UTILITY.
        runs: RUNS.
        eligible: the `eligible_questions` of the annotator erag.
        threshold: a label or a utility of at least this suffices (None: `SUFFICES`).
    """
    least = SUFFICES if threshold is None else threshold
    keys = [*OF_LIST, "depth"]
    of_runs = utility.filter(~pl.col("run_id").is_in(REFERENCES))
    lists = of_runs.select(*keys, list=pl.col("value") >= least)
    first = _first_ranks(labels, lists, runs, least)
    of_erag = eligible.select("reader", "score", "query_id", is_eligible=True)
    lists = lists.join(of_erag, on=["reader", "score", "query_id"], how="left")
    single_document = pl.when("is_eligible").then(
        pl.when(pl.col("first_useful") <= pl.col("depth"))
        .then(True)
        .when((pl.col("first_unjudged") <= pl.col("depth")).fill_null(False).not_())
        .then(False)
    )
    joined = lists.join(first, on=OF_LIST, how="left").with_columns(alone=single_document)
    known = joined.join(_closed_book(utility, least), on=["reader", "score", "query_id"], how="left")
    named = known.join(_cell_names(), on=["alone", "list", "closed_book"], how="left")
    return pl.DataFrame(conform(named.select(CELLS.columns.names).sort(keys), CELLS))


def _first_ranks(
    labels: pl.DataFrame, lists: pl.DataFrame, runs: pl.DataFrame, threshold: float
) -> pl.DataFrame:
    """Columns of `OF_LIST`, first_useful and first_unjudged: the smallest such rank of each list, or null."""
    erag_labels = labels.filter(annotator="erag").select("reader", "score", "query_id", "doc_id", "label")
    ranked = runs.select("run_id", "query_id", "rank", "doc_id")
    documents = lists.select(OF_LIST).unique().join(ranked, on=["run_id", "query_id"])
    labelled = documents.join(erag_labels, on=["reader", "score", "query_id", "doc_id"], how="left")
    return labelled.group_by(OF_LIST).agg(
        first_useful=pl.col("rank").filter(pl.col("label") >= threshold).min(),
        first_unjudged=pl.col("rank").filter(pl.col("label").is_null()).min(),
    )


def _closed_book(utility: pl.DataFrame, threshold: float) -> pl.DataFrame:
    none = utility.filter(run_id=NO_PASSAGES)
    return none.select("reader", "score", "query_id", closed_book=pl.col("value") >= threshold)


def _cell_names() -> pl.DataFrame:
    rows = [(*facts, name) for facts, name in CELL_OF.items()]
    return pl.DataFrame(rows, schema=["alone", "list", "closed_book", "cell"], orient="row")


def cell_columns(cells: pl.DataFrame, queries: pl.DataFrame, settings: Settings) -> list[DatasetColumns]:
    """CELLS as columns over the queries of each dataset, under the measures ``alone`` (0 or 1) and ``cell``.

    A cell is its place in `CELLS_MEANING`.
    """
    index = pl.col("cell").replace_strict(_NAMES, range(len(_NAMES)), return_dtype=pl.Float64)
    measures = {"alone": pl.col("alone").cast(pl.Float64), "cell": index}
    values = [
        cells.with_columns(
            annotator=pl.lit("erag"),
            measure=pl.lit(measure),
            cutoff=pl.col("depth"),
            ideal=pl.lit(ANY),
            value=value,
        )
        for measure, value in measures.items()
    ]
    return by_dataset(values, pl.DataFrame(UTILITY.empty()), queries, settings)


def _of_measure(dataset: DatasetColumns, measure: str) -> list[NamedColumn]:
    return [item for item in dataset.columns if item[0]["measure"] == measure]


def _is_one_of(column: Floats, names: Collection[str]) -> Floats:
    """1 where the question is in one of these cells, 0 where it is in another, NaN where it is in none."""
    return np.where(np.isnan(column), np.nan, np.isin(column, [_NAMES.index(name) for name in names]))


def cell_shares(datasets: Sequence[DatasetColumns], slices: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """CELL_SHARES: the share of each cell and the two rates, with Wilson intervals; of all questions and by slice.

    Shares are over the questions that have a cell.

    Args:
        datasets: `cell_columns`.
        slices: SLICES.
        settings: whose confidence is taken.
    """
    rows = [
        (
            dataset.dataset,
            name["reader"],
            name["score"],
            name["run_id"],
            name["depth"],
            slice,
            value,
            *figures,
        )
        for whole in datasets
        for slice, value, dataset in [("", "", whole), *with_slices(whole, slices)]
        for name, column in _of_measure(dataset, "cell")
        for figures in _shares(column, settings.confidence)
    ]
    return table_of(rows, CELL_SHARES)


def _shares(column: Floats, confidence: float) -> Iterator[tuple[object, ...]]:
    """Cell or rate, its share with the interval, and the counts behind it."""
    known = column[~np.isnan(column)].astype(np.int64)
    counts = dict(zip(_NAMES, np.bincount(known, minlength=len(_NAMES)).tolist(), strict=True))
    every = {name: ((name,), _NAMES) for name in _NAMES}
    for name, (event, among) in {**every, **RATES}.items():
        positive, count = sum(counts[cell] for cell in event), sum(counts[cell] for cell in among)
        yield (name, *wilson_interval(positive, count, confidence), positive, count, len(column) - len(known))


def cell_comparisons(datasets: Sequence[DatasetColumns], settings: Settings) -> pl.DataFrame:
    """CELL_COMPARISONS: every two runs by each cell and by each rate's event, tested as in `comparisons`.

    The events of a rate are compared over the questions that count for it in both runs.

    Args:
        datasets: `cell_columns`.
        settings: as of `comparisons`.
    """
    rows = comparisons([_indicators(dataset) for dataset in datasets], settings)
    is_rate = pl.col("measure").is_in(list(RATES)) & (pl.col("reason") == NOT_JUDGED)
    reason = pl.when(is_rate).then(pl.lit("no question counts for the rate in both runs"))
    named = rows.with_columns(cell="measure", reason=reason.otherwise("reason"))
    return pl.DataFrame(conform(named.select(CELL_COMPARISONS.columns.names), CELL_COMPARISONS))


def _indicators(dataset: DatasetColumns) -> DatasetColumns:
    """Columns that are 1 where a question is in a cell or has a rate's event, under the name of either as measure."""
    columns: list[NamedColumn] = []
    for name, column in _of_measure(dataset, "cell"):
        columns += [({**name, "measure": cell}, _is_one_of(column, [cell])) for cell in _NAMES]
        for rate, (event, among) in RATES.items():
            counts = _is_one_of(column, among) == 1
            columns.append(({**name, "measure": rate}, np.where(counts, _is_one_of(column, event), np.nan)))
    return replace(dataset, columns=columns)


def complements(datasets: Sequence[DatasetColumns], settings: Settings) -> pl.DataFrame:
    """COMPLEMENTS of every two runs at each depth, over the questions where both are judged.

    A document is useful if it suffices alone. Intervals are Wilson's; the ends of ``gain``, which is the smaller one of
    ``only_a`` and ``only_b``, are the smaller ones of theirs.

    Args:
        datasets: `cell_columns`.
        settings: whose confidence is taken.
    """
    rows = [
        (dataset.dataset, name["reader"], name["score"], a, b, name["depth"], *figures)
        for dataset in datasets
        for name, runs in by_run(_of_measure(dataset, "alone"))
        for a, b in itertools.combinations(sorted(runs), 2)
        for figures in _complement(runs[a], runs[b], settings.confidence)
    ]
    return table_of(rows, COMPLEMENTS)


def _complement(a: Floats, b: Floats, confidence: float) -> Iterator[tuple[object, ...]]:
    """Quantity, share, low, high and counts, of two columns [num_queries] of 0, 1 and NaN."""
    known = ~np.isnan(a + b)
    in_a, in_b, count = a[known] == 1, b[known] == 1, int(known.sum())
    events = (in_a, in_b, in_a & ~in_b, in_b & ~in_a, in_a | in_b)
    shares = [wilson_interval(int(event.sum()), count, confidence) for event in events]
    # what A or B has beyond the better one is what the worse one alone has
    ends = zip(shares[2], shares[3], strict=True)
    gain = [None if one is None or other is None else min(one, other) for one, other in ends]
    for quantity, interval in zip(COMPLEMENT_QUANTITIES, [*shares, gain], strict=True):
        yield (quantity, *interval, count, len(a) - count)
