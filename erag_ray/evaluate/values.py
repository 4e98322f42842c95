"""Readings -> UTILITY; LABELS -> LIST_VALUES."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.annotators import annotator_named
from erag_ray.evaluate.common import ANY, OWN_LIST, POOL, Floats, Settings
from erag_ray.measures import (
    MEASURES,
    Kind,
    Lists,
    Measure,
    check_measures,
    compute_all,
    measures_for,
    own_ideal,
    pad,
)
from erag_ray.names import find
from erag_ray.schemas import LIST_VALUES, READINGS, UTILITY, conform
from erag_ray.scores import score_named, score_outputs


def asked_measures(names: Sequence[str] | None, kind: Kind, threshold: float | None) -> list[str]:
    """The measures that a column of labels gets: those asked for, else all that it allows."""
    return measures_for(kind, threshold) if names is None else list(names)


def kind_of_labels(annotator: str, score: str) -> Kind:
    """What an annotator's labels are declared to be, for queries with this score."""
    declared = annotator_named(annotator).kind
    return declared or ("binary" if score_named(score).binary else "graded")


def utility(
    lists: pl.DataFrame, asks: pl.DataFrame, readings: pl.DataFrame, queries: pl.DataFrame
) -> pl.DataFrame:
    """UTILITY: the score of what the reader said with each list.

    Args:
        lists: columns run_id, query_id, depth, doc_ids.
        asks: ASKS that hold each of these lists.
        readings: READINGS that hold each of these asks; one without an output is not judged.
        queries: QUERIES.

    Raises:
        ValueError: a list lacks its ask or its reading.
    """
    asked = lists.join(asks, on=["query_id", "doc_ids"], how="left", nulls_equal=True)
    keys = READINGS.key
    read = readings.select(*keys, "output", found=pl.lit(True))
    outputs = asked.join(read, on=list(keys), how="left")
    if outputs["found"].null_count():
        example = (
            outputs.filter(pl.col("found").is_null()).select("run_id", "query_id", "depth").row(0, named=True)
        )
        raise ValueError(f"{outputs['found'].null_count()} lists lack a reading, such as {example}")
    golds = outputs.join(queries.select("query_id", "answers", "score"), on="query_id", how="left")
    scored = pl.concat(_scored(part) for part in golds.partition_by("score", maintain_order=True))
    table = scored.select(UTILITY.columns.names)
    conform(table, UTILITY)
    return table


def _scored(part: pl.DataFrame) -> pl.DataFrame:
    """Rows of one score, with its value in ``value``."""
    score = score_named(part["score"][0])
    values = score_outputs(part["output"].to_list(), part["answers"].to_list(), score)
    return part.with_columns(value=pl.Series(values, dtype=pl.Float64))


def list_values(
    labels: pl.DataFrame,
    runs: pl.DataFrame,
    applicable: Mapping[str, pl.Series],
    queries: pl.DataFrame,
    settings: Settings,
) -> pl.DataFrame:
    """LIST_VALUES: every measure of every list, by every annotator.

    Args:
        labels: LABELS of every pair of the runs, for the queries to which an annotator applies.
        runs: RUNS, of the compared runs only: together they are the pool.
        applicable: annotator -> the query_ids to which it applies.
        queries: QUERIES.
        settings: what to compute.

    Raises:
        ValueError: a measure that needs binary labels, asked of graded ones without a threshold.
    """
    columns = ["reader", "score", "annotator"]
    parts = []
    for group in labels.select(columns).unique().sort(columns).iter_rows(named=True):
        own = labels.filter(*(pl.col(name) == value for name, value in group.items()))
        wanted = queries.filter(pl.col("query_id").is_in(applicable[group["annotator"]].implode()))
        if group["score"]:
            wanted = wanted.filter(pl.col("score") == group["score"])
        if group["reader"]:
            wanted = wanted.filter(pl.col("dataset").is_in(_datasets_of(own, queries).implode()))
        kind, names = _kind_and_names(group["annotator"], wanted, settings)
        lists = _labelled(runs, own, wanted)
        parts += [
            part.with_columns(**{k: pl.lit(v) for k, v in group.items()})
            for part in _values(lists, wanted, runs, names, kind, settings)
        ]
    empty = pl.DataFrame(LIST_VALUES.empty())
    table = pl.concat(
        [empty, *(part.select(LIST_VALUES.columns.names) for part in parts)], how="vertical_relaxed"
    )
    conform(table, LIST_VALUES)
    return table


