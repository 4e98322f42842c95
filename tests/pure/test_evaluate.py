"""Evaluation on tables small enough to do the sums by eye."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pytest
from evaluated import (
    correlations,
    everywhere,
    means,
    measured,
    numbered,
    queries,
    settings,
    used,
)
from scipy import stats

from erag_ray.agreement import resample_weights
from erag_ray.annotators import requested_measures
from erag_ray.evaluate import per_query
from erag_ray.evaluate.lists import matrices
from erag_ray.labels import list_responses, utility_of
from erag_ray.schemas import (
    LABELS,
    REQUESTS,
    RESPONSES,
    RUNS,
    UTILITY,
    conform,
)

# gains at ranks 1, 2, 3
G1, G2, G3 = 1.0, 1 / math.log2(3), 0.5


def runs(lists: Mapping[str, Mapping[str, str]]) -> pl.DataFrame:
    """Run -> query -> documents between spaces."""
    rows = [
        (run, query, rank, doc, None)
        for run, of_run in lists.items()
        for query, docs in of_run.items()
        for rank, doc in enumerate(docs.split(), 1)
    ]
    return pl.DataFrame(conform(pl.DataFrame(rows, schema=RUNS.columns.names, orient="row"), RUNS))


def labels(
    annotator: str, found: Mapping[str, Mapping[str, float | None]], reader: str = "", score: str = ""
) -> pl.DataFrame:
    """Query -> document -> label."""
    rows = [
        (reader, score, annotator, query, doc, label)
        for query, of_query in found.items()
        for doc, label in of_query.items()
    ]
    return pl.DataFrame(conform(pl.DataFrame(rows, schema=LABELS.columns.names, orient="row"), LABELS))


def value(rows: pl.DataFrame, **key: object) -> float | None:
    """The one value with this key."""
    found = rows.filter(pl.col(name) == wanted for name, wanted in key.items())
    assert found.height == 1, found
    result: float | None = found["value"][0]
    return result


# --- utility ---


def utility(
    lists: pl.DataFrame, requests: pl.DataFrame, responses: pl.DataFrame, queries: pl.DataFrame
) -> pl.DataFrame:
    """UTILITY of lists."""
    return utility_of(list_responses(lists, requests, responses), queries)


def read_lists(
    rows: Sequence[tuple[str, str, str, int, str, str | None]],
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Rows of reader, run, query, depth, documents, output -> lists, REQUESTS, RESPONSES."""
    lists, requests, responses = [], {}, {}
    for number, (reader, run, query, depth, docs, output) in enumerate(rows):
        ids = docs.split()
        lists.append((run, query, depth, ids))
        asked = ("answer", query, ids, "m", reader, number, number)
        key = requests.setdefault((query, tuple(ids)), asked)[-1]
        responses[key] = ("m", key, key, output, [], [], None, None, 1, 1, 0, 0)
    schema = {"run_id": pl.String, "query_id": pl.String, "depth": pl.Int32, "doc_ids": pl.List(pl.String)}
    asked, answered = (
        pl.DataFrame(list(rows.values()), schema=pl.DataFrame(table.empty()).schema, orient="row")
        for rows, table in ((requests, REQUESTS), (responses, RESPONSES))
    )
    return (
        pl.DataFrame(lists, schema=schema, orient="row"),
        pl.DataFrame(conform(asked, REQUESTS)),
        pl.DataFrame(conform(answered, RESPONSES)),
    )


def test_utility_is_the_score_of_each_lists_output() -> None:
    asked = queries(("q1", "d", "exact_match"))
    made = utility(
        *read_lists([("r", "A", "q1", 2, "a b", "Paris!"), ("r", "B", "q1", 2, "c", "Rome")]), asked
    )
    assert value(made, run_id="A") == 1.0  # "paris" after normalisation
    assert value(made, run_id="B") == 0.0
    assert made["reader"].unique().to_list() == ["r"]


def test_the_empty_list_is_the_closed_book_request() -> None:
    asked = queries(("q1", "d", "exact_match"))
    made = utility(
        *read_lists([("r", "no_passages", "q1", 0, "", "paris"), ("r", "A", "q1", 2, "", "paris")]), asked
    )
    # a run without a list for the query gets the same response
    assert value(made, run_id="no_passages", depth=0) == value(made, run_id="A", depth=2) == 1.0


