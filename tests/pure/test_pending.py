"""From ranked lists to what models are asked, each distinct request once."""

import dataclasses

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from erag_ray.config.reader import JudgeConfig, ReaderConfig
from erag_ray.data.datasets.tasks import Dataset
from erag_ray.inference.planning import pending as planned
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.base import Case, Kind
from erag_ray.prompts.kinds.likelihood import GOLD_LIKELIHOOD
from erag_ray.prompts.prompt import T5
from erag_ray.prompts.request import Form, Passage, text_hash
from erag_ray.store.responses import KEY_COLUMNS
from erag_ray.store.schemas import PENDING, REQUESTS, conform

CORPUS = pl.DataFrame(
    [
        ("d1", "Marn", "A bridge."),
        ("d2", "Tessel", "A river."),
        ("d3", "", "Rain."),
        # the content of d1 under another id
        ("same", "Marn", "A bridge."),
    ],
    schema=["doc_id", "title", "text"],
    orient="row",
)
QUERIES = pl.DataFrame(
    [
        ("q1", "nq", "Who?", ["Ada"]),
        ("q2", "nq", "When?", ["1874"]),
        ("q3", "fever", "Who?", ["Ada"]),
        ("again", "nq", "Who?", ["Ada", "Ida"]),
    ],
    schema=["query_id", "dataset", "question", "answers"],
    orient="row",
)
NONE_KNOWN = pl.DataFrame(schema=dict.fromkeys(KEY_COLUMNS, pl.UInt64))
CASE = Case(dataset=Dataset(), reader=ReaderConfig(), judge=JudgeConfig(), default_prompt="t5")
FORM = Form(method="generate", prompt=T5, max_new_tokens=12)
LIKELIHOOD_FORM = dataclasses.replace(FORM, method="loglikelihood")


def use(model: str, *, sees_order: bool, kind: Kind = ANSWER, form: Form = FORM) -> planned.Use:
    return planned.Use(kind=kind, case=CASE, form=form, model=model, reader="reader-1", sees_order=sees_order)


ORDERED = {("answer", name): use("causal-1", sees_order=True) for name in ("nq", "fever")}
UNORDERED = {("answer", name): use("fid-1", sees_order=False) for name in ("nq", "fever")}
RUNS = pl.DataFrame(
    [
        # not in the order of their ranks
        ("b", "q1", 2, "d2"),
        ("b", "q1", 1, "d1"),
        ("b", "q1", 3, "d3"),
        ("a", "q1", 1, "d1"),
        ("a", "q2", 1, "d3"),
        ("a", "q2", 2, "d1"),
    ],
    schema={"run_id": pl.String, "query_id": pl.String, "rank": pl.Int32, "doc_id": pl.String},
    orient="row",
)


def requests_of(
    *lists: tuple[str, list[str]], uses=ORDERED, corpus: pl.DataFrame = CORPUS, kind: str = "answer"
) -> pl.DataFrame:
    schema = {"query_id": pl.String, "doc_ids": planned.DocIds}
    asked = pl.DataFrame(lists, schema=schema, orient="row").with_columns(kind=pl.lit(kind))
    return planned.build_requests(asked, QUERIES, planned.documents_of(corpus), uses)


def pending_of(requests: pl.DataFrame, uses=ORDERED) -> pl.DataFrame:
    documents, forms = planned.documents_of(CORPUS), [*dict.fromkeys(use.form for use in uses.values())]
    new = planned.pending(requests, NONE_KNOWN, QUERIES, documents, uses)
    return pl.DataFrame(planned.with_texts(new, QUERIES, documents, uses, forms))


def key_of(doc_ids: list[str], uses=ORDERED, corpus: pl.DataFrame = CORPUS) -> int:
    return requests_of(("q1", doc_ids), uses=uses, corpus=corpus)["passages_key"].item()


def content_key(passages: list[tuple[str, str]], uses=ORDERED) -> int:
    """The key of passages under ids of their own."""
    rows = [(f"d{number}", *passage) for number, passage in enumerate(passages)]
    corpus = pl.DataFrame(rows, schema=dict.fromkeys(CORPUS.columns, pl.String), orient="row")
    return key_of(corpus["doc_id"].to_list(), uses, corpus)


# lists


def test_lists_are_cut_at_each_depth_in_rank_order_and_a_missing_list_is_empty() -> None:
    found = planned.ranked_lists(RUNS, pl.Series(["q1", "q2"]), [2, 1])
    assert found.rows() == [
        ("a", "q1", 1, ["d1"]),
        ("a", "q1", 2, ["d1"]),
        ("a", "q2", 1, ["d3"]),
        ("a", "q2", 2, ["d3", "d1"]),
        ("b", "q1", 1, ["d1"]),
        ("b", "q1", 2, ["d1", "d2"]),
        ("b", "q2", 1, []),
        ("b", "q2", 2, []),
    ]
    assert found.schema["doc_ids"] == planned.DocIds


