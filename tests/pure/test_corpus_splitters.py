"""The other splitting rules, each by examples worked by hand."""

from __future__ import annotations

import importlib.util

import pytest
from pages import page_of

from erag_ray.data.passages.splitters import recursive_characters, splitter_named


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


def test_a_splitter_whose_package_is_missing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match="recursive_characters needs the package langchain_text_splitters, which"
    ):
        splitter_named("recursive_characters")