def test_a_reading_without_output_is_not_judged_and_one_with_an_empty_output_is_worth_0() -> None:
    asked = queries(("q1", "d", "exact_match"))
    made = utility(*read_lists([("r", "A", "q1", 2, "a", None), ("r", "B", "q1", 2, "b", "")]), asked)
    assert value(made, run_id="A") is None
    assert value(made, run_id="B") == 0.0


def test_each_dataset_has_its_own_reader_and_score() -> None:
    asked = queries(("q1", "facts", "exact_match"), ("q2", "talk", "token_f1"), answers=("red car wheel",))
    rows = [("r1", "A", "q1", 2, "a", "the red car"), ("r2", "A", "q2", 2, "a", "the red car")]
    made = utility(*read_lists(rows), asked)
    assert made.filter(query_id="q1").select("reader", "score", "value").row(0) == ("r1", "exact_match", 0.0)
    # "the" goes; precision 2/2, recall 2/3: 2 * 1 * (2/3) / (5/3) = 0.8
    assert made.filter(query_id="q2").select("reader", "score").row(0) == ("r2", "token_f1")
    assert value(made, query_id="q2") == pytest.approx(0.8)


def test_a_list_without_a_response_is_a_fault_and_not_a_null() -> None:
    asked = queries(("q1", "d", "exact_match"))
    lists, requests, responses = read_lists([("r", "A", "q1", 2, "a", "x"), ("r", "B", "q1", 2, "b", "x")])
    with pytest.raises(ValueError, match=r"1 lists lack a response.*'B'"):
        utility(lists, requests, responses.head(1), asked)
    with pytest.raises(ValueError, match=r"1 lists lack a response.*'B'"):
        utility(lists, requests.head(1), responses, asked)


# --- list values ---

TWO = queries(("q1", "d", "exact_match"), ("q2", "d", "exact_match"))
# B has no list for q2
LISTS = runs({"A": {"q1": "a b e", "q2": "a"}, "B": {"q1": "c d"}})
BINARY = {"q1": {"a": 1.0, "b": 0.0, "c": 1.0, "d": 1.0, "e": 1.0}, "q2": {"a": 0.0}}


def values_of(found: Mapping[str, Mapping[str, float | None]], **changes: object) -> pl.DataFrame:
    made = labels("provenance", found)
    return per_query(made, LISTS, everywhere(made, TWO), TWO, settings(**changes))


@pytest.mark.parametrize(
    ("run", "measure", "ideal", "expected"),
    [
        # at depth 2 A is [1, 0] and B is [1, 1]; the pool of q1 is a, b, c, d: three relevant
        ("A", "P", "any", 1 / 2),
        ("A", "R", "list", 1 / 1),
        ("A", "R", "pool", 1 / 3),
        ("A", "AP", "list", 1 / 1),
        ("A", "AP", "pool", (1 / 1) / 3),
        ("A", "RR", "any", 1.0),
        ("A", "nDCG", "list", G1 / G1),
        ("A", "nDCG", "pool", G1 / (G1 + G2)),
        ("A", "Success", "any", 1.0),
        ("B", "P", "any", 1.0),
        ("B", "R", "list", 2 / 2),
        ("B", "R", "pool", 2 / 3),
        ("B", "AP", "pool", (1 / 1 + 2 / 2) / 3),
        ("B", "nDCG", "pool", 1.0),
    ],
)
def test_measures_of_one_query_by_both_ideals(run: str, measure: str, ideal: str, expected: float) -> None:
    made = values_of(BINARY)
    assert value(made, run_id=run, query_id="q1", measure=measure, cutoff=2, ideal=ideal) == pytest.approx(
        expected
    )