def _datasets_of(labels: pl.DataFrame, queries: pl.DataFrame) -> pl.Series:
    return queries.join(labels.select("query_id"), on="query_id", how="semi")["dataset"].unique()


def _kind_and_names(annotator: str, queries: pl.DataFrame, settings: Settings) -> tuple[Kind, list[str]]:
    # by what the labels are declared to be: those at hand may happen to be all 0 or 1
    kinds = {kind_of_labels(annotator, score) for score in queries["score"].unique()}
    kind: Kind = "graded" if len(kinds) > 1 else next(iter(kinds), "binary")
    names = asked_measures(settings.measures, kind, settings.threshold)
    check_measures(names, kind, settings.threshold)
    return kind, names


def _labelled(runs: pl.DataFrame, labels: pl.DataFrame, queries: pl.DataFrame) -> pl.DataFrame:
    """The runs' documents with their labels, in the order of queries and ranks; ``row`` numbers the queries."""
    rows = queries.select("query_id").with_row_index("row")
    found = runs.join(rows, on="query_id").join(
        labels.select("query_id", "doc_id", "label"), on=["query_id", "doc_id"], how="left"
    )
    return found.select("run_id", "row", "rank", "doc_id", "label").sort("run_id", "row", "rank")


def _values(
    lists: pl.DataFrame,
    queries: pl.DataFrame,
    runs: pl.DataFrame,
    names: Sequence[str],
    kind: Kind,
    settings: Settings,
) -> Iterator[pl.DataFrame]:
    run_ids = runs["run_id"].unique().sort().to_list()
    for depth in settings.depths:
        cut = lists.filter(pl.col("rank") <= depth)
        pool, whole_pool = _pool(cut, queries.height)
        for run_id in run_ids:
            labels, lengths, judged_to = _matrix(
                cut.filter(pl.col("run_id") == run_id), queries.height, depth
            )
            own = own_ideal(labels, lengths)
            pooled = Lists(labels=labels, lengths=lengths, ideal=pool)
            cutoffs = settings.cutoffs_at(depth)
            for ideal, base, whole in ((OWN_LIST, own, judged_to >= depth), (POOL, pooled, whole_pool)):
                chosen = [name for name in names if ideal == OWN_LIST or _measure(name).uses_ideal]
                measured = compute_all(chosen, base, cutoffs, settings.threshold, kind)
                for (name, cutoff), values in measured.items():
                    has_ideal = _measure(name).uses_ideal
                    # without an ideal only the documents down to the cut-off matter
                    known, shown = (whole, ideal) if has_ideal else (judged_to >= cutoff, ANY)
                    yield _column(queries, values, known, run_id, depth, name, cutoff, shown)


def _measure(name: str) -> Measure:
    return find("measure", name, MEASURES)


def _matrix(
    lists: pl.DataFrame, num_queries: int, depth: int
) -> tuple[Floats, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Labels [num_queries, depth] in rank order, the lists' lengths, and down to which rank all is judged, or depth."""
    rows = lists["row"].to_numpy()
    lengths = np.bincount(rows, minlength=num_queries)
    labels = pad(lists["label"].fill_null(0.0).to_numpy(), lengths, depth)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    unjudged = lists["label"].is_null().to_numpy()
    judged_to = np.full(num_queries, depth)
    np.minimum.at(judged_to, rows[unjudged], places[unjudged])
    return labels, lengths, judged_to


def _pool(lists: pl.DataFrame, num_queries: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Labels of the union of all runs' lists, descending and at least 0, and where every one was judged."""
    union = (
        lists.with_columns(pl.col("label").clip(lower_bound=0.0))
        .unique(subset=["row", "doc_id"])
        .sort(["row", "label"], descending=[False, True], nulls_last=True)
    )
    width = int(union.group_by("row").len()["len"].max() or 1)  # type: ignore[arg-type]
    labels, _, judged_to = _matrix(union, num_queries, width)
    return labels, judged_to >= width


def _column(
    queries: pl.DataFrame,
    values: Floats,
    judged: npt.NDArray[np.bool_],
    run_id: str,
    depth: int,
    name: str,
    cutoff: int,
    ideal: str,
) -> pl.DataFrame:
    value = pl.when(pl.Series(judged)).then(pl.Series(values))
    return queries.select(
        "query_id",
        run_id=pl.lit(run_id),
        depth=pl.lit(depth, pl.Int32),
        measure=pl.lit(name),
        cutoff=pl.lit(cutoff, pl.Int32),
        ideal=pl.lit(ideal),
        value=value,
    )
