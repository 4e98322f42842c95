"""The documents of a dataset's lists, those of them that are to be read, and the differences that their labels give."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from erag_ray.analyses.columns import with_first
from erag_ray.annotators import PAIR
from erag_ray.extras.prediction_powered import LabelSample, PoweredValues, powered_values
from erag_ray.extras.sequential_test.config import SettleConfig
from erag_ray.extras.sequential_test.design import (
    Floats,
    importance,
    probabilities,
    random_numbers,
    rank_weights,
)
from erag_ray.inputs.evidence import Inputs
from erag_ray.measures.agreement import TIE_DIGITS, Clusters
from erag_ray.support.errors import InputError

Pair = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class DatasetSample:
    """The documents in a dataset's lists down to the cut-off, and which of them are to be read."""

    dataset: str
    runs: Sequence[str]
    documents: pl.DataFrame
    """Columns query_id, doc_id, rank_0, rank_1, ... of the runs (0 where a list lacks it), position (of the question in
    a random order, from 0), probability (of being read), weight (1 / probability, 0 where it is not to be read),
    auxiliary (label; 0 where there is none)."""
    num_queries: int
    counts: Sequence[int]
    """After how many questions one looks."""
    clusters: Clusters | None = None
    """Of the questions by position, after whole ones of which one looks (None: each by itself)."""

    @property
    def pairs(self) -> list[Pair]:
        return list(itertools.combinations(range(len(self.runs)), 2))

    def first(self, num_queries: int) -> pl.DataFrame:
        """Return the documents of the first questions."""
        return self.documents.filter(pl.col("position") < num_queries)

    def weights(self, config: SettleConfig) -> Floats:
        """Return the weight of each document's label in each run's value: [num_documents, num_runs]."""
        return rank_weights(config.measure, self.documents.select(_ranks(self.runs)), config.rank)


def _ranks(runs: Sequence[str]) -> list[str]:
    return [f"rank_{number}" for number in range(len(runs))]


def run_names(config: SettleConfig, inputs: Inputs) -> list[str]:
    return config.compare or inputs.runs["run_id"].unique().sort().to_list()


def draw(config: SettleConfig, inputs: Inputs) -> list[DatasetSample]:
    """Sample the documents of every dataset, once for all pairs of runs; raise InputError if two runs hold the same."""
    samples = [_draw_one(config, inputs, name) for name in inputs.queries["dataset"].unique().sort()]
    problems = [
        f"compare: {sample.runs[a]} and {sample.runs[b]} hold the same documents of {sample.dataset}; nothing to settle"
        for sample in samples
        for weights in [sample.weights(config)]
        for a, b in sample.pairs
        if (weights[:, a] == weights[:, b]).all()
    ]
    if problems:
        raise InputError(problems)
    return samples


def _draw_one(config: SettleConfig, inputs: Inputs, dataset: str) -> DatasetSample:
    query_ids = inputs.queries.filter(dataset=dataset)["query_id"]
    positions, runs = _positions(config, query_ids, inputs.clusters), run_names(config, inputs)
    listed = inputs.runs.filter(pl.col("run_id").is_in(runs), pl.col("rank") <= config.rank).join(
        positions.select("query_id", "position"), on="query_id"
    )
    ranks = [
        pl.col("rank").filter(pl.col("run_id") == run).first().fill_null(0).alias(name)
        for run, name in zip(runs, _ranks(runs), strict=True)
    ]
    candidates = listed.group_by("query_id", "doc_id", "position").agg(ranks).sort("position", "doc_id")
    weights = importance(rank_weights(config.measure, candidates.select(_ranks(runs)), config.rank))
    chances = np.zeros(len(weights))
    if weights.any():
        chances = probabilities(weights, config.fraction * candidates.height)
    numbers = random_numbers(candidates["query_id"].to_list(), candidates["doc_id"].to_list(), config.seed)
    drawn = numbers < chances
    inverse = np.divide(1.0, chances, out=np.zeros(len(chances)), where=drawn)
    counts, clusters = np.linspace(0, len(query_ids), config.num_looks + 1).round().astype(int)[1:], None
    if inputs.clusters.height:
        clusters = positions.sort("position")["cluster"].to_numpy()
        counts = np.searchsorted(clusters, clusters[counts - 1], side="right")
    return DatasetSample(
        dataset=dataset,
        runs=runs,
        documents=candidates.with_columns(probability=pl.Series(chances), weight=pl.Series(inverse)),
        num_queries=len(query_ids),
        counts=np.unique(counts[counts >= 2]).tolist(),
        clusters=clusters,
    )


def _positions(config: SettleConfig, query_ids: pl.Series, clusters: pl.DataFrame) -> pl.DataFrame:
    """Return each question's position in a random order, by a hash of its id; clusters are side by side, numbered."""
    ids = query_ids.sort()
    numbers = random_numbers(ids.to_list(), [""] * len(ids), config.seed)
    ordered = pl.DataFrame({"query_id": ids, "number": numbers}).sort("number", maintain_order=True)
    return (
        with_first(ordered, clusters)
        .sort("first", "row")
        .select("query_id", position=pl.int_range(pl.len()), cluster=pl.col("first").rle_id().cast(pl.Int64))
    )


def differences(
    config: SettleConfig, sample: DatasetSample, labels: pl.DataFrame, num_queries: int, pair: Pair
) -> PoweredValues:
    """Return estimates of one run's value minus another's, of the first questions; one without a list counts 0.

    Without auxiliary labels, ``values`` are those ``from_labels``. ``labels`` are query_id, doc_id, label of what was
    read.
    """
    known = sample.first(num_queries).join(labels, on=PAIR, how="left", maintain_order="left")
    has_auxiliary = config.auxiliary_annotator is not None
    weights = rank_weights(config.measure, known.select(f"rank_{run}" for run in pair), config.rank)
    powered = powered_values(
        LabelSample(
            questions=known["position"].to_numpy(),
            weights=weights[:, 0] - weights[:, 1],
            probabilities=known["probability"].to_numpy(),
            is_read=known["weight"].to_numpy() > 0,
            labels=known["label"].fill_null(0.0).to_numpy(),
            auxiliary=known["auxiliary"].to_numpy() if has_auxiliary else np.zeros(known.height),
        ),
        num_queries,
    )
    from_labels = np.round(powered.from_labels, TIE_DIGITS)
    values = powered.values if has_auxiliary else from_labels
    return replace(powered, values=values, from_labels=from_labels)
