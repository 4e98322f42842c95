"""Credits and orders: their lists and values against the definitions, and their tables against other ways to them."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from evaluated import framed, numbered
from evaluated import settings as settings_of
from gold import gold_of
from hypothesis import given, settings
from hypothesis import strategies as st

from erag_ray.annotators import Evidence
from erag_ray.config.job import CREDITS as NAMES
from erag_ray.config.job import ORDERS, JobConfig
from erag_ray.extras.credit.agreement import labelled_credits
from erag_ray.extras.credit.lists import CREDITS, CreditLists, credit_lists, credits_of, takes_all_subsets
from erag_ray.extras.credit.orders import ORDER_UTILITY, order_effects, order_lists, unrelated_pairs
from erag_ray.store.schemas import LABELS, UTILITY

SetFunction = Callable[[tuple[str, ...]], float | None]
Ranked = Mapping[tuple[str, str], Sequence[str]]
"""(run, query) -> documents in rank order."""


def ranked_of(lists: Ranked, depth: int = 9) -> pl.DataFrame:
    rows = [(run, query, depth, list(docs)) for (run, query), docs in lists.items()]
    schema = {"run_id": pl.String, "query_id": pl.String, "depth": pl.Int32, "doc_ids": pl.List(pl.String)}
    return pl.DataFrame(rows, schema=schema, orient="row")


def scored(lists: CreditLists, function: SetFunction) -> pl.DataFrame:
    values = [function(tuple(docs)) for docs in lists.subsets["doc_ids"].to_list()]
    return lists.subsets.with_columns(
        reader=pl.lit("r"), score=pl.lit("s"), value=pl.Series(values, dtype=pl.Float64)
    )


def credits_by_document(
    docs: Sequence[str], function: SetFunction, credit: str, num_permutations: int = 32
) -> dict[str, tuple[float | None, float | None]]:
    lists = credit_lists(ranked_of({("a", "q"): docs}), [credit], num_permutations, 0)
    table = credits_of(lists, scored(lists, function))
    assert table["rank"].to_list() == [docs.index(doc) + 1 for doc in table["doc_id"]]
    return {
        row["doc_id"]: (row["value"], row["standard_error"])
        for row in table.filter(credit=credit).iter_rows(named=True)
    }


@st.composite
def set_functions(draw: st.DrawFn, largest: int = 6) -> tuple[list[str], SetFunction]:
    """Documents in an order other than that of their names, and any score of their subsets."""
    docs = draw(st.permutations([f"d{number}" for number in range(draw(st.integers(1, largest)))]))
    scores = st.sampled_from([0.0, 0.25, 1 / 3, 0.5, 1.0])
    subsets = [subset for size in range(len(docs) + 1) for subset in itertools.combinations(docs, size)]
    values = draw(st.lists(scores, min_size=len(subsets), max_size=len(subsets)))
    # a subset in another order than the list's is not in the table, and would raise
    return list(docs), dict(zip(subsets, values, strict=True)).__getitem__


def shapley_by_subsets(docs: Sequence[str], function: SetFunction) -> dict[str, float]:
    """By the definition; subsets are in the order of the list."""
    totals, count = dict.fromkeys(docs, 0.0), len(docs)
    for size in range(count):
        for subset in itertools.combinations(docs, size):
            for doc in set(docs) - set(subset):
                more = tuple(one for one in docs if one in (*subset, doc))
                gain = function(more) - function(subset)  # type: ignore[operator]
                totals[doc] += gain / (count * math.comb(count - 1, size))
    return totals


def test_a_sampled_credit_never_says_that_it_is_exact() -> None:
    docs = [f"d{number}" for number in range(9)]
    # only the pair d0, d1 counts: of the other documents all samples agree, which does not make them exact
    function = lambda subset: float({"d0", "d1"} <= {*subset})  # noqa: E731
    sampled = credits_by_document(docs, function, "shapley", 4)
    assert [sampled[doc] for doc in docs[2:]] == [(0.0, None)] * 7
    assert all(error is None or error > 0 for _, error in sampled.values())
    exact = credits_by_document(docs, function, "leave_one_out", 4)
    assert {error for _, error in exact.values()} == {0.0}


@settings(max_examples=40)
@given(set_functions(), st.sampled_from([4, 6]))
def test_sampled_shapley_and_marginals_sum_to_the_gain_of_the_list(
    case: tuple[list[str], SetFunction], num_permutations: int
) -> None:
    docs, function = case
    gain = function(tuple(docs)) - function(())  # type: ignore[operator]
    for credit in ("shapley", "marginal"):
        found = credits_by_document(docs, function, credit, num_permutations)
        assert sum(value or 0.0 for value, _ in found.values()) == pytest.approx(gain, abs=1e-9)


def test_sampled_shapley_is_within_its_standard_errors_of_the_exact_value() -> None:
    docs = [f"d{number}" for number in range(9)]
    generator = np.random.default_rng(0)
    weights = dict(zip(docs, generator.normal(size=9), strict=True))

    def function(subset: tuple[str, ...]) -> float:
        return float(sum(weights[doc] for doc in subset) > 0.5)

    assert not takes_all_subsets(9, 40)
    expected = shapley_by_subsets(docs, function)
    values, errors = [], []
    for seed in range(80):
        lists = credit_lists(ranked_of({("a", "q"): docs}), ["shapley"], 40, seed)
        table = credits_of(lists, scored(lists, function)).sort("doc_id")
        values.append(table["value"].to_numpy())
        # null: all samples are equal
        errors.append(table["standard_error"].fill_null(0.0).to_numpy())
    truth = np.array([expected[doc] for doc in docs])
    spread = np.std(values, axis=0, ddof=1)
    # unbiased, and as wide as the standard errors say
    assert (np.abs(np.mean(values, axis=0) - truth) < 4 * spread / np.sqrt(80)).all()
    assert np.sqrt(np.mean(np.square(errors)) / np.mean(spread**2)) == pytest.approx(1, abs=0.1)


def test_all_subsets_are_taken_where_permutations_may_need_as_many() -> None:
    assert [takes_all_subsets(length, 32) for length in (1, 6, 7, 8)] == [True, True, True, False]
    assert [takes_all_subsets(6, count) for count in (10, 12, 14)] == [False, False, True]
    # 32 permutations of ten documents: at most 32 * 9 proper starts, the whole list and the empty one
    lists = credit_lists(ranked_of({("a", "q"): [f"d{number}" for number in range(10)]}), ["shapley"], 32, 0)
    assert 150 < lists.subsets.height <= 32 * 9 + 2


def test_runs_with_the_same_documents_have_the_same_subsets() -> None:
    docs = [f"d{number}" for number in range(10)]
    lists = credit_lists(ranked_of({("a", "q"): docs, ("b", "q"): docs[::-1]}), ["shapley"], 32, 0)
    sets = {
        run: {frozenset(subset) for subset in part["doc_ids"].to_list()}
        for (run,), part in lists.subsets.group_by("run_id")
    }
    assert sets["a"] == sets["b"]
    other = credit_lists(ranked_of({("a", "q"): docs}), ["shapley"], 32, 1)
    assert {frozenset(subset) for subset in other.subsets["doc_ids"].to_list()} != sets["a"]


@settings(max_examples=20)
@given(st.lists(st.integers(0, 75), min_size=1, max_size=4), st.sets(st.sampled_from(NAMES), min_size=1))
def test_subsets_are_distinct_and_each_document_has_one_credit(lengths: list[int], credits: set[str]) -> None:
    ranked = ranked_of(
        {("a", f"q{index}"): [f"d{doc}" for doc in range(length)] for index, length in enumerate(lengths)}
    )
    lists = credit_lists(ranked, sorted(credits), 4, 0)
    assert not lists.subsets.select("query_id", pl.col("doc_ids").list.join(" ")).is_duplicated().any()
    # a score that is the sum of its documents gives each just its own
    table = credits_of(lists, scored(lists, lambda subset: sum(map(worth, subset), 0.0)))
    assert table.height == sum(lengths) * len(credits)
    assert table["value"].to_list() == pytest.approx([worth(doc) for doc in table["doc_id"]], abs=1e-9)
    assert (table["standard_error"] < 1e-9).all()


def worth(doc: str) -> float:
    return int(doc[1:]) / 76


def test_orders_are_what_they_are_called() -> None:
    ranked = ranked_of(
        {("a", "q1"): ["x", "y", "z", "w"], ("a", "q2"): [], ("b", "q1"): ["x", "w", "z", "y"]}
    )
    unrelated = pl.DataFrame({"query_id": ["q1", "q1"], "doc_id": ["u", "v"]})
    changed = order_lists(ranked, ORDERS, unrelated, 0)
    found = {(row[0], row[1], row[3]): row[4] for row in changed.iter_rows()}
    assert found["a", "q1", "reversed"] == ["w", "z", "y", "x"]
    assert found["a", "q1", "unrelated_before"] == ["u", "v", "x", "y", "z", "w"]
    assert found["a", "q1", "unrelated_after"] == ["x", "y", "z", "w", "u", "v"]
    # one order of the documents of a question, whatever the run
    assert found["a", "q1", "shuffled"] == found["b", "q1", "shuffled"]
    assert sorted(found["a", "q1", "shuffled"]) == ["w", "x", "y", "z"]
    shuffled = [order_lists(ranked, ["shuffled"], unrelated, seed)["doc_ids"][0] for seed in range(9)]
    assert len({*map(tuple, shuffled)}) > 3
    # q2 has no unrelated documents: it has no such list, and no other order
    of_empty = sorted(key[2] for key, docs in found.items() if key[1] == "q2" and docs == [])
    assert of_empty == ["reversed", "shuffled"]
    assert ("a", "q2", "unrelated_after") not in found


# --- tables ---


graded = st.sampled_from([None, 0.0, 0.5, 1.0])


def test_an_annotator_without_a_reader_or_a_score_is_joined_too() -> None:
    credits = framed([("r", "s", "a", "q00", 3, "marginal", "d0", 1, 1.0, 0.0)], CREDITS)
    by_annotator = [("r", "s", "erag"), ("", "", "provenance"), ("r", "", "gold_likelihood")]
    labels = framed([(*names, "q00", "d0", 1.0) for names in by_annotator], LABELS)
    assert sorted(labelled_credits(credits, labels)["annotator"]) == ["erag", "gold_likelihood", "provenance"]


@settings(max_examples=30)
@given(st.lists(st.tuples(graded, graded), min_size=1, max_size=9))
def test_order_effects_are_paired_differences(values: list[tuple[float | None, float | None]]) -> None:
    names = [f"q{i}" for i in range(len(values))]
    utility = framed(
        [("r", "s", "a", q, 3, as_is) for q, (as_is, _) in zip(names, values, strict=True)], UTILITY
    )
    changed = framed(
        [("r", "s", "a", q, 3, "reversed", new) for q, (_, new) in zip(names, values, strict=True)],
        ORDER_UTILITY,
    )
    (row,) = order_effects(changed, utility, numbered(9), settings_of()).iter_rows(named=True)
    differences = [new - as_is for as_is, new in values if new is not None and as_is is not None]
    assert (row["num_queries"], row["num_dropped"]) == (len(differences), len(values) - len(differences))
    assert row["difference"] == (pytest.approx(np.mean(differences)) if differences else None)
    share = np.mean([difference != 0 for difference in differences]) if differences else None
    assert row["share_changed"] == (None if share is None else pytest.approx(share))
    is_tested = len(differences) > 1 and any(differences)
    assert (row["p_value"] is not None) == is_tested == (row["reason"] is None)


def test_p_values_of_orders_are_adjusted_over_runs_and_orders() -> None:
    generator = np.random.default_rng(1)
    used, changed = [], []
    for run in ("a", "b"):
        base = generator.integers(0, 2, 40)
        used += [("r", "s", run, f"q{i}", 3, float(value)) for i, value in enumerate(base)]
        for order in ORDERS[:2]:
            new = generator.integers(0, 2, 40)
            changed += [("r", "s", run, f"q{i}", 3, order, float(value)) for i, value in enumerate(new)]
    table = order_effects(framed(changed, ORDER_UTILITY), framed(used, UTILITY), numbered(40), settings_of())
    smallest = table["p_value"].min()
    assert table.height == 4
    (adjusted,) = table.filter(p_value=smallest)["p_adjusted"]
    assert adjusted == pytest.approx(min(1.0, 4 * smallest))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"credits": ["loo"]}, "credits: loo is unknown; choose of leave_one_out, marginal, shapley"),
        ({"credits": ["marginal", "marginal"]}, "credits: marginal is named more than once"),
        ({"orders": ["random"]}, "orders: random is unknown; choose of reversed, shuffled"),
        ({"credit_depth": 11}, "credit_depth: 11 is not within 1..depth=10"),
        ({"shapley_permutations": 7}, "shapley_permutations must be an even number of at least 4, got 7"),
    ],
)
def test_keys_out_of_range_are_refused(keys: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("..", r"\.\.")):
        JobConfig(**keys)  # type: ignore[arg-type]


# --- unrelated documents ---

QUERIES = pl.DataFrame(
    [(f"{dataset}{number}", dataset, [f"answer{number}"]) for dataset in "ab" for number in range(20)],
    schema=["query_id", "dataset", "answers"],
    orient="row",
)
"""Of each question five documents are retrieved, the first of them of its gold page; each tells its answer."""
RETRIEVED = QUERIES.select(
    "query_id",
    doc_id=pl.concat_list([pl.col("query_id") + f"/{number}" for number in range(5)]),
    text=pl.lit("it is ") + pl.col("answers").list.first(),
).explode("doc_id")


def drawn(pairs: pl.DataFrame, **changes: Any) -> pl.DataFrame:
    corpus = RETRIEVED.select("doc_id", "text", title=pl.lit(""), page_id=pl.col("doc_id"))
    gold = gold_of(pages=RETRIEVED.unique("query_id", keep="first").select("query_id", "doc_id").rows())
    known = {
        "corpus": corpus,
        "provenance": gold,
        "queries": QUERIES.with_columns(score=pl.lit("exact_match")),
    }
    return unrelated_pairs(Evidence(**{"pairs": pairs, **known, **changes}), 3)


def test_unrelated_documents_are_those_of_other_questions_of_the_dataset() -> None:
    pairs = RETRIEVED.select("query_id", "doc_id")
    found = drawn(pairs)
    assert found["query_id"].value_counts()["count"].unique().to_list() == [3]
    assert found.height == found.unique().height == 3 * QUERIES.height
    assert (found["query_id"].str.head(1) == found["doc_id"].str.head(1)).all()
    assert found.join(pairs, on=["query_id", "doc_id"], how="semi").is_empty()
    # drawn evenly: 60 draws of 100 documents, none of which comes more than a few times
    assert found["doc_id"].n_unique() > 60
    assert drawn(pairs.sample(fraction=1, shuffle=True, seed=1)).equals(found)
    # one more run: most of them stay
    more = drawn(pairs.filter(pl.col("doc_id").str.ends_with("/4").not_()))
    assert more.join(found, on=["query_id", "doc_id"], how="semi").height > 60
    # one question has none
    assert drawn(pairs.filter(query_id="a0")).is_empty()


@pytest.mark.parametrize("kind", ["pages", "documents"])
def test_a_gold_document_or_one_of_a_gold_page_or_with_an_answer_is_not_unrelated(kind: str) -> None:
    pairs = RETRIEVED.select("query_id", "doc_id")
    ids = QUERIES.select("query_id").join(RETRIEVED.select(gold="doc_id"), how="cross")
    gold = ids.filter(pl.col("gold").str.contains(r"/[0-3]$"))
    found = drawn(pairs, provenance=gold_of(**{kind: gold.rows()}))
    assert found.height > 20
    assert found["doc_id"].str.ends_with("/4").all()
    same = QUERIES.with_columns(score=pl.lit("exact_match"), answers=pl.lit(["is"], pl.List(pl.String)))
    assert drawn(pairs, queries=same).is_empty()