def test_the_pool_is_the_union_of_the_lists_cut_at_that_depth() -> None:
    made = values_of(BINARY, depths=[1, 2, 3], measures=["R", "nDCG"])
    # depth 1: a, c; depth 2: a, b, c, d; depth 3: e as well
    for depth, relevant_in_pool, found_by_a in ((1, 2, 1), (2, 3, 1), (3, 4, 2)):
        recall = value(made, run_id="A", query_id="q1", measure="R", cutoff=depth, depth=depth, ideal="pool")
        assert recall == pytest.approx(found_by_a / relevant_in_pool)
    # A at depth 3 is [1, 0, 1]
    gain = value(made, run_id="A", query_id="q1", measure="nDCG", cutoff=3, depth=3, ideal="pool")
    assert gain == pytest.approx((G1 + G3) / (G1 + G2 + G3))


def test_the_pool_grows_with_the_runs_that_are_compared_and_the_own_ideal_does_not() -> None:
    alone = LISTS.filter(run_id="A")
    made = labels("provenance", BINARY)
    single = per_query(made, alone, everywhere(made, TWO), TWO, settings())
    both = values_of(BINARY)
    key = {"run_id": "A", "query_id": "q1", "measure": "R", "cutoff": 2}
    assert value(single, **key, ideal="pool") == 1.0  # the pool is A's own list
    assert value(both, **key, ideal="pool") == pytest.approx(1 / 3)
    assert value(single, **key, ideal="list") == value(both, **key, ideal="list") == 1.0


def test_lists_may_stand_in_any_order_and_labels_too() -> None:
    made = labels("provenance", BINARY)
    mixed = per_query(
        made.sample(fraction=1, shuffle=True, seed=1),
        LISTS.sample(fraction=1, shuffle=True, seed=2),
        everywhere(made, TWO),
        TWO,
        settings(depths=[1, 3]),
    )
    assert mixed.equals(values_of(BINARY, depths=[1, 3]))


def test_only_the_ideals_asked_for() -> None:
    whole = values_of(BINARY)
    for ideal in ("list", "pool"):
        made = values_of(BINARY, ideals=[ideal])
        wanted = whole.filter(pl.col("ideal").is_in([ideal, "any"]))
        assert made.sort(made.columns).equals(wanted.sort(wanted.columns))


def test_documents_with_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = values_of(BINARY)
    with_keys = matrices._with_keys

    def alike_at_first(table: pl.DataFrame, asked: pl.DataFrame, seed: int) -> pl.DataFrame:
        found = with_keys(table, asked, seed)
        return found if seed else found.with_columns(key=pl.col("row").cast(pl.UInt64))

    monkeypatch.setattr(matrices, "_with_keys", alike_at_first)
    assert values_of(BINARY).equals(expected)


def test_a_short_list_counts_its_missing_documents_as_0() -> None:
    made = values_of(BINARY, depths=[3], measures=["P"])
    assert value(made, run_id="B", query_id="q1", cutoff=3) == pytest.approx(2 / 3)


def test_a_query_without_a_list_has_0_everywhere_and_is_there() -> None:
    made = values_of(BINARY).filter(run_id="B", query_id="q2")
    assert made.height == len(values_of(BINARY).filter(run_id="A", query_id="q1"))
    assert set(made["value"]) == {0.0}


def test_cut_offs_beyond_the_depth_are_left_out_and_the_depth_is_added() -> None:
    made = values_of(BINARY, depths=[2, 3], cutoffs=[1, 3, 10], measures=["P"])
    pairs = set(made.select("depth", "cutoff").unique().rows())
    assert pairs == {(2, 1), (2, 2), (3, 1), (3, 3)}


def test_an_unjudged_document_makes_its_list_unjudged_and_the_pool_of_its_query() -> None:
    unjudged = {**BINARY, "q1": {**BINARY["q1"], "d": None}}
    made = values_of(unjudged, measures=["P", "R"])
    q1 = made.filter(query_id="q1")
    assert value(q1, run_id="A", measure="P") == pytest.approx(1 / 2)
    assert value(q1, run_id="A", measure="R", ideal="list") == 1.0
    # how many relevant documents the pool holds is not known, for A neither
    assert value(q1, run_id="A", measure="R", ideal="pool") is None
    assert set(q1.filter(run_id="B")["value"]) == {None}
    assert made.filter(query_id="q2")["value"].null_count() == 0


