"""The other splitting rules, each by examples worked by hand."""

from __future__ import annotations

import pytest
import spacy
from pages import page_of, words

from erag_ray.passages.splitters import chunks_of_sentences, dpr_wrap, recursive_characters, splitter_named

# --- dpr_wrap ---


def test_the_last_window_is_filled_up_from_the_start() -> None:
    found = list(dpr_wrap(page_of("T", words(1, 150), "Section::::X", words(151, 250))))
    assert found == [words(1, 100), words(101, 200), f"{words(201, 250)} {words(1, 50)}"]


@pytest.mark.parametrize("count", [100, 200])
def test_full_windows_are_not_filled_up(count: int) -> None:
    assert [len(text.split()) for text in dpr_wrap(page_of("T", words(1, count)))] == [100] * (count // 100)


def test_a_short_page_is_told_twice_at_most() -> None:
    assert list(dpr_wrap(page_of("T", "a b c"))) == ["a b c a b c"]
    assert list(dpr_wrap(page_of("T", "", "Section::::only"))) == []


def test_punctuation_is_no_word_and_spacy_says_what_a_word_is() -> None:
    # "don't" is two tokens, the commas none: 33 * 3 + 1 words
    text = "don't, go, " * 33 + "end more"
    first, second = dpr_wrap(page_of("T", text))
    assert first == "don't, go, " * 33 + "end"
    assert second == "more " + "don't, go, " * 32 + "don't, go"


# --- kilt_official ---


@pytest.fixture(scope="module")
def pipeline() -> spacy.Language:
    """Sentences end at full stops: the rule itself needs no parser."""
    made = spacy.blank("en")
    made.add_pipe("sentencizer")
    return made


def sentence(name: str, size: int) -> str:
    """A sentence of ``size`` tokens, its full stop among them."""
    return " ".join(f"{name}{number}" for number in range(size - 1)) + "."


def chunks(pipeline: spacy.Language, *paragraphs: str) -> list[str]:
    return list(chunks_of_sentences(page_of("Title", *paragraphs), pipeline))


def test_sentences_are_whole_and_stay_below_100_tokens(pipeline: spacy.Language) -> None:
    a, b, c, long = sentence("a", 60), sentence("b", 39), sentence("c", 40), sentence("d", 130)
    # 60 + 39 = 99; a hundred would be one too many
    assert chunks(pipeline, f"{a} {b} {c}") == [f"{a} {b}", c]
    assert chunks(pipeline, f"{a} {c} {b}") == [a, f"{c} {b}"]
    assert chunks(pipeline, f"{long} {b}") == [long, b]


def test_what_a_paragraph_leaves_joins_the_passage_before_it_within_a_section(
    pipeline: spacy.Language,
) -> None:
    a, b, c = sentence("a", 50), sentence("b", 48), sentence("c", 3)
    # 50 + 48 = 98 and the space between them make 99, so nothing more has room
    assert chunks(pipeline, a, b, c) == [f"{a} {b}", c]
    assert chunks(pipeline, a, "Section::::History.", b, c) == [a, f"{b} {c}"]
    assert chunks(pipeline, " \n", a) == [a]
    assert chunks(pipeline) == []


# --- recursive_characters ---


def test_characters_are_cut_at_the_widest_gap() -> None:
    first, second = "a" * 200, "b" * 150
    assert list(recursive_characters(page_of("T", first, "Section::::S", second))) == [first, second]
    assert list(recursive_characters(page_of("T", "short\n", " one "))) == ["short\n\none"]
    assert list(recursive_characters(page_of("T"))) == []


def test_whole_pieces_of_at_most_20_characters_overlap() -> None:
    found = list(recursive_characters(page_of("T", " ".join(["word"] * 100))))
    # 60 words of four letters with 59 spaces are 299 characters; four words with their spaces are the overlap
    assert [len(text.split()) for text in found] == [60, 44]
    assert all(len(text) <= 300 for text in found)


def test_a_splitter_whose_package_is_missing_says_so() -> None:
    with pytest.raises(
        ValueError, match="kilt_official needs the package en_core_web_sm, which is not installed"
    ):
        splitter_named("kilt_official")
