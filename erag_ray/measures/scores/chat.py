"""Scores for readers that answer in sentences, and in languages other than English. Pure.

Each compares normalised forms of the texts (`normalization`): the English form, or that of the language in the score's
name, such as ``match:ko``.
"""

import functools
from collections.abc import Callable, Sequence

from erag_ray.measures.scores.base import Score, best_over_gold_answers, multiset_f1
from erag_ray.measures.scores.normalization import ENGLISH, LANGUAGES, form_of


def _contains(form: str, gold: str) -> float:
    """Return 1 if the tokens of a gold answer occur in the output as a contiguous sequence, else 0.

    BERGEN's headline score (Rau et al., 2024), but on tokens rather than characters: "us" is not in "house". An output
    that repeats the question or lists every candidate matches too.
    """
    return float(bool(gold) and f" {gold} " in f" {form} ")


def _char_f1(form: str, gold: str) -> float:
    """Return the F1 of the characters as multisets, without spaces: KorQuAD's F1 (Lim et al., 2019).

    KLUE-MRC's ROUGE-W is a different score: it depends on the order of characters and favours runs of them.
    """
    return multiset_f1(form.replace(" ", ""), gold.replace(" ", ""))


COMPARISONS: dict[str, Callable[[str, str], float]] = {
    "exact_match": lambda form, gold: float(bool(gold) and form == gold),
    "token_f1": lambda form, gold: multiset_f1(form.split(), gold.split()),
    "match": _contains,
    "char_f1": _char_f1,
}
"""The scores that exist in other languages too -> how they compare the forms of an output and of a gold answer; in
English, exact_match and token_f1 are KILT's."""
SHORT_ANSWERS = ("exact_match", "match")
"""The scores, in any language, of questions with short answers, which annotators search for in passages."""


# --- languages ---


def in_language(name: str, language: str) -> str:
    """Return the name of a score in a language: the name itself for English, or if the score has no languages."""
    return f"{name}:{language}" if name in COMPARISONS and language != ENGLISH else name


def is_language_score(name: str) -> bool:
    """Return whether a name is that of a score in a language, such as ``match:ko``, and no ``package.module:name``."""
    base, _, language = name.partition(":")
    return base in COMPARISONS and language in LANGUAGES


@functools.cache
def language_score(name: str) -> Score:
    """Return the score of a name such as ``match:ko``, which compares texts in the language's form (default: English).

    Raises:
        ValueError: the language is unknown.
    """
    base, _, language = name.partition(":")
    try:
        form = form_of(language or ENGLISH)
    except ValueError as error:
        raise ValueError(f"score {name!r}: {error}") from error
    compare = COMPARISONS[base]

    def function(output: str, answers: Sequence[str]) -> float:
        return best_over_gold_answers(lambda text, gold: compare(form(text), form(gold)), output, answers)

    return Score(name=name, function=function, binary=base in SHORT_ANSWERS, normalises=True, normalize=form)
