"""One output of a reader against its gold answers -> a number in [0, 1]. Pure.

In: an output and the gold answers of its query. Out: the value of a `Score`. The rules are those of KILT's
official evaluation (Petroni et al., NAACL 2021; ``kilt/eval_downstream.py``): output and golds are stripped,
blank golds are left out, an empty output is worth 0, and the best gold counts. To add a score, write one
function ``(output, answers) -> float`` and one line in `SCORES`; code outside the package exports a `Score`
and is named ``package.module:name``.
"""

from __future__ import annotations

import functools
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from rouge import Rouge

from erag_ray.names import find_instance
from erag_ray.schemas import InputError, JobError
from erag_ray.user_code import Fault, fault_of, is_user_code, one_line, with_guards


@dataclass(frozen=True, kw_only=True)
class Score:
    """A way to judge one output.

    ``binary`` is declared, not guessed from values: a binary score is only ever 0 or 1, a graded one needs a
    threshold before a binary measure may use it. ``normalises`` says that the texts are compared after
    `normalize_answer`, so that a gold which normalises to nothing cannot be matched in earnest. ``may_match`` says
    of a binary score whether an output that starts with a text may still be worth 1, however it goes on: False only
    where that is certain. A reader that is asked for the score alone stops there; without ``may_match`` it never does.
    """

    name: str
    function: Callable[[str, Sequence[str]], float]
    binary: bool
    normalises: bool
    may_match: Callable[[str, Sequence[str]], bool] | None = None


NUM_NAMED, OUTPUT_CHARACTERS = 5, 80

_ARTICLES = re.compile(r"\b(?:an?|the)\b")
_ARTICLE_STARTS = ("", "a", "an", "t", "th", "the")


def normalize_answer(text: str) -> str:
    """Lower case, no ASCII punctuation, no English articles, single spaces: SQuAD's and KILT's normalisation.

    Punctuation leaves no space behind ("U.S." -> "us", "well-known" -> "wellknown"). Nothing is folded: "é"
    as one character and as "e" plus an accent stay different, and quotation marks outside ASCII stay.
    """
    return " ".join(_ARTICLES.sub(" ", _bare(text)).split())


def _bare(text: str) -> str:
    bare = text.lower()
    for mark in string.punctuation:  # three times as fast as str.translate on a passage of 100 words
        bare = bare.replace(mark, "")
    return bare


# The golds of a query meet every one of its outputs; bounded, since outputs seldom come back.
_normalized = functools.lru_cache(maxsize=1 << 16)(normalize_answer)


def _stripped_golds(answers: Sequence[str]) -> list[str]:
    golds = [answer.strip() for answer in answers if answer.strip()]
    if not golds:
        raise ValueError(f"no gold answer that is not blank in {list(answers)!r}")
    return golds


def _best_over_golds(compare: Callable[[str, str], float], output: str, answers: Sequence[str]) -> float:
    golds = _stripped_golds(answers)
    stripped = output.strip()
    return float(max(compare(stripped, gold) for gold in golds)) if stripped else 0.0


def exact_match(output: str, answers: Sequence[str]) -> float:
    """1 if the normalised output equals a normalised gold. KILT's and SQuAD's EM.

    As in KILT, "." and "The" normalise to the same nothing and match each other here; `score_outputs` leaves
    such golds out.

    Raises:
        ValueError: no gold that is not blank.
    """
    return _best_over_golds(lambda text, gold: _normalized(text) == _normalized(gold), output, answers)


def may_match_exactly(start: str, answers: Sequence[str]) -> bool:
    """Whether an output that starts with ``start`` may still be an `exact_match`.

    Lower case and the loss of punctuation go character by character (but for the final sigma, which is taken for any
    other). Articles are whole runs of word characters, and every run but the last is complete: so what stands before
    the last run is settled, and the last run too unless it is, or may become, an article. What is settled must be
    how a normalised gold starts; where it ends in a blank, its last word must end there too.
    """
    settled = _settled(_one_sigma(_bare(start)))
    return any(f"{_one_sigma(_normalized(gold))} ".startswith(settled) for gold in answers)


def _settled(bare: str) -> str:
    """How the normalised form of every text starts whose bare form starts with ``bare``."""
    run = re.search(r"\w*\Z", bare)
    assert run is not None, "it may be empty"
    if run[0] in _ARTICLE_STARTS:
        bare = bare[: run.start()]
    text = _ARTICLES.sub(" ", bare)
    words = " ".join(text.split())
    return f"{words} " if words and text[-1].isspace() else words


