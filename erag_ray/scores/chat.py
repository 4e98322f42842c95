"""Scores for readers that answer in sentences, and in languages other than English. Pure.

Each compares two forms (`normalization`): those of English by default, those of another language where the score's name
says so (``match:ko``). `language_score` makes these.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from erag_ray.scores.base import Score, best_over_golds, multiset_f1
from erag_ray.scores.normalization import ENGLISH, LANGUAGES, check_language, english_form, form_of


class Comparison(NamedTuple):
    """How a score compares the form of an output with that of a gold answer."""

    compare: Callable[[str, str], float]
    binary: bool


def match(output: str, answers: Sequence[str]) -> float:
    """1 if the tokens of a gold stand in a row in the output, whatever stands around them.

    BERGEN's headline score (Rau et al., 2024), but of tokens and not of characters: "us" is not in "house". English
    (`english_form`). An output that repeats the question or lists every candidate matches too.

    Raises:
        ValueError: no gold that is not blank.
    """
    return _by_form("match", ENGLISH)(output, answers)


def char_f1(output: str, answers: Sequence[str]) -> float:
    """F1 of the characters as multisets, spaces left out: KorQuAD's F1 (Lim et al., 2019), on our form of the texts.

    KLUE-MRC's ROUGE-W is another score: it looks at the order of characters and favours runs of them.

    Raises:
        ValueError: no gold that is not blank.
    """
    return _by_form("char_f1", ENGLISH)(output, answers)


def _equal(form: str, gold: str) -> float:
    return float(form == gold)


def _holds(form: str, gold: str) -> float:
    return float(bool(gold) and f" {gold} " in f" {form} ")


def _token_f1(form: str, gold: str) -> float:
    return multiset_f1(form.split(), gold.split())


def _char_f1(form: str, gold: str) -> float:
    return multiset_f1(form.replace(" ", ""), gold.replace(" ", ""))


COMPARISONS = {
    "exact_match": Comparison(_equal, binary=True),
    "token_f1": Comparison(_token_f1, binary=False),
    "match": Comparison(_holds, binary=True),
    "char_f1": Comparison(_char_f1, binary=False),
}
"""The scores that other languages have too; in English, exact_match and token_f1 are KILT's."""
SHORT_ANSWERS = ("exact_match", "match")
"""The scores of questions whose answers are looked for in passages; those in a language too."""


def _by_form(name: str, language: str) -> Callable[[str, Sequence[str]], float]:
    """The function of a score in a language."""
    form, compare = form_of(language), COMPARISONS[name].compare

    def score(output: str, answers: Sequence[str]) -> float:
        return best_over_golds(lambda text, gold: compare(form(text), form(gold)), output, answers)

    return score


# --- languages ---


def in_language(name: str, language: str) -> str:
    """The name of a score in a language; the name itself in English, and where the score has no languages."""
    return f"{name}:{language}" if name in COMPARISONS and language != ENGLISH else name


def is_language_score(name: str) -> bool:
    """Whether a name is that of a score in a language, such as ``match:ko``: no ``package.module:name``."""
    base, _, language = name.partition(":")
    return base in COMPARISONS and language in LANGUAGES


@functools.cache
def language_score(name: str) -> Score:
    """The score called ``match:ko`` and the like: two forms of the language, compared.

    Raises:
        ValueError: the language is unknown.
    """
    base, _, language = name.partition(":")
    try:
        check_language(language)
    except ValueError as error:
        raise ValueError(f"score {name!r}: {error}") from error
    return Score(
        name=name,
        function=_by_form(base, language),
        binary=COMPARISONS[base].binary,
        normalises=True,
        normalize=form_of(language),
    )


# --- abstention ---

ABSTENTIONS = (
    "NO-RESPONSE",
    "I don't know",
    "I do not know",
    "I'm not sure",
    "I am not sure",
    "cannot answer",
    "can not answer",
    "can't answer",
    "unable to answer",
    "cannot determine",
    "unable to determine",
    "cannot be determined",
    "can not be determined",
    "can't be determined",
    "not enough information",
    "enough information to",
    "insufficient information",
    "no information about",
    "no information on",
    "not mentioned in",
    "not specified in",
    "passage does not",
    "passage doesn't",
    "passages do not",
    "passages don't",
    "context does not",
    "context doesn't",
    "text does not",
    "text doesn't",
)
"""What an English output says when it abstains; case, punctuation and articles are left out of account."""


def abstained(output: str, answers: Sequence[str] = ()) -> float:
    """1 if the output says one of `ABSTENTIONS`, whatever else it says; 0 if it is empty.

    How often a reader abstains, not how often it is right: more is not better, the gold answers are not looked at, and
    no dataset has it as its score. "I don't know, perhaps Paris" abstains and yet matches "Paris".
    """
    text = f" {form_of(ENGLISH)(output)} "
    return float(any(f" {phrase} " in text for phrase in _phrases()))


@functools.cache
def _phrases() -> tuple[str, ...]:
    return tuple(map(english_form, ABSTENTIONS))