def test_without_an_ideal_only_the_documents_down_to_the_cut_off_must_be_judged() -> None:
    unjudged = {**BINARY, "q1": {**BINARY["q1"], "d": None}}
    made = values_of(unjudged, depths=[2], cutoffs=[1], measures=["P", "RR", "Success", "R"])
    # B's list is c, d
    own = made.filter(query_id="q1", run_id="B")
    for measure in ("P", "RR", "Success"):
        assert value(own, measure=measure, cutoff=1) == 1.0
        assert value(own, measure=measure, cutoff=2) is None
    # its recall base holds the whole list
    assert value(own, measure="R", cutoff=1, ideal="list") is None


def test_an_unjudged_document_below_the_depth_does_not_matter() -> None:
    unjudged = {**BINARY, "q1": {**BINARY["q1"], "e": None}}
    assert values_of(unjudged, depths=[2])["value"].null_count() == 0
    assert values_of(unjudged, depths=[3])["value"].null_count() > 0


GRADED = {"q1": {"a": 0.4, "b": 0.6, "c": 0.9, "d": 0.0, "e": 0.0}, "q2": {"a": 0.0}}


def graded(**changes: object) -> pl.DataFrame:
    asked = TWO.with_columns(score=pl.lit("token_f1"))
    made = labels("erag", GRADED, reader="r", score="token_f1")
    return per_query(made, LISTS, everywhere(made, asked), asked, settings(**changes))


def test_graded_labels_get_only_the_measures_that_they_allow() -> None:
    made = graded()
    assert set(made["measure"]) == {"P", "nDCG", "Success"}
    key = {"run_id": "A", "query_id": "q1"}
    assert value(made, **key, measure="P") == pytest.approx((0.4 + 0.6) / 2)
    assert value(made, **key, measure="Success") == 0.6
    own = (0.4 * G1 + 0.6 * G2) / (0.6 * G1 + 0.4 * G2)
    pool = (0.4 * G1 + 0.6 * G2) / (0.9 * G1 + 0.6 * G2)
    assert value(made, **key, measure="nDCG", ideal="list") == pytest.approx(own)
    assert value(made, **key, measure="nDCG", ideal="pool") == pytest.approx(pool)


def test_a_threshold_adds_the_measures_of_binary_labels_and_leaves_the_others_alone() -> None:
    made = graded(threshold=0.5)
    assert set(made["measure"]) == {"P", "R", "AP", "RR", "nDCG", "Success"}
    key = {"run_id": "A", "query_id": "q1"}
    # relevant: b at rank 2; in the pool b and c
    assert value(made, **key, measure="R", ideal="pool") == pytest.approx(1 / 2)
    assert value(made, **key, measure="RR") == pytest.approx(1 / 2)
    assert value(made, **key, measure="P") == pytest.approx(0.5)


def test_a_measure_that_needs_a_threshold_is_refused_without_one() -> None:
    with pytest.raises(ValueError, match="threshold"):
        graded(measures=["AP"])


def test_measures_asked_for_are_taken_as_they_are() -> None:
    assert requested_measures("erag", ["R"], "graded", None) == ["R"]
    assert "R" in requested_measures("erag", None, "binary", None)
    assert "R" not in requested_measures("erag", None, "graded", None)


def test_two_datasets_with_different_scores_in_one_job() -> None:
    asked = queries(("q1", "facts", "exact_match"), ("q2", "talk", "token_f1"))
    lists = runs({"A": {"q1": "a", "q2": "a"}, "B": {"q1": "b"}})
    made = pl.concat(
        [
            labels("erag", {"q1": {"a": 1.0, "b": 0.0}}, reader="r1", score="exact_match"),
            labels("erag", {"q2": {"a": 0.3}}, reader="r2", score="token_f1"),
            labels("provenance", {"q1": {"a": 1.0, "b": 0.0}, "q2": {"a": 1.0}}),
        ]
    )
    values = per_query(made, lists, everywhere(made, asked), asked, settings())
    erag = values.filter(annotator="erag")
    # each dataset's queries by its own reader and score only, with what that score allows
    assert set(erag.select("reader", "score", "query_id").unique().rows()) == {
        ("r1", "exact_match", "q1"),
        ("r2", "token_f1", "q2"),
    }
    assert "R" in set(erag.filter(query_id="q1")["measure"])
    assert "R" not in set(erag.filter(query_id="q2")["measure"])
    assert value(erag, query_id="q2", run_id="A", measure="P") == pytest.approx(0.3 / 2)
    assert value(erag, query_id="q2", run_id="B", measure="P") == 0.0  # no list
    assert set(values.filter(annotator="provenance")["query_id"]) == {"q1", "q2"}