def _one_sigma(text: str) -> str:
    return text.replace("\N{GREEK SMALL LETTER FINAL SIGMA}", "\N{GREEK SMALL LETTER SIGMA}")


def token_f1(output: str, answers: Sequence[str]) -> float:
    """F1 of the normalised words as multisets, so a repeated word counts as often as both have it.

    Without a common word it is 0, so a gold such as "The The" has an exact match and yet an F1 of 0.

    Raises:
        ValueError: no gold that is not blank.
    """
    return _best_over_golds(_multiset_f1, output, answers)


def _multiset_f1(output: str, gold: str) -> float:
    words, gold_words = _normalized(output).split(), _normalized(gold).split()
    num_common = sum((Counter(words) & Counter(gold_words)).values())
    if not num_common:
        return 0.0
    precision, recall = num_common / len(words), num_common / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def accuracy(output: str, answers: Sequence[str]) -> float:
    """1 if the output is one of the golds, letter for letter: case counts (KILT's accuracy, for FEVER).

    Raises:
        ValueError: no gold that is not blank.
    """
    return _best_over_golds(lambda text, gold: text == gold, output, answers)


def may_be_accurate(start: str, answers: Sequence[str]) -> bool:
    """Whether an output that starts with ``start`` may still be worth 1 by `accuracy`: blanks around it are free."""
    begun, golds = start.lstrip(), [answer.strip() for answer in answers]
    return any(gold.startswith(begun) or gold == begun.rstrip() for gold in golds)


def rouge_l_kilt(output: str, answers: Sequence[str]) -> float:
    """ROUGE-L as KILT has it: the PyPI package ``rouge`` on the raw texts, sentences split at ".".

    Case and punctuation count, repeated words do not, and a perfect match is 0.999999995 (the package adds
    1e-8 to a denominator), so it is never binary. A text without a sentence ("." or "...") is worth 0 against
    anything, where KILT stops with an error. On long texts the package exhausts Python's recursion limit, at
    a length that depends on the caller's depth; there the same value is computed by our own loop.

    Raises:
        ValueError: no gold that is not blank.
    """
    return _best_over_golds(_summary_rouge_l, output, answers)


_ROUGE = Rouge(metrics=["rouge-l"], stats=["f"])


def _summary_rouge_l(output: str, gold: str) -> float:
    try:
        return float(_ROUGE.get_scores(output, gold)[0]["rouge-l"]["f"])
    except RecursionError:
        return _summary_rouge_l_by_loop(output, gold)
    except ValueError:  # the package's answer to a text without a sentence
        return 0.0


def _summary_rouge_l_by_loop(output: str, gold: str) -> float:
    """The value of the package ``rouge`` 1.0.1 for texts with a sentence each, without recursion.

    The words of the longest common subsequences of all pairs of sentences are united as a set, and its size
    is divided by the number of distinct words of either side (Lin, 2004, section 3.2, on sets).
    """
    sentences, gold_sentences = _sentences(output), _sentences(gold)
    pairs = product(gold_sentences, sentences)
    num_common = len(set[str]().union(*(_common_subsequence(mine, theirs) for mine, theirs in pairs)))
    recall = num_common / len({word for sentence in gold_sentences for word in sentence})
    precision = num_common / len({word for sentence in sentences for word in sentence})
    return 2.0 * (precision * recall / (precision + recall + 1e-8))


def _sentences(text: str) -> list[list[str]]:
    # a sentence of spaces holds one empty word, as in the package
    return [sentence.split() or [""] for sentence in text.split(".") if sentence]


def _common_subsequence(words: Sequence[str], others: Sequence[str]) -> set[str]:
    """The words of a longest common subsequence; of several, the one that the package ``rouge`` finds."""
    lengths = [[0] * (len(others) + 1)]
    for word in words:
        above, row = lengths[-1], [0]
        for column, other in enumerate(others):
            row.append(above[column] + 1 if word == other else max(above[column + 1], row[column]))
        lengths.append(row)
    common, i, j = set(), len(words), len(others)
    while i and j:
        if words[i - 1] == others[j - 1]:
            i, j = i - 1, j - 1
            common.add(words[i])
        elif lengths[i - 1][j] > lengths[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return common


def rouge_l_google(output: str, answers: Sequence[str]) -> float:
    """ROUGE-L of Google's package ``rouge_score``, sentence level, without the stemmer.

    It lower-cases and keeps only runs of a-z and 0-9, so text in another script is worth 0 even against
    itself: a different score from `rouge_l_kilt`, for English.

    Raises:
        ValueError: no gold that is not blank.
    """
    return _best_over_golds(
        lambda text, gold: float(_google_scorer().score(gold, text)["rougeL"].fmeasure), output, answers
    )


@functools.cache
def _google_scorer() -> Any:
    # imported late: the package loads nltk, which takes seconds that no other score should pay
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], use_stemmer=False)


