"""Annotators: a small world by hand, the places where the two contains-answer rules differ, and the guards."""
# ruff: noqa: RUF001 (signs that look like others are what is tested)

import random
import unicodedata
from dataclasses import replace

import polars as pl
import pytest
from gold import gold_of
from hypothesis import given
from hypothesis import strategies as st

from erag_ray.annotators import ANNOTATORS, Annotator, Evidence, annotate, annotator_named, applicable_queries
from erag_ray.annotators.contains import dpr_form
from erag_ray.prompts.kinds.answer import ANSWER, AUXILIARY_ANSWER
from erag_ray.prompts.kinds.likelihood import AUXILIARY_LIKELIHOOD, GOLD_LIKELIHOOD
from erag_ray.prompts.kinds.no_response import NO_RESPONSE
from erag_ray.prompts.kinds.relevance import RELEVANCE
from erag_ray.store.schemas import LABELS

RULES = ["contains_answer_dpr", "contains_answer_kilt"]

QUERIES = pl.DataFrame(
    [
        ("q1", "nq", "Who wrote Hamlet?", ["William Shakespeare", "Shakespeare"], "exact_match"),
        ("q2", "nq", "Capital of Peru?", ["Lima"], "exact_match"),
        ("q3", "fever", "Lima is in Peru.", ["SUPPORTS"], "accuracy"),
        ("q4", "wow", "I like Lima.", ["Lima is a big city"], "token_f1"),
    ],
    schema=["query_id", "dataset", "question", "answers", "score"],
    orient="row",
)
CORPUS = pl.DataFrame(
    [
        ("d1", "p1", "Hamlet", "Hamlet is a play by William Shakespeare."),
        ("d2", "p2", "Lima", "The capital is a port."),
        ("d3", None, "Peru", "Lima supports many people."),
    ],
    schema=["doc_id", "page_id", "title", "text"],
    orient="row",
)
PROVENANCE = gold_of(pages=[("q1", "p1"), ("q2", "p2"), ("q2", "p9"), ("q3", "p9")])
PAIRS = QUERIES.select("query_id").join(CORPUS.select("doc_id"), how="cross")
NOTHING_TOO = pl.concat([PAIRS, QUERIES.select("query_id", doc_id=pl.lit(None, pl.String))])
WORLD = Evidence(
    pairs=PAIRS,
    queries=QUERIES,
    corpus=CORPUS,
    provenance=PROVENANCE,
    facts=pl.DataFrame({"query_id": ["q1", "q1"], "fact": [1, 2], "answers": [["Lima"], ["Cusco", "Quito"]]}),
    values={
        RELEVANCE: PAIRS.with_columns(reader=pl.lit("judge"), value=pl.lit(0.7)),
        NO_RESPONSE: PAIRS.with_columns(reader=pl.lit("fid"), value=pl.lit(0.1)),
        GOLD_LIKELIHOOD: NOTHING_TOO.with_columns(reader=pl.lit("fid"), value=pl.lit(0.7)),
        AUXILIARY_ANSWER: PAIRS.with_columns(reader=pl.lit("small"), value=pl.lit("Lima")),
        AUXILIARY_LIKELIHOOD: PAIRS.with_columns(reader=pl.lit("small"), value=pl.lit(0.3)),
    },
)
SAID = NOTHING_TOO.with_columns(reader=pl.lit("fid"), value=pl.lit("Lima"))


def answers(*rows: tuple[str, str, str, str | None]) -> pl.DataFrame:
    schema = dict.fromkeys(("query_id", "doc_id", "reader", "value"), pl.String)
    return pl.DataFrame(rows, schema=schema, orient="row")


def answered(said: pl.DataFrame, **changes: pl.DataFrame) -> Evidence:
    """The world, and what readers answered."""
    return replace(WORLD, values={**WORLD.values, ANSWER: said}, **changes)


def labels_of(name: str, evidence: Evidence) -> dict[tuple[str, str], float | None]:
    rows = annotate(name, evidence).to_pylist()
    return {(row["query_id"], row["doc_id"]): row["label"] for row in rows}


def by_pair(**rows: tuple[float | None, float | None, float | None]) -> dict[tuple[str, str], float | None]:
    """Labels of d1, d2 and d3 for each question."""
    return {(query, f"d{at}"): one for query, row in rows.items() for at, one in enumerate(row, 1)}