def test_two_datasets_with_one_score_and_two_readers_do_not_mix() -> None:
    asked = queries(("q1", "one", "exact_match"), ("q2", "two", "exact_match"))
    lists = runs({"A": {"q1": "a", "q2": "a"}})
    made = pl.concat(
        [
            labels("erag", {"q1": {"a": 1.0}}, reader="r1", score="exact_match"),
            labels("erag", {"q2": {"a": 0.0}}, reader="r2", score="exact_match"),
        ]
    )
    values = per_query(made, lists, everywhere(made, asked), asked, settings(measures=["P"]))
    assert values.select("reader", "query_id", "value").sort("reader").rows() == [
        ("r1", "q1", 0.5),
        ("r2", "q2", 0.0),
    ]


def test_an_annotator_has_values_only_where_it_applies() -> None:
    made = labels("provenance", {"q1": BINARY["q1"]})
    values = per_query(made, LISTS, everywhere(made, TWO.head(1)), TWO, settings(measures=["P"]))
    assert set(values["query_id"]) == {"q1"}
    rows = means(values, no_utility(), TWO, settings())
    of_b = rows.filter(run_id="B").row(0, named=True)
    # q2, where the annotator says nothing, is not a 0
    assert (of_b["mean"], of_b["num_queries"], of_b["num_dropped"]) == (1.0, 1, 1)


# --- means ---


def no_utility() -> pl.DataFrame:
    return pl.DataFrame(UTILITY.empty())


def test_a_mean_leaves_out_what_was_not_judged_and_counts_it() -> None:
    rows = means(measured({}), used({("r", "A", 2): [1.0, 0.0, None, 1.0]}), numbered(4), settings())
    row = rows.row(0, named=True)
    assert row["mean"] == pytest.approx(2 / 3)
    assert (row["num_queries"], row["num_dropped"]) == (3, 1)
    assert (row["annotator"], row["measure"], row["cutoff"]) == ("end_to_end", "exact_match", 2)


def test_an_interval_is_that_of_the_means_of_resampled_queries() -> None:
    column = np.array([1.0, 0.0, 0.5, 1.0, 0.25, 0.0])
    rows = means(measured({}), used({("r", "A", 2): column.tolist()}), numbered(6), settings(confidence=0.8))
    resampled = resample_weights(6, 200, 0) @ column / 6
    low, high = np.quantile(resampled, [0.1, 0.9])
    assert rows.select("low", "high").row(0) == pytest.approx((low, high))
    assert low < column.mean() < high


def test_an_interval_with_a_gap_takes_each_resamples_draws_of_the_other_queries() -> None:
    column = [None, 1.0, 0.0, 0.5, 1.0, 0.25]
    rows = means(measured({}), used({("r", "A", 2): column}), numbered(6), settings(confidence=0.8))
    weights = resample_weights(6, 200, 0)[:, 1:]
    resampled = weights @ np.array(column[1:]) / weights.sum(axis=1)
    assert rows.select("low", "high").row(0) == pytest.approx(tuple(np.quantile(resampled, [0.1, 0.9])))


def test_references_have_means_beside_the_runs() -> None:
    columns = {
        ("r", "no_passages", 0): [0.0, 1.0],
        ("r", "gold_passages", 2): [1.0, 1.0],
        ("r", "A", 2): [1.0, 0.0],
    }
    rows = means(measured({}), used(columns), numbered(2), settings())
    assert dict(rows.select("run_id", "mean").rows()) == {"no_passages": 0.5, "gold_passages": 1.0, "A": 0.5}


def test_a_column_without_any_judgement_has_no_mean() -> None:
    row = means(measured({("r", "A", 2): [None, None]}), no_utility(), numbered(2), settings()).row(
        0, named=True
    )
    assert (row["mean"], row["low"], row["num_queries"], row["num_dropped"]) == (None, None, 0, 2)


# --- correlations ---


