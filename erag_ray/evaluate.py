"""LABELS and readings -> UTILITY, LIST_VALUES, MEANS, CORRELATIONS. Pure; Polars moves, NumPy computes.

Everything is done per dataset, over the same queries for every run: a query without a list counts with 0 in every
list measure, and the reader's closed-book answer is its utility. A null (not judged) leaves its query out of that
one column, and the rows say how many were left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.agreement import Agreement, agree, agree_over_runs, mean_interval, resample_weights
from erag_ray.annotators import annotator_named
from erag_ray.measures import MEASURES, Lists, Measure, compute_all, own_ideal, pad
from erag_ray.names import find
from erag_ray.schemas import CORRELATIONS, LIST_VALUES, MEANS, UTILITY, conform
from erag_ray.scores import score_named, score_outputs

END_TO_END = "end_to_end"
"""The annotator's place in MEANS for rows of utility."""
NO_PASSAGES = "no_passages"
"""run_id of the reader's closed-book readings, depth 0."""
GOLD_PASSAGES = "gold_passages"
"""run_id of the readings with the gold passages."""
REFERENCES = (NO_PASSAGES, GOLD_PASSAGES)
ANY = "any"
"""The ideal of a measure that has none."""

DIGITS = 12
"""Values are compared to this many digits: sums of the same labels in another order must tie."""

COLUMN = ["reader", "score", "annotator", "run_id", "depth", "measure", "cutoff", "ideal"]
Floats = npt.NDArray[np.float64]
NamedColumn = tuple[Mapping[str, object], Floats]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to compute.

    Attributes:
        depths: lists are cut to each of these.
        measures: names; None takes all that a column of labels allows.
        cutoffs: ranks; those beyond a depth are left out, the depth itself is added.
        threshold: for measures that need binary labels.
        statistics: names of `agreement.STATISTICS`.
        num_resamples: bootstrap resamples of the queries, the same for every column of a dataset.
        confidence: of the intervals.
        seed: of the resamples.
    """

    depths: Sequence[int]
    measures: Sequence[str] | None
    cutoffs: Sequence[int]
    threshold: float | None
    statistics: Sequence[str]
    num_resamples: int
    confidence: float
    seed: int

    def cutoffs_at(self, depth: int) -> list[int]:
        """The cut-offs of lists of a depth, ascending."""
        return sorted({cutoff for cutoff in self.cutoffs if cutoff <= depth} | {depth})


def measures_for(names: Sequence[str] | None, *, binary: bool, threshold: float | None) -> list[str]:
    """The measures that a column of labels gets: those asked for, else all that it allows."""
    if names is not None:
        return list(names)
    allowed = binary or threshold is not None
    return [name for name, measure in MEASURES.items() if allowed or not measure.needs_binary]


def labels_are_binary(annotator: str, score: str) -> bool:
    """Whether an annotator's labels are declared to be 0 or 1, for queries with this score."""
    declared = annotator_named(annotator).binary
    return score_named(score).binary if declared is None else declared


# --- utility ---


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
    keys = ["reader", "question_key", "passages_key"]
    read = readings.select(*keys, "output", found=pl.lit(True))
    outputs = asked.join(read, on=keys, how="left")
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


# --- list values ---


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
        names = _names_for(group["annotator"], wanted, settings)
        lists = _labelled(runs, own, wanted)
        parts += [
            part.with_columns(**{k: pl.lit(v) for k, v in group.items()})
            for part in _values(lists, wanted, runs, names, settings)
        ]
    empty = pl.DataFrame(LIST_VALUES.empty())
    table = pl.concat(
        [empty, *(part.select(LIST_VALUES.columns.names) for part in parts)], how="vertical_relaxed"
    )
    conform(table, LIST_VALUES)
    return table


def _datasets_of(labels: pl.DataFrame, queries: pl.DataFrame) -> pl.Series:
    return queries.join(labels.select("query_id"), on="query_id", how="semi")["dataset"].unique()


def _names_for(annotator: str, queries: pl.DataFrame, settings: Settings) -> list[str]:
    binary = all(labels_are_binary(annotator, score) for score in queries["score"].unique())
    return measures_for(settings.measures, binary=binary, threshold=settings.threshold)


def _labelled(runs: pl.DataFrame, labels: pl.DataFrame, queries: pl.DataFrame) -> pl.DataFrame:
    """The runs' documents with their labels, in the order of queries and ranks; ``row`` numbers the queries."""
    rows = queries.select("query_id").with_row_index("row")
    found = runs.join(rows, on="query_id").join(
        labels.select("query_id", "doc_id", "label"), on=["query_id", "doc_id"], how="left"
    )
    return found.select("run_id", "row", "rank", "doc_id", "label").sort("run_id", "row", "rank")


