"""UTILITY and PER_QUERY as columns over the queries of a dataset: what means, correlations and comparisons take."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from erag_ray.analyses.settings import ANY, Floats, Settings
from erag_ray.data.runs.references import END_TO_END, REFERENCES
from erag_ray.measures.agreement import Clusters, permutations, permutations_among, resample_weights
from erag_ray.store.schemas import TableSchema, table_schema

DIGITS = 12
"""Values are compared to this many digits: sums of the same labels in another order must tie."""
COLUMN = ["reader", "score", "annotator", "run_id", "depth", "measure", "cutoff", "ideal"]
PER_QUERY = table_schema(
    "per_query", "reader* score* annotator* query_id* run_id* depth* measure* cutoff* ideal* value?"
)
NamedColumn = tuple[Mapping[str, object], Floats]


@dataclass(frozen=True, kw_only=True)
class Draws:
    """The bootstrap's draws of some queries, the orders that permutations put them in, and what these move."""

    weights: npt.NDArray[np.int16]
    """[num_resamples, num_queries]."""
    orders: npt.NDArray[np.int32]
    """[num_permutations, num_queries]."""
    clusters: Clusters | None = None
    """None: each query by itself."""
    _last: dict[bytes, Draws] = field(default_factory=dict)

    @property
    def num_units(self) -> int:
        """The number of queries or clusters that a resample draws."""
        return self.weights.shape[1] if self.clusters is None else len(np.unique(self.clusters))

    def among(self, is_selected: npt.NDArray[np.bool_]) -> Draws:
        """The same for the selected queries; columns with the same ones follow each other."""
        if is_selected.all():
            return self
        key = is_selected.tobytes()
        if key not in self._last:
            self._last.clear()
            has_clusters = self.clusters is not None
            self._last[key] = Draws(
                weights=self.weights.T[is_selected].T,
                orders=permutations_among(self.orders, is_selected, has_clusters=has_clusters),
                clusters=None if self.clusters is None else self.clusters[is_selected],
            )
        return self._last[key]


@dataclass(frozen=True, kw_only=True)
class DatasetColumns:
    """One dataset's measures and utilities over its queries, and how chance draws and pairs these."""

    dataset: str
    query_ids: pl.Series
    """[num_queries]."""
    columns: list[NamedColumn]
    """Each [num_queries], NaN where not judged or not applicable."""
    draws: Draws
    estimates: Mapping[int, Floats] = field(default_factory=dict)
    """Index of a column that only a sample of the queries has -> the column with estimates for all, by an extension."""

    def has(self, query_ids: pl.Series) -> npt.NDArray[np.bool_]:
        """Return which of its queries are among these, [num_queries]."""
        return self.query_ids.is_in(query_ids.implode()).to_numpy()

    def among(self, is_selected: npt.NDArray[np.bool_]) -> DatasetColumns:
        """The same over the selected queries, with the same draws of them, and without estimates."""
        columns = [(name, column[is_selected]) for name, column in self.columns]
        return replace(
            self,
            estimates={},
            query_ids=self.query_ids.filter(is_selected),
            columns=columns,
            draws=self.draws.among(is_selected),
        )

    @property
    def estimated(self) -> list[NamedColumn]:
        """Return the columns, estimates instead of those of a sample of the queries."""
        return [
            (name, self.estimates.get(index, column)) for index, (name, column) in enumerate(self.columns)
        ]

    @property
    def of_runs(self) -> list[NamedColumn]:
        return without_references(self.columns)


def without_references(columns: Sequence[NamedColumn]) -> list[NamedColumn]:
    return [item for item in columns if item[0]["run_id"] not in REFERENCES]


def by_dataset(
    values: Iterable[pl.DataFrame], used: pl.DataFrame, queries: pl.DataFrame, settings: Settings
) -> list[DatasetColumns]:
    """The parts of PER_QUERY, and UTILITY, as columns, cut once for all tables that are made of them.

    A column of utility has the annotator `END_TO_END`, the score's name as its measure and its depth as its cut-off.
    """
    as_values = used.with_columns(
        annotator=pl.lit(END_TO_END), measure=pl.col("score"), cutoff=pl.col("depth"), ideal=pl.lit(ANY)
    )
    queries = in_clusters(queries, settings.clusters)
    ids = {str(name): part for (name,), part in queries.partition_by("dataset", as_dict=True).items()}
    columns: dict[str, list[NamedColumn]] = {name: [] for name in sorted(ids)}
    for table in itertools.chain(values, [as_values]):
        for name, item in _columns(table, queries):
            columns[name].append(item)
    return [
        DatasetColumns(
            dataset=name,
            query_ids=ids[name]["query_id"],
            columns=dataset_columns,
            draws=_draws(ids[name], settings),
        )
        for name, dataset_columns in columns.items()
    ]


