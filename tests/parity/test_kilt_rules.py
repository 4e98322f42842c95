"""Scores and contains_answer rules against outside implementations and published numbers."""

import re
import string
import unicodedata

import polars as pl
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from rouge import Rouge
from rouge_score import rouge_scorer

from erag_ray.annotators.contains import dpr_form
from erag_ray.measures.scores import SCORES, normalize_answer, rouge_l_google, rouge_l_kilt, score_outputs

pytestmark = pytest.mark.parity

words = st.lists(st.sampled_from(["a", "b", "B", "c.", "d", ".", ". .", "é"]), min_size=1, max_size=12)
sentences = words.map(" ".join)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        # EM: 1 + 1 ("a suicide" normalised) + 0; F1 of "suicide" and "it was suicide": p = 1, r = 1/3, f = 1/2
        ("exact_match", 2 / 3),
        ("token_f1", 0.8333333333333334),
        # 0.999999995, 2/3 and 1/2, each a little less for the 1e-8 in the denominator
        ("rouge_l_kilt", 0.7222222178240741),
    ],
)
def test_means_that_kilt_asserts(name: str, published: float) -> None:
    # facebookresearch/KILT (MIT), tests/test_eval_downstream.py: gold1.out against guess1_1.out
    outputs = ["suicide", "a suicide", "suicide"]
    answers = [["suicide"], ["suicide"], ["it was suicide"]]
    values = score_outputs(outputs, answers, SCORES[name])
    assert sum(value for value in values if value is not None) / 3 == pytest.approx(published, abs=1e-15)


@given(sentences, sentences)
def test_rouge_l_kilt_is_the_package_rouge(output: str, gold: str) -> None:
    # as KILT calls it: all of its variants, averaged over one pair
    try:
        expected = Rouge().get_scores(output, gold, avg=True)["rouge-l"]["f"]
    except ValueError:  # one side has no sentence; KILT stops here
        expected = 0.0
    assert rouge_l_kilt(output, [gold]) == expected


@given(sentences, st.lists(sentences, min_size=1, max_size=3))
def test_rouge_l_google_is_the_best_f_of_the_package_rouge_score(output: str, answers: list[str]) -> None:
    scorer = rouge_scorer.RougeScorer(["rougeL"], use_stemmer=False)
    expected = scorer.score_multi([answer.strip() for answer in answers], output.strip())["rougeL"].fmeasure
    assert rouge_l_google(output, answers) == pytest.approx(expected)


# Blocks whose characters have had the same properties for many versions of Unicode.
characters = st.one_of(
    st.characters(min_codepoint=0x00, max_codepoint=0x2FF),
    st.sampled_from("\u0301\u0327\u200b\u00a0\u2009\u2028“”…€½²"),
    st.sampled_from("ΑΣσςİıßŁøДджאבعربहिन्दी日本語서울역각ガ😀"),
)


@given(st.lists(st.text(characters, max_size=30), min_size=1, max_size=5))
def test_dpr_form_has_the_tokens_that_the_regex_package_finds(texts: list[str]) -> None:
    # the rule of DPR and FiD in another engine: NFD, the two classes, then lower case
    for text, form in zip(texts, dpr_form(pl.Series(texts)), strict=True):
        # unlike there, characters of scripts without spaces, and syllables, are tokens: set them apart first
        spaced = regex.sub(
            r"([\p{Han}\p{Hangul}\p{Katakana}]\p{M}*)", r" \1 ", unicodedata.normalize("NFC", text)
        )
        found = regex.findall(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]", unicodedata.normalize("NFD", spaced))
        assert form.split(" ")[1:-1] == [token.lower() for token in found]


@given(st.text(st.one_of(characters, st.sampled_from("athen .-'")), max_size=30))
def test_normalize_answer_is_the_squad_recipe(text: str) -> None:
    # lower case, delete string.punctuation, blank out articles between word boundaries, collapse white space
    kept = "".join(character for character in text.lower() if character not in set(string.punctuation))
    assert normalize_answer(text) == re.sub(r"\s+", " ", re.sub(r"\b(a|an|the)\b", " ", kept)).strip()