def contains(name: str, answer: str, text: str, title: str = "") -> float | None:
    """The label of one passage for one query with one answer."""
    evidence = Evidence(
        pairs=pl.DataFrame({"query_id": ["q"], "doc_id": ["d"]}),
        queries=QUERIES.head(1).with_columns(query_id=pl.lit("q"), answers=pl.Series([[answer]])),
        corpus=pl.DataFrame({"doc_id": ["d"], "page_id": ["p"], "title": [title], "text": [text]}),
        provenance=PROVENANCE,
    )
    return labels_of(name, evidence)["q", "d"]


# --- erag ---


def test_erag_scores_each_output_with_its_querys_own_score() -> None:
    pairs = [("q1", "d1"), ("q1", "d2"), ("q2", "d1"), ("q3", "d1"), ("q4", "d1")]
    outputs = ["shakespeare", "Shakespeare", None, "supports", "Lima a city"]
    said = answers(
        *((*pair, "fid", output) for pair, output in zip(pairs, outputs, strict=True)),
        ("q4", "d3", "fid", "an answer that nobody asked for"),
    )
    evidence = answered(said, pairs=pl.DataFrame(pairs, schema=["query_id", "doc_id"], orient="row"))
    rows = annotate("erag", evidence).to_pylist()
    assert [(row["score"], row["query_id"], row["doc_id"], row["label"]) for row in rows] == [
        ("accuracy", "q3", "d1", 0.0),  # case counts
        ("exact_match", "q1", "d1", 1.0),
        ("exact_match", "q1", "d2", 1.0),
        ("exact_match", "q2", "d1", None),  # not judged, which is not 0
        # "lima city" against "lima is big city": p = 2/2, r = 2/4, f = 2 * 1 * 0.5 / 1.5
        ("token_f1", "q4", "d1", pytest.approx(2 / 3)),
    ]
    assert {(row["reader"], row["annotator"]) for row in rows} == {("fid", "erag")}


def test_erag_labels_every_reader_apart() -> None:
    said = answers(("q1", "d1", "fid", "Shakespeare"), ("q1", "d1", "ipa", "Marlowe"))
    evidence = answered(said, pairs=PAIRS.head(1))
    rows = annotate("erag", evidence).to_pylist()
    assert [(row["reader"], row["label"]) for row in rows] == [("fid", 1.0), ("ipa", 0.0)]


def test_the_auxiliary_readers_labels_have_no_reader_and_are_scored_like_erags() -> None:
    rows = annotate("erag_auxiliary", answered(SAID)).to_pylist()
    of_reader = annotate("erag", answered(SAID)).to_pylist()
    assert rows == [{**row, "reader": "", "annotator": "erag_auxiliary"} for row in of_reader]
    assert {row["label"] for row in rows} == {0.0, 0.4, 1.0}
    assert set(labels_of("gold_likelihood_auxiliary", WORLD).values()) == {0.3}


def test_a_pair_without_an_answer_is_a_fault_and_not_a_null() -> None:
    both = answers(("q1", "d1", "fid", "x"), ("q1", "d2", "fid", "x"))
    with pytest.raises(ValueError, match=r"1 pairs lack a response of the kind answer, such as .*'d3'"):
        annotate("erag", answered(both, pairs=PAIRS.head(3)))
    with pytest.raises(ValueError, match="'erag' needs responses of the kind answer"):
        annotate("erag", WORLD)


def test_an_answer_given_twice_is_an_error() -> None:
    twice = answers(("q1", "d1", "fid", "x"), ("q1", "d1", "fid", "y"))
    with pytest.raises(ValueError, match="2 rows share a key"):
        annotate("erag", answered(twice, pairs=PAIRS.head(1)))


# --- contains_answer ---


@pytest.mark.parametrize("name", RULES)
def test_contains_answer_looks_in_the_text_for_any_answer_of_exact_match_queries(name: str) -> None:
    # of q2 Lima is only in the title of d2
    assert labels_of(name, WORLD) == by_pair(q1=(1.0, 0.0, 0.0), q2=(0.0, 0.0, 1.0))


