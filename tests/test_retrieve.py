"""Ranked lists: BM25's scores against the formula, ties, words, and the files and seals that the job makes of them."""

import inspect
import math
import re
import sys
import types

import numpy as np
import pytest
import Stemmer
from bm25s.stopwords import STOPWORDS_EN
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from ranked_lists import corpus_of, lists_of, searched
from tiny import PASSAGES, QUESTIONS

from erag_ray.retrieve.analysers import English, analyser_settings
from erag_ray.retrieve.lists import best, title_and_first_sentence

# --- the floor ---


def test_random_lists_depend_on_question_and_seed_alone_and_repeat_nothing() -> None:
    corpus = corpus_of({f"d{number}": ("", "text") for number in range(30)})
    found = searched(corpus, "a", "b", depth=10, kind="random")
    again = searched(corpus.reverse(), "a", "b", depth=10, kind="random")
    assert found.equals(again)
    first, second = (found.filter(query_id=query)["doc_id"].to_list() for query in ("q0", "q1"))
    assert len(set(first)) == 10
    assert first != second
    assert searched(corpus, "a", depth=10, kind="random", seed=1)["doc_id"].to_list() != first


def test_random_lists_are_as_long_as_the_corpus_at_most_and_draw_evenly() -> None:
    corpus = corpus_of(dict.fromkeys("abcd", ("", "")))
    found = searched(corpus, *["?"] * 400, depth=9, kind="random")
    assert found.height == 1600
    firsts = found.filter(rank=1)["doc_id"].value_counts()["count"]
    assert firsts.min() > 60


# --- scores ---


def plain_words(text: str) -> list[str]:
    """The analyser, word by word."""
    stemmer = Stemmer.Stemmer("english")
    found = re.findall(r"\w+(?:'\w+)*", text.lower().replace("\u2019", "'"))
    return [stemmer.stemWord(word) for word in found if word not in STOPWORDS_EN]


def plain_bm25(query: str, texts: dict[str, str], k1: float, b: float) -> dict[str, float]:
    """Lucene's formula as it is written: idf = ln(1 + (N - n + .5) / (n + .5)), no factor k1 + 1 above."""
    words = {name: plain_words(text) for name, text in texts.items()}
    mean_length = sum(map(len, words.values())) / len(words)
    scores = dict.fromkeys(texts, 0.0)
    for term in plain_words(query):
        holders = sum(term in held for held in words.values())
        idf = math.log(1 + (len(words) - holders + 0.5) / (holders + 0.5))
        for name, held in words.items():
            count = held.count(term)
            scores[name] += idf * count / (count + k1 * (1 - b + b * len(held) / mean_length))
    return {name: score for name, score in scores.items() if score}


def test_an_analyser_from_outside_is_told_by_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "my_words", types.SimpleNamespace(plain=str.split))
    rules = []
    for code in "aab":
        monkeypatch.setattr(inspect, "getsource", lambda module, code=code: code)
        rules.append(analyser_settings("my_words:plain")["code"])
    assert rules[0] == rules[1] != rules[2]


TEXTS = {
    **{name: f"{title} {text}" for name, (_, title, text) in PASSAGES.items()},
    "e1": "Ada\u2019s mills, Ada's milling and the miller's 1874 light",
    "e2": "the of and",
    "e3": "",
}


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.5, 0.75), (0.9, 0.0)])
def test_scores_are_those_of_the_formula(k1: float, b: float) -> None:
    corpus = corpus_of({name: ("", text) for name, text in TEXTS.items()})
    asked = [*(question for question, _, _ in QUESTIONS.values()), "mill mill Ada's light", "lights of Ada"]
    found = searched(corpus, *asked, k1=k1, b=b)
    assert found.height > 20
    for number, query in enumerate(asked):
        rows = found.filter(query_id=f"q{number}")
        expected = plain_bm25(query, TEXTS, k1, b)
        assert dict(rows.select("doc_id", "score").rows()) == pytest.approx(expected, rel=1e-5)
        assert rows["score"].is_sorted(descending=True)