@pytest.mark.parity
@pytest.mark.parametrize("levels", [2, 4, 1000])
def test_correlations_over_queries_equal_scipys(levels: int) -> None:
    random = np.random.default_rng(levels)
    x, y = random.integers(0, levels, 40) / levels, random.integers(0, levels, 40) / levels
    x[5], y[7] = np.nan, np.nan
    none = [[None if math.isnan(one) else one for one in column] for column in (x, y)]
    found = correlations(
        measured({("r", "A", 2): none[0]}), used({("r", "A", 2): none[1]}), numbered(40), settings()
    )
    kept = ~np.isnan(x) & ~np.isnan(y)
    x, y = x[kept], y[kept]
    for name, outside in (("kendall_tau_b", stats.kendalltau), ("spearman_rho", stats.spearmanr)):
        row = found.filter(statistic=name, over="queries").row(0, named=True)
        assert row["value"] == pytest.approx(outside(x, y).statistic, abs=1e-12)
        assert row["ceiling"] == pytest.approx(outside(np.sort(x), np.sort(y)).statistic, abs=1e-12)
        assert row["low"] <= row["value"] <= row["high"]
        assert (row["num_queries"], row["num_dropped"], row["num_runs"]) == (38, 2, 1)


def test_a_correlation_by_hand() -> None:
    # a 2 x 2 table: both 1 once, both 0 four times, measure alone once, utility alone never
    x, y = [1, 1, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]
    found = correlations(measured({("r", "A", 2): x}), used({("r", "A", 2): y}), numbered(6), settings())
    for row in found.filter(over="queries").iter_rows(named=True):
        assert row["value"] == pytest.approx((1 * 4 - 1 * 0) / math.sqrt(2 * 4 * 1 * 5))


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        ([1, 1, 1], [0, 1, 0], "every label measure is 1.0"),
        ([0, 1, 0], [0, 0, 0], "every utility is 0.0"),
        ([0, 1, None], [None, 1, 0], "number of queries: 1"),
    ],
)
def test_a_correlation_that_is_not_defined_is_null_with_its_reason(
    x: list[float | None], y: list[float | None], reason: str
) -> None:
    found = correlations(measured({("r", "A", 2): x}), used({("r", "A", 2): y}), numbered(3), settings())
    for row in found.filter(over="queries").iter_rows(named=True):
        assert row["value"] is row["low"] is row["ceiling"] is None
        assert reason in row["reason"]


def test_sums_of_the_same_labels_in_another_order_tie() -> None:
    assert 0.1 + 0.2 + 0.3 != 0.3 + 0.2 + 0.1
    x = [(0.1 + 0.2 + 0.3) / 3, (0.3 + 0.2 + 0.1) / 3]
    found = correlations(measured({("r", "A", 2): x}), used({("r", "A", 2): [0, 1]}), numbered(2), settings())
    assert set(found.filter(over="queries")["value"]) == {None}


def test_a_measure_meets_only_the_utility_of_its_run_depth_and_reader() -> None:
    columns = {(reader, run, depth): [0, 1, 1] for reader in ("r1", "r2") for run in "AB" for depth in (1, 2)}
    found = correlations(
        measured(columns), used(columns), numbered(3), settings(statistics=["kendall_tau_b"])
    )
    over_queries = found.filter(over="queries")
    assert over_queries.height == len(columns)
    assert set(over_queries.select("reader", "run_id", "depth").rows()) == set(columns)


def test_labels_without_a_reader_meet_the_utility_of_each_reader() -> None:
    x = measured({("", "A", 2): [0, 1, 1]}, annotator="provenance")
    y = used({("r1", "A", 2): [0, 1, 1], ("r2", "A", 2): [1, 0, 0]})
    found = correlations(x, y, numbered(3), settings(statistics=["kendall_tau_b"])).filter(over="queries")
    assert dict(found.select("reader", "value").rows()) == {
        "r1": pytest.approx(1.0),
        "r2": pytest.approx(-1.0),
    }


def test_references_are_no_runs() -> None:
    columns = {("r", run, 2): [0, 1] for run in ("A", "no_passages", "gold_passages")}
    found = correlations(measured({("r", "A", 2): [0, 1]}), used(columns), numbered(2), settings())
    assert set(found["run_id"]) == {"A", ""}
    assert set(found["num_runs"]) == {1}


