"""Normalised forms in which outputs and gold answers are compared. Pure.

A form is the text's tokens joined by single spaces. Texts are equal if their forms are, and a text contains another's
tokens as a contiguous sequence if its form, between spaces, contains the other's. KILT's scores use its own form
(`normalize_answer`); `form_of` returns that of a language.
"""

import functools
import re
import string
import unicodedata
from collections.abc import Callable

ARTICLES = re.compile(r"\b(?:an?|the)\b")
NUM_CACHED = 1 << 16
"""Size of the caches of forms: the gold answers of a query are compared with every one of its outputs."""
Form = Callable[[str], str]
MARKUP = {
    r"in \boxed{}": r"\\(?:boxed|text(?:bf|it)?)\s*\{",
    "that are JSON objects": r'(?s)^\s*(?:```(?:json)?)?\s*\{\s*".*\}\s*(?:```)?\s*$',
    "with citation marks at a word (Paris[1])": r"[\w.,]\^?\[\^?\d+\]",
}
"""Outputs whose markup scores compare as text -> pattern of them."""
UNREAD = {
    **dict.fromkeys(("abstained", "rouge_l_google"), r"^[^A-Za-z]*\p{L}[^A-Za-z]*$"),
    **dict.fromkeys(
        ("exact_match", "token_f1", "rouge_l_kilt"), r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}]"
    ),
}
"""Score -> pattern, of Polars, of outputs in a script that it is not made for."""


# --- KILT ---


def normalize_answer(text: str) -> str:
    """Normalise as SQuAD and KILT do: lower case, no ASCII punctuation, no English articles, single spaces.

    Punctuation leaves no space behind ("U.S." -> "us", "well-known" -> "wellknown"). Without Unicode normalisation: "é"
    as one character and as "e" plus an accent stay different, and quotation marks outside ASCII stay.
    """
    text = text.lower()
    for mark in string.punctuation:  # three times as fast as str.translate on a passage of 100 words
        text = text.replace(mark, "")
    return " ".join(ARTICLES.sub(" ", text).split())


normalized = functools.lru_cache(maxsize=NUM_CACHED)(normalize_answer)


# --- languages ---


class _Separators(dict[int, str | None]):
    """Table for `str.translate`: punctuation and symbols become a space, format characters are removed."""

    def __missing__(self, point: int) -> str | None:
        character = chr(point)
        category = unicodedata.category(character)
        self[point] = " " if category[0] in "PS" else None if category == "Cf" else character
        return self[point]


_SEPARATORS = _Separators()
# apostrophe; hyphen, non-breaking hyphen, figure dash, en dash, minus
_TYPOGRAPHIC = dict.fromkeys(map(ord, "\u2019\u2010\u2011\u2012\u2013\u2212"))
_IN_NUMBER = re.compile(r"(?<=\d)[.,](?=\d)")
UNSPACED = (
    "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Hiragana, Katakana
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7ff"  # Hangul
    # Thai, Lao, Myanmar, Khmer, without their digits
    "\u0e00-\u0e4f\u0e5a-\u0ecf\u0eda-\u0eff\u1000-\u103f\u104a-\u108f\u109a-\u109f\u1780-\u17df\u17ea-\u17ff"
)
"""Characters that are tokens of their own, as ranges of a regular expression: scripts without spaces between words, and
Hangul, whose particles are attached to words."""
_TOKENS = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


def has_word(text: str) -> bool:
    """Return whether a text has a letter or a number; others, such as "*", "\u00d7" or "\u2116", are only signs."""
    return any(map(str.isalnum, text))


def whole_words(pattern: str) -> str:
    """Return a regular expression for a pattern at word boundaries; characters of `UNSPACED` are words of their own."""
    start = rf"(?:(?<![^\W{UNSPACED}])|(?=[{UNSPACED}]))"
    end = rf"(?:(?![^\W{UNSPACED}])|(?<=[{UNSPACED}]))"
    return f"{start}(?:{pattern}){end}"


def word_form(text: str) -> str:
    """Return the form of a text in a language other than English; "" for a text that is only signs.

    NFKC and case folding; punctuation and symbols (Unicode categories P and S) separate words, but "." and "," inside
    a number are removed ("1,000" -> "1000"), and so are invisible format characters. Articles stay. Each character of
    `UNSPACED` is a token, and runs of other characters are one, as in CMRC 2018 and MLQA ("mixed segmentation"): "5" is
    not in "2015\ub144".
    """
    if not has_word(text):
        return ""
    # compatibility caseless matching (The Unicode Standard, section 3.13, D146)
    folded = _IN_NUMBER.sub("", _nfkc(_nfkc(unicodedata.normalize("NFD", text).casefold()).casefold()))
    return _if_word(" ".join(_TOKENS.findall(_nfkc(folded.translate(_SEPARATORS)))))


def english_form(text: str) -> str:
    """Return `normalize_answer` of a text, with characters outside ASCII treated as in `word_form`.

    Typographic apostrophes and hyphens are removed as "'" and "-" are ("1973\u20131974" -> "19731974"); em dashes and
    curly quotation marks, which chat models often write, separate words. Texts that are equal by `normalize_answer`
    stay equal.
    """
    return _if_word(normalize_answer(word_form(normalize_answer(text).translate(_TYPOGRAPHIC))))


def _if_word(form: str) -> str:
    return form if has_word(form) else ""


def _nfkc(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


_LANGUAGES = (
    "ar bg bn ca cs da de el en es et eu fa fi fr he hi hr hu id it ja km ko lo lt lv ms my nl no pl pt ro ru sk sl sr "
    "sv sw ta te th tr uk ur vi zh"
)
ENGLISH = "en"
LANGUAGES = frozenset(_LANGUAGES.split())
"""ISO 639-1."""


def check_language(language: str) -> None:
    """Raise ValueError, with a list of the languages, unless a language has a form."""
    if language not in LANGUAGES:
        raise ValueError(f"unknown language {language!r}; known (ISO 639-1): {', '.join(sorted(LANGUAGES))}")


@functools.cache
def form_of(language: str) -> Form:
    """Return the function from a text to its form in a language, with a cache; raise ValueError if it is unknown."""
    check_language(language)
    return functools.lru_cache(NUM_CACHED)(english_form if language == ENGLISH else word_form)
