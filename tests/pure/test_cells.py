"""The eight cells, their shares and tests, and complements of runs, against plain Python over dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest
from cell_tables import framed
from evaluated import queries
from evaluated import settings as settings_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from erag_ray.analyses.cell_comparisons import COMPLEMENT_QUANTITIES, cell_comparisons, complements
from erag_ray.analyses.cell_shares import cell_shares
from erag_ray.analyses.cells import cell_columns, cells
from erag_ray.measures.agreement import wilson_interval
from erag_ray.store.schemas import LABELS, RUNS, SLICES, UTILITY

NONE = pl.DataFrame(SLICES.empty())


@dataclass(frozen=True)
class World:
    """Labels, lists and end-to-end scores of one reader; depth 0 of ``scores`` is the reader without documents."""

    lists: Mapping[str, Mapping[str, Sequence[str]]]
    """Run -> query -> documents, best first."""
    labels: Mapping[tuple[str, str], float | None]
    scores: Mapping[tuple[str, str, int], float | None]
    """(run, query, depth) -> score."""
    queries: Sequence[str]
    depths: Sequence[int]

    @property
    def frames(self) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """LABELS, UTILITY and RUNS."""
        labels = [("r", "s", "erag", *pair, label) for pair, label in self.labels.items()]
        # labels of others do not count
        labels += [("", "", "provenance", *pair, 1.0) for pair in self.labels]
        runs = [
            (run, query, rank, doc, None)
            for run, of_run in self.lists.items()
            for query, docs in of_run.items()
            for rank, doc in enumerate(docs, 1)
        ]
        used = [
            ("r", "s", "no_passages" if depth == 0 else run, query, depth, score)
            for (run, query, depth), score in self.scores.items()
        ]
        return framed(labels, LABELS), framed(used, UTILITY), framed(runs, RUNS)

    def cells(self, threshold: float | None = None) -> pl.DataFrame:
        labels, used, runs = self.frames
        return cells(labels, used, runs, used.unique(["query_id", "reader", "score"]), threshold)


@settings(max_examples=200)
@given(data=st.data(), count=st.integers(1, 5000), confidence=st.sampled_from([0.5, 0.8, 0.95, 0.999]))
def test_the_wilson_interval_is_scipys_to_the_last_bit(
    data: st.DataObject, count: int, confidence: float
) -> None:
    positive = data.draw(st.integers(0, count))
    expected = stats.binomtest(positive, count).proportion_ci(confidence, method="wilson")
    assert wilson_interval(positive, count, confidence) == (positive / count, expected.low, expected.high)


def test_of_nothing_there_is_no_share() -> None:
    assert wilson_interval(0, 0, 0.95) == (None, None, None)


@pytest.mark.parametrize(
    "shares", [(0.1, 0.0, 0.9), (0.1, 0.1, 0.8), (0.3, 0.05, 0.65), (0.02, 0.02, 0.96)], ids=str
)
def test_the_interval_of_the_gain_holds_what_it_promises(shares: tuple[float, float, float]) -> None:
    generator, count, num_samples, held = np.random.default_rng(3), 200, 2000, 0
    for only_a, only_b, _ in generator.multinomial(count, shares, num_samples):
        a, b = wilson_interval(int(only_a), count, 0.95), wilson_interval(int(only_b), count, 0.95)
        low, high = (min(ends) for ends in zip(a[1:], b[1:], strict=True))
        held += low <= min(shares[:2]) <= high
    assert held / num_samples >= 0.94


# --- by hand ---


def two_questions(**changes: object) -> World:
    """Run A finds d1 for q1; run B has no list for it. The reader knows q2."""
    given = {
        "lists": {"A": {"q1": ["d1", "d2"], "q2": ["d3"]}, "B": {"q2": ["d4"]}},
        "labels": {("q1", "d1"): 1.0, ("q1", "d2"): 0.0, ("q2", "d3"): 0.0, ("q2", "d4"): 0.0},
        "scores": {
            ("A", "q1", 2): 0.0,
            ("A", "q2", 2): 1.0,
            ("B", "q1", 2): 0.0,
            ("B", "q2", 2): 0.0,
            ("", "q1", 0): 0.0,
            ("", "q2", 0): 1.0,
        },
        "queries": ["q1", "q2"],
        "depths": [2],
    }
    return World(**{**given, **changes})  # type: ignore[arg-type]


def test_without_erags_labels_there_are_lists_and_no_cells() -> None:
    labels, used, runs = two_questions().frames
    found = cells(labels.filter(annotator="provenance"), used, runs, used.clear(), None)
    assert found["list"].null_count() == 0
    # B has no list for q1, but nobody asked whether a document is useful
    assert found["alone"].null_count() == found["cell"].null_count() == found.height > 0


def columns_of(found: pl.DataFrame, names: Sequence[str]) -> list:
    return cell_columns(found, queries(*((name, "d", "s") for name in names)), settings_of())


def test_one_question_has_shares_and_settles_nothing() -> None:
    world = two_questions()
    one = World(
        lists={
            run: {q: docs for q, docs in of_run.items() if q == "q2"} for run, of_run in world.lists.items()
        },
        labels={pair: label for pair, label in world.labels.items() if pair[0] == "q2"},
        scores={key: score for key, score in world.scores.items() if key[1] == "q2"},
        queries=["q2"],
        depths=[2],
    )
    columns = columns_of(one.cells(), ["q2"])
    shares = cell_shares(columns, NONE, settings_of())
    assert shares.filter(run_id="A", cell="list_only").select("share", "num_queries").rows() == [(1.0, 1)]
    assert set(cell_comparisons(columns, settings_of())["p_value"]) == {1.0, None}
    assert complements(columns, settings_of())["share"].to_list() == [0.0] * len(COMPLEMENT_QUANTITIES)