def in_clusters(queries: pl.DataFrame, clusters: pl.DataFrame | None) -> pl.DataFrame:
    """Return the queries by dataset and cluster, the largest cluster first, with the column cluster, a number.

    ``clusters`` is CLUSTERS; None: the queries as they are.
    """
    if clusters is None:
        return queries
    sized = with_first(queries, clusters, "dataset").with_columns(size=pl.len().over("first"))
    ordered = sized.sort("dataset", "size", "first", "row", descending=[False, True, False, False])
    return ordered.with_columns(cluster=pl.col("first").rle_id().cast(pl.Int64)).drop("row", "size", "first")


def with_first(queries: pl.DataFrame, clusters: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Add the number of each query (row) and that of the first query of its cluster (first), and CLUSTERS.cluster.

    A query without a value is a cluster by itself. Clusters are apart where the columns ``by`` differ.
    """
    joined = queries.join(clusters, on="query_id", how="left", maintain_order="left").with_row_index("row")
    by_itself = pl.when(pl.col("cluster").is_null()).then("query_id").alias("by_itself")
    return joined.with_columns(first=pl.col("row").min().over(*by, "cluster", by_itself))


def _draws(queries: pl.DataFrame, settings: Settings) -> Draws:
    count, seed, numbers = queries.height, settings.seed, None
    if "cluster" in queries.columns and queries["cluster"].n_unique() < count:
        numbers = queries["cluster"].to_numpy() - queries["cluster"][0]
    return Draws(
        weights=resample_weights(count, settings.num_resamples, seed, numbers),
        orders=permutations(count, settings.num_permutations, seed, numbers),
        clusters=numbers,
    )


def _columns(values: pl.DataFrame, queries: pl.DataFrame) -> Iterator[tuple[str, NamedColumn]]:
    """Each column with its dataset, by first appearance; a query is at its place among those of the dataset."""
    position_of = queries.select("query_id", "dataset", place=pl.int_range(pl.len()).over("dataset"))
    sizes = dict(queries["dataset"].value_counts().iter_rows())
    joined = values.join(position_of, on="query_id", maintain_order="left")
    groups = joined.group_by("dataset", *COLUMN, maintain_order=True).agg("place", "value")
    names = groups.select("dataset", *COLUMN).iter_rows(named=True)
    for name, positions, value in zip(names, groups["place"], groups["value"], strict=True):
        dataset = name.pop("dataset")
        column = np.full(sizes[dataset], np.nan)
        column[positions.to_numpy()] = value.fill_null(np.nan).to_numpy()
        yield dataset, (name, np.round(column, DIGITS))


def measured_and_used(columns: Sequence[NamedColumn]) -> tuple[list[NamedColumn], list[NamedColumn]]:
    """The measures of labels, and the utilities."""
    measured = [item for item in columns if item[0]["annotator"] != END_TO_END]
    return measured, [item for item in columns if item[0]["annotator"] == END_TO_END]


def by_run(columns: Sequence[NamedColumn]) -> list[tuple[Mapping[str, object], dict[str, Floats]]]:
    """The same column of each run: its name, and run_id -> values."""
    groups: dict[tuple[object, ...], tuple[Mapping[str, object], dict[str, Floats]]] = {}
    for name, column in columns:
        key = tuple(value for part, value in name.items() if part != "run_id")
        groups.setdefault(key, (name, {}))[1][str(name["run_id"])] = column
    return list(groups.values())


def same_list(name: Mapping[str, object], target: Mapping[str, object]) -> bool:
    """Whether a measure and a utility are of one list."""
    return name["run_id"] == target["run_id"] and name["depth"] == target["depth"]


def table_of(rows: Sequence[tuple[object, ...] | Mapping[str, object]], schema: TableSchema) -> pl.DataFrame:
    """Rows, by column or in the order of a schema's columns, as its table; other keys are left out."""
    return pl.DataFrame(rows, schema=schema.empty().schema, orient="row")
