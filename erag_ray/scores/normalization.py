"""Texts -> the form in which outputs and gold answers are compared. Pure.

A form is a text's tokens, joined by single spaces: two texts are equal where their forms are, and one holds another's
tokens in a row where its form, between spaces, holds the other's. KILT's form (`normalize_answer`) is for its own
scores; `form_of` gives the forms of languages.
"""

from __future__ import annotations

import functools
import re
import string
import unicodedata
from collections.abc import Callable

ARTICLES = re.compile(r"\b(?:an?|the)\b")
NUM_CACHED = 1 << 16
"""Forms that are remembered: the gold_answers of a query meet every one of its outputs."""
Form = Callable[[str], str]


# --- KILT ---


def normalize_answer(text: str) -> str:
    """Lower case, no ASCII punctuation, no English articles, single spaces: SQuAD's and KILT's normalisation.

    Punctuation leaves no space behind ("U.S." -> "us", "well-known" -> "wellknown"). Nothing is folded: "é"
    as one character and as "e" plus an accent stay different, and quotation marks outside ASCII stay.
    """
    return " ".join(ARTICLES.sub(" ", without_punctuation(text)).split())


def without_punctuation(text: str) -> str:
    """Lower case, and no ASCII punctuation."""
    bare = text.lower()
    for mark in string.punctuation:  # three times as fast as str.translate on a passage of 100 words
        bare = bare.replace(mark, "")
    return bare


normalized = functools.lru_cache(maxsize=NUM_CACHED)(normalize_answer)


# --- languages ---


class _Separators(dict[int, str | None]):
    """Code point -> what `str.translate` makes of it: punctuation and symbols a space, format characters nothing."""

    def __missing__(self, point: int) -> str | None:
        character = chr(point)
        category = unicodedata.category(character)
        self[point] = " " if category[0] in "PS" else None if category == "Cf" else character
        return self[point]


_SEPARATORS = _Separators()
# apostrophe; hyphen, non-breaking hyphen, figure dash, en dash, minus
_TYPOGRAPHIC = dict.fromkeys(map(ord, "\u2019\u2010\u2011\u2012\u2013\u2212"))
_IN_NUMBER = re.compile(r"(?<=\d)[.,](?=\d)")
_SCRIPTS = (
    "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\u3041-\u30ff\u31f0-\u31ff"  # Hiragana, Katakana
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7ff"  # Hangul
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Myanmar, Khmer
)
_CHARACTERS = re.compile(rf"[{_SCRIPTS}]|[^\s{_SCRIPTS}]+")


def word_form(text: str) -> str:
    """Words between single spaces, of a language that writes them so.

    NFKC and case folding; punctuation and symbols (Unicode's categories P and S) separate words, but "." and ","
    inside a number vanish ("1,000" -> "1000"), and so do invisible format characters. No article is left out.
    """
    folded = _IN_NUMBER.sub("", _folded(text))
    return " ".join(_nfkc(folded.translate(_SEPARATORS)).split())


def character_form(text: str) -> str:
    """`word_form` with each character of a script without spaces, or of Hangul, as a token of its own.

    Runs of other characters stay whole, as in CMRC 2018 and MLQA ("mixed segmentation"): "5" is not in "2015년".
    """
    return " ".join(_CHARACTERS.findall(word_form(text)))


def english_form(text: str) -> str:
    """`normalize_answer`, and what it leaves of Unicode as `word_form` has it.

    Typographic apostrophes and hyphens vanish as "'" and "-" do ("1973\u20131974" -> "19731974"); em dashes and curly
    quotation marks, which chat models like to write, separate words. Texts that are equal by `normalize_answer` stay
    equal.
    """
    return normalize_answer(word_form(normalize_answer(text).translate(_TYPOGRAPHIC)))


def _folded(text: str) -> str:
    """Case folded, for compatibility caseless matching (The Unicode Standard, section 3.13, D146)."""
    return _nfkc(_nfkc(unicodedata.normalize("NFD", text).casefold()).casefold())


def _nfkc(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


CHARACTER_LANGUAGES = frozenset({"ja", "km", "ko", "lo", "my", "th", "zh"})
"""Read by `character_form`: no spaces between words, or (Korean) particles attached to them."""
_WORD_LANGUAGES = (
    "ar bg bn ca cs da de el es et eu fa fi fr he hi hr hu id it lt lv ms nl no pl pt ro ru sk sl sr sv sw ta te tr uk "
    "ur vi"
)
WORD_LANGUAGES = frozenset(_WORD_LANGUAGES.split())
"""Read by `word_form`."""
ENGLISH = "en"
LANGUAGES = CHARACTER_LANGUAGES | WORD_LANGUAGES | {ENGLISH}
"""ISO 639-1."""


def check_language(language: str) -> None:
    """Refuse a language that there is no form for.

    Raises:
        ValueError: it is unknown; the message names all.
    """
    if language not in LANGUAGES:
        raise ValueError(f"unknown language {language!r}; known (ISO 639-1): {', '.join(sorted(LANGUAGES))}")


@functools.cache
def form_of(language: str) -> Form:
    """The form of texts in a language, with a cache.

    Raises:
        ValueError: the language is unknown.
    """
    check_language(language)
    form = character_form if language in CHARACTER_LANGUAGES else word_form
    return functools.lru_cache(NUM_CACHED)(english_form if language == ENGLISH else form)
