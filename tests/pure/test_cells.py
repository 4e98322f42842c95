"""The eight cells, their shares and tests, and complements of runs, against plain Python over dictionaries."""

from __future__ import annotations

import itertools
import math
from collections import Counter
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
from paired import flip_p_value, holm_by_hand
from scipy import stats

from erag_ray.agreement import wilson_interval
from erag_ray.evaluate import (
    CELLS_MEANING,
    COMPLEMENT_QUANTITIES,
    RATES,
    cell_columns,
    cell_comparisons,
    cell_shares,
    cells,
    complements,
)
from erag_ray.report.tables.cells import cell_tables
from erag_ray.schemas import CELLS, LABELS, RUNS, SLICES, UTILITY

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

    def facts(
        self, run: str, query: str, depth: int, least: float
    ) -> tuple[bool | None, bool | None, bool | None]:
        """Whether a document alone, the list, and the reader suffice."""
        documents = self.lists[run].get(query, ())[:depth]
        labels = [self.labels[query, doc] for doc in documents]
        known = [label for label in labels if label is not None]
        alone: bool | None = any(label >= least for label in known)
        if not alone and len(known) < len(labels):
            alone = None
        whole, none = self.scores[run, query, depth], self.scores["", query, 0]
        return alone, None if whole is None else whole >= least, None if none is None else none >= least


def name_of(alone: bool | None, whole: bool | None, known: bool | None) -> str | None:
    """The cell, told in ifs."""
    if None in (alone, whole, known):
        return None
    if alone and whole:
        return "kept" if known else "found"
    if alone:
        return "distracted_known" if known else "distracted"
    if whole:
        return "list_only" if known else "combined"
    return "lost" if known else "missing"


@st.composite
def worlds(draw: st.DrawFn) -> World:
    score = st.sampled_from([0.0, 0.3, 0.5, 0.7, 1.0, None])
    names, runs, depths = [f"q{number}" for number in range(draw(st.integers(1, 6)))], ["A", "B", "C"], [1, 3]
    runs = runs[: draw(st.integers(1, 3))]
    documents = st.lists(st.sampled_from("abcde"), unique=True, max_size=4)
    lists = {run: {name: docs for name in names if (docs := draw(documents))} for run in runs}
    pairs = sorted(
        {(name, doc) for of_run in lists.values() for name, docs in of_run.items() for doc in docs}
    )
    labels = {pair: draw(score) for pair in pairs}
    keys = [(run, name, depth) for run in runs for name in names for depth in depths]
    scores = {key: draw(score) for key in [*keys, *(("", name, 0) for name in names)]}
    return World(lists=lists, labels=labels, scores=scores, queries=names, depths=depths)


@settings(max_examples=60)
@given(world=worlds(), threshold=st.sampled_from([None, 0.5, 0.6, 1.0]))
def test_cells_are_what_plain_python_says(world: World, threshold: float | None) -> None:
    least = 0.5 if threshold is None else threshold
    expected = []
    for run, query, depth in itertools.product(world.lists, world.queries, world.depths):
        facts = world.facts(run, query, depth, least)
        expected.append(("r", "s", run, query, depth, *facts, name_of(*facts)))
    found = world.cells(threshold)
    assert found.columns == CELLS.columns.names
    assert sorted(found.rows(), key=lambda row: row[:5]) == sorted(expected, key=lambda row: row[:5])


@settings(max_examples=40)
@given(world=worlds())
def test_shares_comparisons_and_complements_are_what_plain_python_says(world: World) -> None:
    asked = queries(*((name, "d", "s") for name in world.queries))
    columns = cell_columns(world.cells(), asked, settings_of())
    facts = {
        (run, query, depth): world.facts(run, query, depth, 0.5)
        for run, query, depth in itertools.product(world.lists, world.queries, world.depths)
    }
    check_shares(cell_shares(columns, NONE, settings_of()), facts, len(world.queries))
    check_comparisons(cell_comparisons(columns, settings_of()), facts, world)
    check_complements(complements(columns, settings_of()), facts, world)


Facts = Mapping[tuple[str, str, int], tuple[bool | None, bool | None, bool | None]]