def _values(
    lists: pl.DataFrame, queries: pl.DataFrame, runs: pl.DataFrame, names: Sequence[str], settings: Settings
) -> Iterator[pl.DataFrame]:
    run_ids = runs["run_id"].unique().sort().to_list()
    for depth in settings.depths:
        cut = lists.filter(pl.col("rank") <= depth)
        pool, pool_judged = _pool(cut, queries.height)
        for run_id in run_ids:
            labels, lengths, judged = _matrix(cut.filter(pl.col("run_id") == run_id), queries.height, depth)
            own = own_ideal(labels, lengths)
            pooled = Lists(labels=labels, lengths=lengths, ideal=pool)
            cutoffs = settings.cutoffs_at(depth)
            for ideal, base, known in (("list", own, judged), ("pool", pooled, pool_judged)):
                chosen = [name for name in names if ideal == "list" or _measure(name).uses_ideal]
                for (name, cutoff), values in compute_all(chosen, base, cutoffs, settings.threshold).items():
                    shown = ideal if _measure(name).uses_ideal else ANY
                    yield _column(queries, values, known, run_id, depth, name, cutoff, shown)


def _measure(name: str) -> Measure:
    return find("measure", name, MEASURES)


def _matrix(
    lists: pl.DataFrame, num_queries: int, depth: int
) -> tuple[Floats, npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Labels [num_queries, depth] in rank order, the lists' lengths, and where every document was judged."""
    rows = lists["row"].to_numpy()
    lengths = np.bincount(rows, minlength=num_queries)
    labels = pad(lists["label"].fill_null(0.0).to_numpy(), lengths, depth)
    unjudged = np.bincount(rows[lists["label"].is_null().to_numpy()], minlength=num_queries)
    return labels, lengths, unjudged == 0


def _pool(lists: pl.DataFrame, num_queries: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Labels of the union of all runs' lists, descending, and where every one was judged."""
    union = lists.unique(subset=["row", "doc_id"]).sort(
        ["row", "label"], descending=[False, True], nulls_last=True
    )
    width = int(union.group_by("row").len()["len"].max() or 1)  # type: ignore[arg-type]
    labels, _, judged = _matrix(union, num_queries, width)
    return labels, judged


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


# --- means and correlations ---


def means(
    values: pl.DataFrame, used: pl.DataFrame, queries: pl.DataFrame, settings: Settings
) -> pl.DataFrame:
    """MEANS over queries of LIST_VALUES and of UTILITY, with bootstrap intervals.

    A row of utility has the annotator `END_TO_END`, the score's name as its measure and its depth as its cut-off.
    """
    rows = []
    for dataset, columns, weights in _by_dataset(_with_utility(values, used), queries, settings):
        for name, column in columns.items():
            mean, low, high = mean_interval(*_judged(column, weights), settings.confidence)
            counted = int((~np.isnan(column)).sum())
            dropped = len(column) - counted
            rows.append((dataset, *name, mean, low, high, counted, dropped))
    table = pl.DataFrame(rows, schema=_polars_schema(MEANS), orient="row")
    conform(table, MEANS)
    return table


def _by_dataset(
    values: pl.DataFrame, queries: pl.DataFrame, settings: Settings
) -> Iterator[tuple[str, dict[tuple[object, ...], Floats], npt.NDArray[np.int16]]]:
    """Each dataset's columns, [num_queries] with NaN where not judged or not applicable, and their weights."""
    for dataset in queries["dataset"].unique().sort():
        ids = queries.filter(pl.col("dataset") == dataset).select("query_id")
        weights = resample_weights(ids.height, settings.num_resamples, settings.seed)
        own = values.join(ids.with_row_index("row"), on="query_id", maintain_order="left")
        yield dataset, dict(_columns(own, ids.height)), weights


def _columns(values: pl.DataFrame, num_queries: int) -> Iterator[tuple[tuple[object, ...], Floats]]:
    for name, part in values.partition_by(COLUMN, as_dict=True, maintain_order=True).items():
        column = np.full(num_queries, np.nan)
        column[part["row"].to_numpy()] = part["value"].to_numpy()
        yield name, np.round(column, DIGITS)


def _judged(column: Floats, weights: npt.NDArray[np.int16]) -> tuple[Floats, npt.NDArray[np.int16]]:
    kept = ~np.isnan(column)
    return column[kept], weights[:, kept]


def correlations(
    values: pl.DataFrame, used: pl.DataFrame, queries: pl.DataFrame, settings: Settings
) -> pl.DataFrame:
    """CORRELATIONS of every measure with the utility at the same depth: over queries in a run, and over runs.

    Over queries as in the paper (Salemi & Zamani, SIGIR 2024, section 3): one run, its queries. Over runs: the
    runs' means over the queries that have both values in every run, so that all means are of the same queries.
    Utility is taken for the reader that made the labels, or, for labels without a reader, for each.
    ``num_dropped`` counts queries; ``num_runs`` leaves out runs in which nothing was judged.
    """
    targets = used.filter(~pl.col("run_id").is_in(REFERENCES))
    every = _with_utility(values, targets)
    rows: list[tuple[object, ...]] = []
    for dataset, columns, weights in _by_dataset(every, queries, settings):
        split = [(dict(zip(COLUMN, name, strict=True)), column) for name, column in columns.items()]
        ends = [item for item in split if item[0]["annotator"] == END_TO_END]
        measured = [item for item in split if item[0]["annotator"] != END_TO_END]
        rows += _over_queries(dataset, measured, ends, weights, settings)
        rows += _over_runs(dataset, measured, ends, settings)
    table = pl.DataFrame(rows, schema=_polars_schema(CORRELATIONS), orient="row")
    conform(table, CORRELATIONS)
    return table


def _with_utility(values: pl.DataFrame, used: pl.DataFrame) -> pl.DataFrame:
    """LIST_VALUES and UTILITY as columns of one kind."""
    as_values = used.with_columns(
        annotator=pl.lit(END_TO_END), measure=pl.col("score"), cutoff=pl.col("depth"), ideal=pl.lit(ANY)
    )
    return pl.concat(
        [values.select("query_id", *COLUMN, "value"), as_values.select("query_id", *COLUMN, "value")]
    )


def _over_queries(
    dataset: str,
    measured: Sequence[NamedColumn],
    ends: Sequence[NamedColumn],
    weights: npt.NDArray[np.int16],
    settings: Settings,
) -> Iterator[tuple[object, ...]]:
    for (name, x), (target, y) in itertools.product(measured, ends):
        if _same_list(name, target):
            for statistic in settings.statistics:
                yield _correlation_row(dataset, name, target, statistic, x, y, weights, settings)


def _same_list(name: Mapping[str, object], target: Mapping[str, object]) -> bool:
    own_reader = name["reader"] in ("", target["reader"])
    return own_reader and name["run_id"] == target["run_id"] and name["depth"] == target["depth"]


def _correlation_row(
    dataset: str,
    name: Mapping[str, object],
    target: Mapping[str, object],
    statistic: str,
    x: Floats,
    y: Floats,
    weights: npt.NDArray[np.int16],
    settings: Settings,
) -> tuple[object, ...]:
    kept = ~(np.isnan(x) | np.isnan(y))
    found = agree(x[kept], y[kept], statistic, weights[:, kept], settings.confidence)
    first = (dataset, target["reader"], target["score"], name["annotator"], "queries", name["run_id"])
    counts = (found.num_queries, 1, len(x) - found.num_queries)
    return (*first, *_measured(name), statistic, *_statistic_columns(found), *counts, found.reason)


def _measured(name: Mapping[str, object]) -> tuple[object, ...]:
    return (name["depth"], name["measure"], name["cutoff"], name["ideal"])


def _statistic_columns(found: Agreement) -> tuple[float | None, ...]:
    return (found.value, found.low, found.high, found.ceiling, found.p_value)


def _over_runs(
    dataset: str, measured: Sequence[NamedColumn], ends: Sequence[NamedColumn], settings: Settings
) -> Iterator[tuple[object, ...]]:
    for (name, own), (target, used) in itertools.product(_by_run(measured), _by_run(ends)):
        if name["reader"] not in ("", target["reader"]) or name["depth"] != target["depth"]:
            continue
        x, y = _common(own, used)
        first = (dataset, target["reader"], target["score"], name["annotator"], "runs", "")
        num_all = len(next(iter(own.values())))
        counts = (x.shape[1], x.shape[0] if x.size else 0, num_all - x.shape[1])
        for statistic in settings.statistics:
            found = agree_over_runs(_mean_of_each(x), _mean_of_each(y), statistic)
            yield (*first, *_measured(name), statistic, *_statistic_columns(found), *counts, found.reason)


def _by_run(columns: Sequence[NamedColumn]) -> list[tuple[Mapping[str, object], dict[object, Floats]]]:
    """The same column of each run: its name, and run_id -> values."""
    found: dict[tuple[object, ...], tuple[Mapping[str, object], dict[object, Floats]]] = {}
    for name, column in columns:
        key = tuple(value for part, value in name.items() if part != "run_id")
        found.setdefault(key, (name, {}))[1][name["run_id"]] = column
    return list(found.values())


def _common(own: Mapping[object, Floats], used: Mapping[object, Floats]) -> tuple[Floats, Floats]:
    """Measure and utility, each [num_runs, num_queries]: of runs with any value, the queries judged in all."""
    runs = [run for run in own if run in used and not np.isnan(own[run] + used[run]).all()]
    if not runs:
        return np.empty((0, 0)), np.empty((0, 0))
    x, y = np.array([own[run] for run in runs]), np.array([used[run] for run in runs])
    kept = ~np.isnan(x + y).any(axis=0)
    return x[:, kept], y[:, kept]


def _mean_of_each(rows: Floats) -> Floats:
    return np.round(rows.mean(axis=1), DIGITS) if rows.size else np.empty(0)


def _polars_schema(schema: object) -> pl.Schema:
    return pl.DataFrame(schema.empty()).schema  # type: ignore[attr-defined]


def depths_of(end_to_end: Iterable[int], depth: int) -> list[int]:
    """The depths at which lists are measured: those of the end-to-end readings, and the labels' own."""
    return sorted({*end_to_end, depth})