# --- correlations over runs ---


def over_runs(
    x: Mapping[str, Sequence[float | None]], y: Mapping[str, Sequence[float | None]]
) -> dict[str, object]:
    """The row of tau over runs: run -> values of its queries."""
    amount = len(next(iter(x.values())))
    found = correlations(
        measured({("r", run, 2): column for run, column in x.items()}),
        used({("r", run, 2): column for run, column in y.items()}),
        numbered(amount),
        settings(statistics=["kendall_tau_b"]),
    )
    return found.filter(over="runs").row(0, named=True)


def test_over_runs_by_hand() -> None:
    # means of the measure: A .9, B .5, C .1; of the utility: A .8, B .6, C .7
    x = {"A": [1.0, 0.8], "B": [0.5, 0.5], "C": [0.0, 0.2]}
    y = {"A": [0.8, 0.8], "B": [0.5, 0.7], "C": [0.7, 0.7]}
    row = over_runs(x, y)
    # A over B and A over C agree, B over C does not
    assert row["value"] == pytest.approx((2 - 1) / 3)
    assert (row["num_runs"], row["num_queries"], row["num_dropped"]) == (3, 2, 0)
    assert row["p_value"] is row["low"] is row["high"] is None
    assert row["reason"] == "no p-value: 3 runs, fewer than 8"


@pytest.mark.parametrize(("num_runs", "has_p"), [(7, False), (8, True)])
def test_a_p_value_needs_eight_runs(num_runs: int, has_p: bool) -> None:
    columns = {f"run{number}": [number / 10, number / 10] for number in range(num_runs)}
    row = over_runs(columns, columns)
    assert row["value"] == pytest.approx(1.0)
    assert (row["p_value"] is not None) == has_p
    assert row["num_runs"] == num_runs


def test_the_means_over_runs_are_of_the_queries_judged_in_all_runs() -> None:
    # on q0 and q1, where the measure applies, A is better by both; on q2 and q3 the utility says the contrary
    x = {"A": [1.0, 1.0, None, None], "B": [0.0, 0.0, None, None]}
    y = {"A": [0.6, 0.6, 0.0, 0.0], "B": [0.4, 0.4, 1.0, 1.0]}
    row = over_runs(x, y)
    assert row["value"] == pytest.approx(1.0)
    assert (row["num_queries"], row["num_dropped"]) == (2, 2)


def test_a_query_that_one_run_lacks_is_left_out_for_every_run() -> None:
    # without q1, A is ahead; with it, A's mean would be of other queries than B's
    x = {"A": [0.5, None, 0.5], "B": [0.4, 1.0, 0.4]}
    y = {"A": [1.0, 0.0, 1.0], "B": [0.0, 1.0, 0.0]}
    row = over_runs(x, y)
    assert row["value"] == pytest.approx(1.0)
    assert (row["num_runs"], row["num_queries"], row["num_dropped"]) == (2, 2, 1)


def test_a_run_in_which_nothing_was_judged_is_left_out() -> None:
    columns = {"A": [1.0, 0.5], "B": [0.0, 0.5]}
    row = over_runs({**columns, "C": [None, None]}, {**columns, "C": [0.0, 0.0]})
    assert row["value"] == pytest.approx(1.0)
    assert (row["num_runs"], row["num_queries"]) == (2, 2)


def test_nothing_in_common_over_runs_is_null_with_its_reason() -> None:
    row = over_runs({"A": [1.0, None], "B": [None, 1.0]}, {"A": [1.0, 0.0], "B": [0.0, 1.0]})
    assert row["value"] is None
    assert (row["num_runs"], row["num_queries"], row["num_dropped"]) == (0, 0, 2)
    assert "number of runs: 0" in str(row["reason"])


def test_means_of_runs_that_differ_only_by_the_order_of_their_sums_tie() -> None:
    row = over_runs({"A": [0.1, 0.2, 0.3], "B": [0.3, 0.2, 0.1]}, {"A": [1, 1, 1], "B": [0, 0, 0]})
    assert row["value"] is None
    assert "constant" in str(row["reason"])