def check_shares(found: pl.DataFrame, facts: Facts, num_queries: int) -> None:
    for row in found.iter_rows(named=True):
        names = [
            name_of(*fact)
            for (run, _, depth), fact in facts.items()
            if (run, depth) == (row["run_id"], row["depth"])
        ]
        counts = Counter(name for name in names if name)
        event, among = RATES.get(row["cell"], ((row["cell"],), tuple(CELLS_MEANING)))
        positive, count = sum(counts[cell] for cell in event), sum(counts[cell] for cell in among)
        figures = (row["num_positive"], row["num_queries"], row["num_dropped"])
        assert figures == (positive, count, num_queries - sum(counts.values()))
        if not count:
            assert (row["share"], row["low"], row["high"]) == (None, None, None)
        else:
            interval = stats.binomtest(positive, count).proportion_ci(0.9, method="wilson")
            assert (row["share"], row["low"], row["high"]) == (positive / count, interval.low, interval.high)


def events_of(name: str | None) -> dict[str, float]:
    """Cell or rate -> 1, 0, or nothing where the question does not count."""
    if name is None:
        return {}
    events = {cell: float(cell == name) for cell in CELLS_MEANING}
    if name in ("found", "kept", "combined", "list_only"):
        events["combined_given_list"] = float(name == "combined")
    if name in ("found", "kept", "distracted", "distracted_known"):
        events["distracted_given_alone"] = float(name.startswith("distracted"))
    return events


def check_comparisons(found: pl.DataFrame, facts: Facts, world: World) -> None:
    pairs = list(itertools.combinations(sorted(world.lists), 2))
    quantities = [*CELLS_MEANING, *RATES]
    assert found.height == len(pairs) * len(quantities) * len(world.depths)
    for depth, quantity in itertools.product(world.depths, quantities):
        family = found.filter(depth=depth, cell=quantity)
        events = {
            run: np.array(
                [
                    events_of(name_of(*facts[run, query, depth])).get(quantity, np.nan)
                    for query in world.queries
                ]
            )
            for run in world.lists
        }
        columns = [(events[a] - events[b]).tolist() for a, b in pairs]
        tests: list[float | None] = []
        for row, (a, b), column in zip(family.iter_rows(named=True), pairs, columns, strict=True):
            own = [value for value in column if not math.isnan(value)]
            values = {
                value
                for run in (a, b)
                for value, d in zip(events[run], column, strict=True)
                if not math.isnan(d)
            }
            assert (row["run_a"], row["run_b"], row["num_queries"]) == (a, b, len(own))
            assert row["num_dropped"] == len(column) - len(own)
            tests.append(flip_p_value(own) if len(values) > 1 else None)
            assert row["p_value"] == (None if tests[-1] is None else pytest.approx(tests[-1]))
            assert row["difference"] == (pytest.approx(np.mean(own)) if own else None)
            if not own:
                rate = "no question counts for the rate in both runs"
                assert row["reason"] == (rate if quantity in RATES else "no query is judged in both runs")
        expected = holm_by_hand(columns, tests)
        for p, wanted in zip(family["p_adjusted"], expected, strict=True):
            assert p == (None if wanted is None else pytest.approx(wanted))


def check_complements(found: pl.DataFrame, facts: Facts, world: World) -> None:
    pairs = list(itertools.combinations(sorted(world.lists), 2))
    assert found.height == len(pairs) * len(world.depths) * len(COMPLEMENT_QUANTITIES)
    for (a, b), depth in itertools.product(pairs, world.depths):
        useful = [(facts[a, query, depth][0], facts[b, query, depth][0]) for query in world.queries]
        known = [pair for pair in useful if None not in pair]
        counts = {
            "useful_a": sum(bool(one) for one, _ in known),
            "useful_b": sum(bool(other) for _, other in known),
            "only_a": known.count((True, False)),
            "only_b": known.count((False, True)),
            "either": sum(True in pair for pair in known),
        }
        counts["gain"] = counts["either"] - max(counts["useful_a"], counts["useful_b"])
        part = found.filter(run_a=a, run_b=b, depth=depth)
        assert set(part["num_queries"]) == {len(known)}
        assert set(part["num_dropped"]) == {len(useful) - len(known)}
        expected = {name: count / len(known) if known else None for name, count in counts.items()}
        assert dict(part.select("quantity", "share").rows()) == expected
        for quantity, low, high in part.select("quantity", "low", "high").rows():
            if quantity != "gain" and known:
                interval = stats.binomtest(counts[quantity], len(known)).proportion_ci(0.9, method="wilson")
                assert (low, high) == (interval.low, interval.high)
        ends = part.filter(pl.col("quantity").is_in(["only_a", "only_b"]))
        (gain,) = part.filter(quantity="gain").iter_rows(named=True)
        assert (gain["low"], gain["high"]) == (ends["low"].min(), ends["high"].min())


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