# keys


def test_equal_questions_and_equal_texts_share_a_key_whatever_their_ids() -> None:
    found = requests_of(("q1", ["d1"]), ("again", ["same"]), ("q3", ["same"]), ("q2", ["d1"]), ("q1", ["d2"]))
    by_query = {
        (query, *docs): key for query, docs, *key in found.select("query_id", "doc_ids", *KEY_COLUMNS).rows()
    }
    assert by_query["q1", "d1"] == by_query["again", "same"] == by_query["q3", "same"]
    # another question or another text is another key, in its own half
    assert by_query["q1", "d1"][0] != by_query["q2", "d1"][0]
    assert by_query["q1", "d1"][1] == by_query["q2", "d1"][1]
    assert by_query["q1", "d1"][0] == by_query["q1", "d2"][0]
    assert by_query["q1", "d1"][1] != by_query["q1", "d2"][1]


def test_nothing_asked_is_no_fault() -> None:
    found = requests_of()
    assert conform(found, REQUESTS).num_rows == 0
    assert conform(pending_of(found), PENDING).num_rows == 0


def test_a_key_is_the_same_in_every_version_and_on_every_machine() -> None:
    # changed literals mean that all requests ever answered are run again
    assert text_hash("Marn", "A bridge.").hex() == "4ae9bd58abc1d4e6a2848313f69c2138"
    assert FORM.fingerprint == "ccb47bc5c7b5717b4cde21de3b69ec1f"
    who = 16095627247883863900
    # no passages: XXH3's published value for no bytes, 2d06800538d394c2
    assert requests_of(("q1", [])).select(*KEY_COLUMNS).row(0) == (who, 0x2D06800538D394C2)
    assert requests_of(("q1", ["d1", "d3"])).select(*KEY_COLUMNS).row(0) == (who, 3724000177666403976)
    assert key_of(["d3", "d1"], UNORDERED) == 3724000177666403976


LIKELY = {
    ("gold_likelihood", name): use("fid-1", sees_order=False, kind=GOLD_LIKELIHOOD, form=LIKELIHOOD_FORM)
    for name in ("nq", "fever")
}


def test_another_form_or_another_answer_is_another_question() -> None:
    def keys(uses, kind: str) -> dict[str, int]:
        found = requests_of(("q1", ["d1"]), ("again", ["d1"]), uses=uses, kind=kind)
        assert found["passages_key"].n_unique() == 1
        return dict(found.select("query_id", "question_key").rows())

    answers, likely = keys(UNORDERED, "answer"), keys(LIKELY, "gold_likelihood")
    # the gold answers are no part of a request for the reader's own answer
    assert answers["q1"] == answers["again"]
    assert len({*answers.values(), *likely.values()}) == 3


def test_every_kind_is_pending_with_its_form_and_its_answers() -> None:
    uses = {**UNORDERED, **LIKELY}
    requests = pl.concat(
        [
            requests_of(("q1", ["d1"]), uses=uses),
            requests_of(("q1", ["d1"]), ("again", ["d1"]), uses=uses, kind="gold_likelihood"),
        ]
    )
    table = pending_of(requests, uses)
    found = list(planned.PendingRequests(table.to_arrow(), [FORM, LIKELIHOOD_FORM]))
    asked = {(request.form.method, request.answers) for request in found}
    assert asked == {("generate", ()), ("loglikelihood", (" Ada",)), ("loglikelihood", (" Ada", " Ida"))}
    assert {request.passages for request in found} == {(Passage("Marn", "A bridge."),)}
    # requests to one model about one question stand together
    assert [request.question for request in found] == ["Who?"] * 3


@pytest.mark.parametrize("uses", [ORDERED, UNORDERED], ids=["ordered", "unordered"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([("ab", "c")], [("a", "bc")]),
        ([("", "abc")], [("abc", "")]),
        ([("a", "b"), ("c", "d")], [("a", "bcd")]),
        ([("a", "b"), ("c", "d")], [("a", "d"), ("c", "b")]),
        # a repeated passage is shown twice
        ([("a", "b"), ("a", "b")], [("a", "b")]),
        ([("a", "b"), ("a", "b"), ("c", "d")], [("a", "b"), ("c", "d"), ("c", "d")]),
        # no passage is not an empty one
        ([("", "")], []),
        ([("a", "b")], [("A", "b")]),
        ([("a", "b ")], [("a", "b")]),
    ],
)
def test_other_passages_have_another_key(one, other, uses) -> None:
    assert content_key(one, uses) != content_key(other, uses)


