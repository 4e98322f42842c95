"""Tables at the door of a room, the message for bad input, and names in a config."""

import math
import pickle

import polars as pl
import pyarrow as pa
import pytest

from erag_ray.store.schemas import LABELS, QUERIES, REQUESTS, RUNS, TABLES, conform
from erag_ray.support.errors import InputError
from erag_ray.support.registry import find

LISTS = pl.DataFrame(
    {
        "rank": [1, 2],
        "doc_id": ["d1", "d2"],
        "run_id": ["bm25", "bm25"],
        "query_id": ["q1", "q1"],
        "score": [2.5, None],
    }
)


@pytest.mark.parametrize("schema", TABLES.values(), ids=TABLES)
def test_every_table_has_a_key_of_its_own_columns_that_is_never_null(schema) -> None:
    assert schema.key
    for name in schema.key:
        assert not schema.columns.field(name).nullable
    assert conform(schema.empty(), schema).schema == schema.columns


def test_conform_gives_the_schemas_order_and_types_whatever_came_in() -> None:
    types = {"rank": "int64", **dict.fromkeys(["doc_id", "run_id", "query_id"], "string"), "score": "float32"}
    arrow = pa.table({name: LISTS[name].to_arrow() for name in types}).cast(pa.schema(types.items()))
    for table in (LISTS, arrow, pa.concat_tables([arrow.slice(0, 1), arrow.slice(1)])):
        found = conform(table, RUNS)
        assert found.schema == RUNS.columns
        assert found.to_pylist() == [
            {"run_id": "bm25", "query_id": "q1", "rank": 1, "doc_id": "d1", "score": 2.5},
            {"run_id": "bm25", "query_id": "q1", "rank": 2, "doc_id": "d2", "score": None},
        ]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (LISTS.drop("rank"), r"table runs: missing columns \['rank'\], unknown columns \[\]"),
        (LISTS.with_columns(extra=1), r"table runs: missing columns \[\], unknown columns \['extra'\]"),
        (LISTS.with_columns(doc_id=pl.Series(["d1", None])), "table runs: .*'doc_id' with null values"),
        (LISTS.with_columns(score=pl.Series([float("nan"), None])), "column score holds NaN"),
        (LISTS.with_columns(score=pl.Series([None, -math.inf])), "column score holds NaN or infinity"),
        (LISTS.with_columns(rank=pl.Series([1.0, 1.5])), "table runs: .*1.5"),
        (LISTS.with_columns(rank=pl.Series([1, 2**31])), "table runs: .*2147483648"),
        (LISTS.with_columns(rank=pl.Series(["1", "second"])), "table runs: .*second"),
        (LISTS.with_columns(doc_id=pl.Series([["d1"], ["d2"]])), "table runs: "),
        (LISTS.with_columns(rank=1), "2 rows share a key, such as .*'query_id': 'q1', 'rank': 1"),
    ],
)
def test_conform_refuses(table: pl.DataFrame, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        conform(table, RUNS)


def test_a_key_may_repeat_only_in_open_stores() -> None:
    assert conform(LISTS.with_columns(rank=1), RUNS, unique=False).num_rows == 2


def test_a_key_may_hold_a_list_whose_order_counts() -> None:
    lists = pl.DataFrame({"query_id": ["q"] * 3, "doc_ids": [["a", "b"], ["b", "a"], []]})
    constants = {"kind": "answer", "model": "m", "reader": "r", "question_key": 1, "passages_key": 2}
    keyed = lists.with_columns(pl.lit(value).alias(name) for name, value in constants.items())
    assert conform(keyed, REQUESTS).num_rows == 3
    with pytest.raises(ValueError, match="2 rows share a key"):
        conform(pl.concat([keyed, keyed.head(1)]), REQUESTS)
    # one list may be asked about in several ways
    assert conform(pl.concat([keyed, keyed.with_columns(kind=pl.lit("likelihood"))]), REQUESTS).num_rows == 6


def test_a_list_holds_no_nulls_either() -> None:
    query = {"query_id": ["q"], "dataset": ["d"], "question": ["?"], "score": ["exact_match"]}
    assert conform(pa.table(query | {"answers": [["yes", "no"]]}), QUERIES).num_rows == 1
    with pytest.raises(ValueError, match="column answers holds lists with nulls"):
        conform(pa.table(query | {"answers": [["yes", None]]}), QUERIES)


def test_not_judged_is_null_and_stays_null() -> None:
    labels = pl.DataFrame(
        {"reader": "r", "score": "s", "annotator": "a", "query_id": "q", "doc_id": ["d", "e"]}
    )
    found = conform(labels.with_columns(label=pl.Series([None, 0.0], dtype=pl.Float64)), LABELS)
    assert found["label"].to_pylist() == [None, 0.0]
    # a column of which nothing is known comes as Arrow's null type
    assert conform(labels.with_columns(label=None), LABELS)["label"].to_pylist() == [None, None]


def test_all_problems_are_in_one_message_a_line_each() -> None:
    assert str(InputError(["a.jsonl:3: no id"])) == "1 problem with the inputs:\n  - a.jsonl:3: no id"
    two = InputError(["a.jsonl:3: no id", "b.trec:9: no rank"])
    assert str(two) == "2 problems with the inputs:\n  - a.jsonl:3: no id\n  - b.trec:9: no rank"
    assert isinstance(two, ValueError)


def test_the_message_survives_the_way_from_an_actor() -> None:
    sent = InputError(["a.jsonl:3: no id", "b.trec:9: no rank"])
    received = pickle.loads(pickle.dumps(sent))
    assert received.problems == sent.problems
    assert str(received) == str(sent)


KNOWN = {"mean": sum, "max": max}


def test_a_name_is_an_entry_or_an_object_of_a_module() -> None:
    assert find("measure", "mean", KNOWN) is sum
    assert find("measure", "builtins:min", KNOWN) is min


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("median", "unknown measure 'median'; known: max, mean, or package.module:name"),
        ("Mean", "unknown measure 'Mean'"),
        ("", "unknown measure ''"),
        ("no_such_package.module:name", "measure 'no_such_package.module:name' cannot be loaded: .*no_such"),
        ("builtins:nothing", "measure 'builtins:nothing' cannot be loaded: .*nothing"),
        ("builtins:", "measure 'builtins:' cannot be loaded"),
        (":name", "measure ':name' cannot be loaded"),
        (".module:name", "measure '.module:name' cannot be loaded"),
    ],
)
def test_an_unknown_name_is_an_error_that_names_it(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find("measure", name, KNOWN)
