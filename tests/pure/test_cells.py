"""The eight cells, their shares, and complements of runs, against plain Python over dictionaries."""

import numpy as np
import polars as pl
import pytest
from evaluated import framed, queries
from evaluated import settings as settings_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from erag_ray.analyses.cell_shares import cell_shares
from erag_ray.analyses.cells import cell_columns, cells
from erag_ray.analyses.complements import COMPLEMENT_QUANTITIES, complements
from erag_ray.measures.agreement import wilson_interval
from erag_ray.store.schemas import LABELS, RUNS, SLICES, UTILITY

NONE = SLICES.empty()


def tables_of(*names: str) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """LABELS, UTILITY and RUNS of these questions: run A finds d1 for q1, B has no list for it; the reader knows q2."""
    useful = [("q1", "d1", 1.0), ("q1", "d2", 0.0), ("q2", "d3", 0.0), ("q2", "d4", 0.0)]
    labels = [("r", "s", "erag", *row) for row in useful]
    # labels of others do not count
    labels += [("", "", "provenance", *row[:2], 1.0) for row in useful]
    scores = [("A", "q1", 2, 0.0), ("A", "q2", 2, 1.0), ("B", "q1", 2, 0.0), ("B", "q2", 2, 0.0)]
    scores += [("no_passages", "q1", 0, 0.0), ("no_passages", "q2", 0, 1.0)]
    used = [("r", "s", *row) for row in scores]
    runs = [("A", "q1", 1, "d1", None), ("A", "q1", 2, "d2", None), ("A", "q2", 1, "d3", None)]
    runs += [("B", "q2", 1, "d4", None)]
    made = framed(labels, LABELS), framed(used, UTILITY), framed(runs, RUNS)
    return tuple(frame.filter(pl.col("query_id").is_in(names)) for frame in made)  # type: ignore[return-value]


@settings(max_examples=200)
@given(data=st.data(), count=st.integers(1, 5000), confidence=st.sampled_from([0.5, 0.8, 0.95, 0.999]))
def test_the_wilson_interval_is_scipys_to_the_last_bit(
    data: st.DataObject, count: int, confidence: float
) -> None:
    positive = data.draw(st.integers(0, count))
    expected = stats.binomtest(positive, count).proportion_ci(confidence, method="wilson")
    assert wilson_interval(positive, count, confidence) == (positive / count, expected.low, expected.high)


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


def test_without_erags_labels_there_are_lists_and_no_cells() -> None:
    labels, used, runs = tables_of("q1", "q2")
    table = cells(labels.filter(annotator="provenance"), used, runs, used.clear(), None)
    assert table["list"].null_count() == 0
    # B has no list for q1, but nobody asked whether a document is useful
    assert table["alone"].null_count() == table["cell"].null_count() == table.height > 0


def test_by_a_score_of_which_more_is_not_better_nothing_suffices() -> None:
    labels, used, runs = tables_of("q1", "q2")
    abstained = [frame.with_columns(score=pl.lit("abstained")) for frame in (labels, used)]
    assert cells(*abstained, runs, used.unique(["query_id", "reader", "score"]), None).is_empty()


def test_one_question_has_shares_and_none_has_no_share() -> None:
    assert wilson_interval(0, 0, 0.95) == (None, None, None)
    labels, used, runs = tables_of("q2")
    table = cells(labels, used, runs, used.unique(["query_id", "reader", "score"]), None)
    (columns,) = cell_columns(table, queries(("q2", "d", "s")), settings_of())
    shares = cell_shares(columns, NONE, settings_of())
    assert shares.filter(run_id="A", cell="list_only").select("share", "num_queries").rows() == [(1.0, 1)]
    assert complements(columns, settings_of())["share"].to_list() == [0.0] * len(COMPLEMENT_QUANTITIES)