@pytest.mark.parametrize(
    ("answer", "text", "dpr", "kilt"),
    [
        ("us", "a white house", 0, 1),  # a substring, no token
        ("U.S.", "the U.S. army", 1, 1),
        ("U.S.", "we trust", 0, 1),  # normalises to "us"
        ("1998", "in 1998-99", 1, 1),
        ("well-known", "a wellknown fact", 0, 1),  # the hyphen is a token of its own
        ("well - known", "a well-known fact", 1, 0),  # "well known" against "wellknown"
        ("The Wall", "behind a wall", 0, 1),  # "the" is a token, but no part of the normalised answer
        ("the wall", "THE  WALL.", 1, 1),
        ("new york new york", "New York, New York", 0, 1),  # the comma is a token
        ("york york", "New York", 0, 0),  # a repeated word must be there twice
        ("york new", "new york new york", 1, 1),
        ("new york", "new jersey york", 0, 0),  # side by side
        ("서울", "수도는 서울 이다", 1, 1),
        ("서울", "서울은 수도이다", 1, 1),  # a particle is attached
        ("서울", unicodedata.normalize("NFD", "수도는 서울이다"), 1, 0),
        ("cafe", "le café noir", 0, 0),  # the accent is part of the token
        ("서우", "수도는 서울이다", 0, 0),  # syllables are not taken apart
        ("5", "2015년에 완공되었다", 0, 1),
        ("5명", "15명이 왔다", 0, 1),
        ("5", "5명이 왔다", 1, 1),
        ("2015년", "2015년에 완공되었다", 1, 1),
        ("Apple", "Apple사는 크다", 1, 1),
        ("東京", "首都は東京です。", 1, 1),
        ("東京", "首都は京東です。", 0, 0),
        ("か", "が", 0, 0),  # the mark belongs to its character
        ("スティーブ・ジョブズ", "創業者はスティーブ・ジョブズだ", 1, 1),
        ("北京", "中国的首都是北京。", 1, 1),
        ("กรุงเทพ", "เมืองหลวงคือกรุงเทพมหานคร", 1, 1),
        ("กา", "ก้า", 0, 0),
        ("๕", "พ.ศ. ๒๕๑๕", 0, 1),
        ("ວຽງຈັນ", "ນະຄອນຫຼວງແມ່ນວຽງຈັນ", 1, 1),
        ("ភ្នំពេញ", "រាជធានីគឺភ្នំពេញ", 1, 1),
        ("ရန်ကုန်", "မြို့တော်ဟောင်းရန်ကုန်မြို့", 1, 1),
        ("C++", "the C++ language", 1, 1),
        ("C#", "the C language", 0, 1),
        ("longer than the text", "text", 0, 0),
        ("anything", "", 0, 0),
    ],
)
def test_the_two_rules(answer: str, text: str, dpr: int, kilt: int) -> None:
    assert contains("contains_answer_dpr", answer, text) == dpr
    assert contains("contains_answer_kilt", answer, text) == kilt


@pytest.mark.parametrize(
    ("answer", "dpr"),
    [("The", 1), ("!", 0), (".", 0), ("×", 0), ("。", 0), ("№", 0), (" ", 0), ("\u200b", 0)],
)
def test_an_answer_without_a_word_matches_nothing(answer: str, dpr: int) -> None:
    # DPR's rule keeps "The" as a token; KILT's form is empty
    text = f"x {answer} y. No tm!"
    assert contains("contains_answer_dpr", answer, text) == dpr
    assert contains("contains_answer_kilt", answer, text) == 0.0


tokens = st.lists(st.sampled_from(["a", "B", "é", "re\u0301", ",", "x1", "서", "が"]), max_size=8)


# a machine that is busy takes longer than the usual 200 ms
@given(tokens, tokens.filter(bool))
def test_a_substring_of_forms_is_a_contiguous_token_subsequence(
    passage: list[str], answer: list[str]
) -> None:
    windows = [passage[i : i + len(answer)] for i in range(len(passage))]
    passage_form, answer_form = dpr_form(pl.Series([" ".join(passage), " ".join(answer)]))
    assert (answer_form in passage_form) == (answer in windows)


def test_many_passages_go_in_parts_and_keep_their_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("erag_ray.annotators.contains._PASSAGES_AT_A_TIME", 3)
    texts = ["Lima" if i % 3 else "Quito" for i in range(10)]
    corpus = pl.DataFrame(
        {"doc_id": [f"d{i}" for i in range(10)], "page_id": None, "title": "", "text": texts}
    )
    pairs = pl.DataFrame({"query_id": "q2", "doc_id": corpus["doc_id"]})
    labels = labels_of("contains_answer_dpr", replace(WORLD, pairs=pairs, corpus=corpus))
    assert labels == {("q2", f"d{i}"): float(i % 3 > 0) for i in range(10)}