def test_a_question_without_a_list_has_no_useful_document() -> None:
    rows = two_questions().cells().select("run_id", "query_id", "cell").rows()
    found = {(run, query): cell for run, query, cell in rows}
    assert found == {
        ("A", "q1"): "distracted",
        ("A", "q2"): "list_only",
        ("B", "q1"): "missing",
        ("B", "q2"): "lost",
    }


def test_one_useful_document_is_enough_whatever_the_others_are() -> None:
    labels = {("q1", "d1"): 1.0, ("q1", "d2"): None, ("q2", "d3"): None, ("q2", "d4"): 0.0}
    found = two_questions(labels=labels).cells().filter(run_id="A").sort("query_id")
    assert found["alone"].to_list() == [True, None]
    assert found["cell"].to_list() == ["distracted", None]


def test_without_erags_labels_there_are_lists_and_no_cells() -> None:
    labels, used, runs = two_questions().frames
    found = cells(labels.filter(annotator="provenance"), used, runs, used.clear(), None)
    assert found["list"].null_count() == 0
    # B has no list for q1, but nobody asked whether a document is useful
    assert found["alone"].null_count() == found["cell"].null_count() == found.height > 0


def test_a_cell_is_null_where_something_needed_is_null() -> None:
    scores = {**two_questions().scores, ("", "q1", 0): None, ("A", "q2", 2): None}
    found = two_questions(scores=scores).cells()
    assert dict(found.filter(run_id="A").select("query_id", "cell").rows()) == {"q1": None, "q2": None}
    shares = cell_shares(columns_of(found, ["q1", "q2"]), NONE, settings_of())
    assert set(shares.filter(run_id="A").select("num_queries", "num_dropped").rows()) == {(0, 2)}
    assert shares.filter(run_id="A")["share"].null_count() == shares.filter(run_id="A").height


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


# --- tables of a report ---


def test_tables_have_a_value_for_every_column_and_leave_out_what_is_not_there() -> None:
    columns = columns_of(two_questions().cells(), ["q1", "q2"])
    slices = framed([("q1", "hops", "2"), ("q2", "hops", "(none)")], SLICES)
    shares, tests = cell_shares(columns, slices, settings_of()), cell_comparisons(columns, settings_of())
    both = complements(columns, settings_of())
    tables = cell_tables(shares, tests, both, "d", ["B", "A"], 0.9, None)
    assert [table.name for table in tables] == [
        "cells-d", "label-failures-d", "cells-by-slice-d", "cell-comparisons-d", "complements-d",
    ]  # fmt: skip
    for table in tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}
    first, rates, by_slice, _, fused = tables
    assert [[value.value for value in row[:2]] for row in first.rows] == [["B", "2"], ["A", "2"]]
    heads = [column.name for column in first.columns]
    assert first.rows[1][heads.index("distracted")].value == 0.5
    # nothing that B finds is useful, so the rate has nothing to be taken over
    assert rates.rows[0][3].value is None
    assert rates.rows[0][3].reason == "no question counts for it"
    assert (rates.rows[1][3].value, rates.rows[1][3].note) == (1.0, "n=1")
    assert [[value.value for value in row[:3]] for row in by_slice.rows] == [
        ["hops", "2", "B"], ["hops", "2", "A"], ["hops", "(none)", "B"], ["hops", "(none)", "A"],
    ]  # fmt: skip
    assert [column.name for column in fused.columns][3:6] == ["in A", "in B", "in A only"]
    assert [value.value for value in fused.rows[0][3:6]] == [0.5, 0.0, 0.5]
    assert cell_tables(shares.clear(), tests.clear(), both.clear(), "d", ["B", "A"], 0.9) == []