def test_words_are_lowered_stemmed_and_freed_of_stop_words_and_possessives() -> None:
    text = "The Mills' owner, ADA\u2019s: it's 5 o'clock; cafe\u0301 x"
    # Hindi and Yoruba: vowel signs and accents without a precomposed letter; the sign after a symbol is not a word
    marked = ["\u0939\u093f\u0928\u094d\u0926\u0940", "\u1ecd\u0300r\u1ecd\u0300"]
    found = English()([text, " ".join([*marked, "\u2764\ufe0f"])])
    assert found == [["mill", "owner", "ada", "it", "5", "o'clock", "caf\u00e9", "x"], marked]


# --- lists ---


def test_ties_go_by_document_id_the_last_one_first_also_where_the_list_is_cut() -> None:
    names = ["d1", "d10", "d2", "D3", "\u00e9", "d9"]
    corpus = corpus_of(dict.fromkeys(names, ("", "same words")) | {"best": ("", "same same words")})
    (whole,) = lists_of(corpus, "same")
    # by bytes, as strcmp has it
    assert [name for name, _ in whole] == ["best", "\u00e9", "d9", "d2", "d10", "d1", "D3"]
    (cut,) = lists_of(corpus, "same", depth=4)
    assert cut == whole[:4]


@settings(max_examples=200)
@given(
    hnp.arrays(np.float32, st.integers(0, 40), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0])),
    st.integers(1, 45),
)
def test_the_best_are_those_of_a_whole_sort(scores: np.ndarray, depth: int) -> None:
    order = sorted(range(len(scores)), key=lambda place: (-scores[place], place))
    assert best(scores, depth).tolist() == [place for place in order if scores[place] > 0][:depth]


@pytest.mark.long
@settings(max_examples=25)
@given(
    st.lists(st.text("ab ", max_size=6), min_size=1, max_size=12), st.integers(0, 1000), st.integers(1, 13)
)
def test_the_order_of_the_passages_makes_no_difference(texts: list[str], seed: int, depth: int) -> None:
    corpus = corpus_of({f"d{number}": ("", f"{text} c") for number, text in enumerate(texts)})
    found = lists_of(corpus, "aa b c", depth=depth)
    assert lists_of(corpus.sample(fraction=1, shuffle=True, seed=seed), "aa b c", depth=depth) == found
    ordered = sorted(found[0], key=lambda row: (row[1], row[0]), reverse=True)
    assert found[0] == ordered


@pytest.mark.parametrize("texts", [{}, {"a": ("", "")}, {"a": ("the", "of")}])
def test_passages_without_words_are_never_found(texts: dict[str, tuple[str, str]]) -> None:
    assert lists_of(corpus_of(texts), "the mill", "") == [[], []]


def test_a_question_without_a_matching_word_has_an_empty_list(caplog: pytest.LogCaptureFixture) -> None:
    corpus = corpus_of({"a": ("", "mill"), "b": ("", "river \u6771\u4eac\u306f\u9996\u90fd")})
    found = lists_of(corpus, "unheard", "the", "", "mill", "unheard mill", "\u9996\u90fd")
    assert [len(one) for one in found] == [0, 0, 0, 1, 1, 0]
    assert "1 of 6 questions are in a script without spaces" in caplog.text
    assert found[3] == found[4]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("One here. Two there.", "One here."),
        ("John F. Kennedy ran (in 1960). He won.", "John F. Kennedy ran (in 1960)."),
        ('He said "No!" Then left.', 'He said "No!"'),
        ("Pi is 3.14 here? Yes", "Pi is 3.14 here?"),
        ("no end at all", "no end at all"),
        ("\u9996\u90fd\u3002\u300d\u6771\u4eac\u3002 A b.", "\u9996\u90fd\u3002\u300d"),
        ("", ""),
    ],
)
def test_the_first_sentence(text: str, first: str) -> None:
    assert title_and_first_sentence(corpus_of({"a": ("T", text)})).to_list() == [f"T {first}"]


def test_a_search_of_first_sentences_does_not_see_the_second_sentence() -> None:
    corpus = corpus_of({"a": ("Title", "First words. Second mill."), "b": ("Other", "A mill.")})
    found = searched(corpus, "mill", "title", searches="title_and_first_sentence")
    assert found.select("query_id", "doc_id").rows() == [("q0", "b"), ("q1", "a")]