def usable_answers(score: Score, answers: Sequence[str]) -> list[str]:
    """The golds that can match: not blank and, if the score normalises, not nothing once normalised.

    KILT lets a gold such as "The" or "*" match every output that normalises to nothing. Such a match tells
    nothing about a passage, so a job leaves these golds out; with none left, every output is worth 0.
    """
    if score.normalises:
        return [answer for answer in answers if _normalized(answer)]
    return [answer for answer in answers if answer.strip()]


@dataclass(kw_only=True)
class ScoreErrors:
    """Collects the outputs that a score of the user's own could not judge: how many, and the first few by name."""

    num_outputs: int = 0
    """All that were scored."""
    num_errors: int = 0
    lines: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        """Count an output that has no score; the line says which and why."""
        self.num_errors += 1
        if len(self.lines) < NUM_NAMED and line not in self.lines:
            self.lines.append(line)


def score_outputs(
    outputs: Sequence[str | None],
    answers: Sequence[Sequence[str]],
    score: Score,
    query_ids: Sequence[str] = (),
    errors: ScoreErrors | None = None,
) -> list[float | None]:
    """The score of each output against its own query's usable golds; None ("not judged") stays None.

    Equal (output, answers) are scored once: a query's passages often lead to the same output.

    Args:
        outputs: what the reader said, one per row.
        answers: the golds of each row, as long as ``outputs``.
        score: the score of all rows.
        query_ids: the query of each row, where there are ``errors``.
        errors: collects the outputs for which a score of the user's own raises or gives a value that cannot be; their
            scores are None. Without it that is raised.

    Raises:
        ValueError: unequal lengths; or a value of the score that is no number in [0, 1] or, if it is declared
            binary, neither 0 nor 1.
    """

    @functools.cache
    def usable(golds: tuple[str, ...]) -> list[str]:
        return usable_answers(score, golds)

    faults: dict[tuple[str | None, tuple[str, ...]], Fault] = {}

    @functools.cache
    def value(output: str, golds: tuple[str, ...]) -> float | None:
        try:
            return _checked(score, score.function(output, usable(golds))) if usable(golds) else 0.0
        except (InputError, JobError):
            raise
        except Exception as error:
            if errors is None or not is_user_code(score.function):
                raise
            faults[output, golds] = fault_of(error, score.function)
            return None

    rows = zip(outputs, answers, strict=True)
    values = [None if output is None else value(output, tuple(golds)) for output, golds in rows]
    if errors is not None:
        errors.num_outputs += len(outputs) - outputs.count(None)
    if errors is not None and faults:
        for query_id, output, golds in zip(query_ids, outputs, answers, strict=True):
            if fault := faults.get((output, tuple(golds))):
                errors.add(f"score {score.name}, query {query_id}, output {_shown(output)}: {fault}")
    return values


def _shown(output: str | None) -> str:
    return one_line(repr(output), OUTPUT_CHARACTERS)


def _checked(score: Score, value: object) -> float:
    """Outside code may be wrong; NaN fails every comparison and so is caught too."""
    if isinstance(value, (bool, int, float)) and 0 <= value <= 1 and (not score.binary or value in (0, 1)):
        return float(value)
    allowed = "0 and 1" if score.binary else "a number in [0, 1]"
    raise ValueError(f"score {score.name!r} gave {value!r}; allowed: {allowed}")


def score_named(name: str) -> Score:
    """The score called ``name``, here or as ``package.module:name``.

    Raises:
        ValueError: there is none, or the outside object is not a `Score`.
    """
    score = find_instance("score", name, SCORES, Score, "binary=True, normalises=False")
    return with_guards(score, f"score {name}", "may_match")


SCORES: dict[str, Score] = {
    score.name: score
    for score in (
        Score(
            name="exact_match",
            function=exact_match,
            binary=True,
            normalises=True,
            may_match=may_match_exactly,
        ),
        Score(name="token_f1", function=token_f1, binary=False, normalises=True),
        Score(name="accuracy", function=accuracy, binary=True, normalises=False, may_match=may_be_accurate),
        Score(name="rouge_l_kilt", function=rouge_l_kilt, binary=False, normalises=False),
        Score(name="rouge_l_google", function=rouge_l_google, binary=False, normalises=False),
    )
}