# --- provenance ---


def test_provenance_is_any_gold_page_and_null_without_a_page() -> None:
    expected = by_pair(q1=(1.0, 0.0, None), q2=(0.0, 1.0, None), q3=(0.0, 0.0, None))
    assert labels_of("provenance", WORLD) == expected


def test_gold_documents_are_judged_by_their_own_id_wherever_they_are() -> None:
    # p1 is the id of a page and, by chance, of a gold document; d9 is in no list and in no passage file
    documents = [("q1", "d3"), ("q2", "p1"), ("q4", "d3"), ("q4", "d9")]
    evidence = replace(WORLD, provenance=gold_of([("q1", "p1"), ("q3", "p9")], documents))
    labels = labels_of("provenance", evidence)
    assert labels == by_pair(
        q1=(1.0, 0.0, 1.0),  # by page, neither, by its own id
        q2=(0.0, 0.0, 0.0),  # the gold document is not found, and d3 needs no page to be judged
        q3=(0.0, 0.0, None),  # pages only
        q4=(0.0, 0.0, 1.0),
    )


# --- all of them ---


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("erag", ["q1", "q2", "q3", "q4"]),
        ("contains_answer_dpr", ["q1", "q2"]),
        ("contains_answer_kilt", ["q1", "q2"]),
        ("provenance", ["q1", "q2", "q3"]),
    ],
)
def test_applicable_queries(name: str, expected: list[str]) -> None:
    assert applicable_queries(name, WORLD)["query_id"].to_list() == expected


@pytest.mark.parametrize("name", ANNOTATORS)
def test_rows_come_sorted_whatever_the_order_of_the_evidence(name: str) -> None:
    evidence = answered(SAID)
    order = random.Random(0).sample(range(PAIRS.height), PAIRS.height)
    shuffled = replace(evidence, pairs=PAIRS[order], corpus=CORPUS.reverse(), queries=QUERIES.reverse())
    expected = annotate(name, evidence)
    assert expected.num_rows > 0
    assert annotate(name, shuffled).equals(expected)


@pytest.mark.parametrize("name", ANNOTATORS)
def test_no_pairs_give_no_labels(name: str) -> None:
    nothing = answered(answers(), pairs=PAIRS.clear())
    assert annotate(name, nothing).equals(LABELS.columns.empty_table())


def test_unknown_ids_and_repeated_pairs_are_errors() -> None:
    stranger = pl.DataFrame({"query_id": ["q7"], "doc_id": ["d1"]})
    with pytest.raises(ValueError, match="query_id not in the queries, such as 'q7'"):
        annotate("provenance", replace(WORLD, pairs=stranger))
    lost = pl.DataFrame({"query_id": ["q1"], "doc_id": ["d7"]})
    for name in (*RULES, "provenance"):
        with pytest.raises(ValueError, match="doc_id not in the corpus, such as 'd7'"):
            annotate(name, replace(WORLD, pairs=lost))
        with pytest.raises(ValueError, match="rows share a key"):
            annotate(name, replace(WORLD, pairs=pl.concat([PAIRS, PAIRS.head(1)])))


OUTSIDE = Annotator(
    name="long_text",
    function=lambda evidence: evidence.pairs.with_columns(label=pl.lit(0.25)),
    applies=lambda evidence: pl.col("dataset") == "wow",
    kind="graded",
)
NAMELESS = Annotator(
    name="no_label",
    function=lambda evidence: evidence.pairs,
    applies=lambda evidence: pl.lit(True),
    kind="binary",
)


def test_outside_annotators_are_named_by_module_and_must_give_labels() -> None:
    name = f"{__name__}:OUTSIDE"
    rows = annotate(name, WORLD).to_pylist()
    assert [(row["annotator"], row["query_id"], row["label"]) for row in rows] == [(name, "q4", 0.25)] * 3
    with pytest.raises(ValueError, match=r"missing columns \['label'\]"):
        annotate(f"{__name__}:NAMELESS", WORLD)
    with pytest.raises(ValueError, match="is a list, not an"):
        annotator_named(f"{__name__}:RULES")
    with pytest.raises(ValueError, match="unknown annotator 'umbrela'; known: contains_answer_dpr"):
        annotator_named("umbrela")