def test_lengths_are_counted_in_bytes() -> None:
    assert text_hash("ä", "b") != text_hash("Ã¤", "b")
    assert text_hash("a\0b") != text_hash("a", "b")


PASSAGES = st.lists(st.tuples(st.text("ab", max_size=2), st.text("ab", max_size=2)), max_size=4)


@given(PASSAGES.flatmap(lambda passages: st.tuples(st.just(passages), st.permutations(passages))))
def test_a_model_that_does_not_see_the_order_has_one_key_for_all_orders(lists) -> None:
    passages, permuted = lists
    assert content_key(passages, UNORDERED) == content_key(permuted, UNORDERED)
    assert (content_key(passages) == content_key(permuted)) == (passages == permuted)


@given(PASSAGES, PASSAGES)
def test_distinct_contents_have_distinct_keys(one, other) -> None:
    assert (content_key(one) == content_key(other)) == (one == other)
    assert (content_key(one, UNORDERED) == content_key(other, UNORDERED)) == (sorted(one) == sorted(other))


# pending requests


def test_a_request_holds_the_texts_in_the_order_of_the_list() -> None:
    found = pending_of(requests_of(("q1", ["d2", "d3", "d1"]), ("q2", [])))
    by_question = {row["question"]: row for row in found.iter_rows(named=True)}
    assert by_question["Who?"]["titles"] == ["Tessel", "", "Marn"]
    assert by_question["Who?"]["texts"] == ["A river.", "Rain.", "A bridge."]
    assert (by_question["When?"]["titles"], by_question["When?"]["texts"]) == ([], [])
    assert conform(found, PENDING).num_rows == 2


def test_each_distinct_key_is_pending_once_and_requests_of_a_question_stand_together() -> None:
    requests = requests_of(
        ("q1", ["d1"]), ("again", ["same"]), ("q3", ["d1"]), ("q2", ["d1"]), ("q1", ["d2"])
    )
    found = pending_of(requests)
    assert sorted(found.select("question", "titles").rows()) == [
        ("When?", ["Marn"]),
        ("Who?", ["Marn"]),
        ("Who?", ["Tessel"]),
    ]
    keys = found.select(KEY_COLUMNS).rows()
    assert sorted(keys) == sorted(requests.select(KEY_COLUMNS).unique().rows())
    # of one question by key, whatever the order of the lists
    assert found.filter(question="Who?").select(KEY_COLUMNS).rows() == sorted(
        found.filter(question="Who?").select(KEY_COLUMNS).rows()
    )
    assert found["question"].rle().len() == 2
    backwards = pending_of(requests.reverse())
    assert backwards.select(KEY_COLUMNS).rows() == keys


@given(st.permutations(["d1", "d2", "d3", "same"]))
def test_a_model_that_does_not_see_the_order_gets_one_order(doc_ids: list[str]) -> None:
    def requested(ids: list[str]) -> list[tuple[object, ...]]:
        return (
            pending_of(requests_of(("q1", ids), uses=UNORDERED), UNORDERED).select("titles", "texts").rows()
        )

    found = requested(doc_ids)
    assert found == requested(["d1", "d2", "d3", "same"])
    # by their texts, not by their ids: these two lists have one key
    assert requested(["d2", "d1"]) == requested(["d2", "same"])
    # repeats are kept
    assert sorted(found[0][0]) == ["", "Marn", "Marn", "Tessel"]


# work


def work(requests: pl.DataFrame, known: pl.DataFrame) -> dict[str, tuple[int, int, int, int]]:
    found = planned.count_requests(requests, known)
    assert found.columns == ["kind", "lists", "asked", "distinct", "cached", "new"]
    assert found["kind"].unique().to_list() == ["answer"]
    return {lists: tuple(counts) for _, lists, *counts in found.rows()}


def test_work_is_counted_for_pairs_and_lists_apart() -> None:
    requests = requests_of(
        ("q1", ["d1"]),
        ("q1", ["d2"]),
        ("q1", ["same"]),  # the same request as d1
        ("q1", ["d1", "d2"]),
        ("again", ["same", "d2"]),  # the same request as the line above
        ("q2", ["d1", "d2", "d3"]),
        ("q1", []),
    )
    assert work(requests, NONE_KNOWN) == {
        "pairs": (3, 2, 0, 2),
        "lists": (3, 2, 0, 2),
        "no passages": (1, 1, 0, 1),
    }
    known = requests_of(("q1", ["d1"]), ("q1", ["d1", "d2"]), ("q1", []), ("q2", ["d3"])).select(KEY_COLUMNS)
    assert work(requests, known) == {
        "pairs": (3, 2, 1, 1),
        "lists": (3, 2, 1, 1),
        "no passages": (1, 1, 1, 0),
    }
