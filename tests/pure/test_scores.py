"""Scores: every rule of KILT's evaluation worked by hand, the guards of a job, and properties."""

import fractions
import itertools
import math
import sys
import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from erag_ray.measures import scores

FUNCTIONS = {name: score for name, score in scores.SCORES.items() if not score.needs_judge}
CORRECT = {name: score for name, score in FUNCTIONS.items() if name != "abstained"}
"""The scores that say how right an output is."""
NOT_A_SCORE = "a string that outside code might export by mistake"


def outside_score(value: object, *, binary: bool = False) -> scores.Score:
    return scores.Score(
        name="outside", function=lambda output, answers: value, binary=binary, normalises=False
    )  # type: ignore[arg-type, return-value]


HALF = outside_score(0.5)


# --- normalisation ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Beatles", "beatles"),
        ("U.S.", "us"),  # a deleted mark leaves no space
        ("well-known", "wellknown"),
        ("an  apple\ta\nday", "apple day"),
        ("theatre and banana", "theatre and banana"),  # articles are whole words
        ("a.n apple", "apple"),  # punctuation goes first, and then "an" is an article
        ("The The", ""),
        ("*", ""),
        ("“Paris”", "“paris”"),  # only ASCII punctuation goes
        ("ÉCOLE", "école"),
        ("서울 특별시.", "서울 특별시"),
    ],
)
def test_normalize_answer(text: str, expected: str) -> None:
    assert scores.normalize_answer(text) == expected


@given(st.text())
def test_normalising_leaves_no_ascii_punctuation_and_single_spaces(text: str) -> None:
    normalized = scores.normalize_answer(text)
    assert not set(normalized) & set("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
    assert normalized == " ".join(normalized.split())


# --- by hand ---


COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))


@pytest.mark.parametrize(
    ("name", "output", "golds", "expected"),
    [
        # the best gold counts, after normalisation
        ("exact_match", "the beatles!", ["Wings", " The Beatles "], 1.0),
        ("exact_match", "beatles band", ["Wings", "The Beatles"], 0.0),
        # nothing is folded, so two encodings of one letter differ
        ("exact_match", COMPOSED, [COMPOSED], 1.0),
        ("exact_match", COMPOSED, [DECOMPOSED], 0.0),
        ("exact_match", "서울", ["서울"], 1.0),
        # a repeated word counts as often as both have it: precision 2/4, recall 2/2
        ("token_f1", "new york new york", ["New York"], 2 / 3),
        # three of four words, all three of the gold
        ("token_f1", "new york new york", ["New York New"], 6 / 7),
        # precision 1/3, recall 1/2; the other gold shares nothing
        ("token_f1", "big red dog", ["London", "red house"], 0.4),
        ("token_f1", "cat", ["dog"], 0.0),
        # a gold of articles matches exactly and yet has no F1
        ("exact_match", "the", ["The The"], 1.0),
        ("token_f1", "The The", ["The The"], 0.0),
        # letter for letter; both sides are stripped
        ("accuracy", " SUPPORTS\n", ["SUPPORTS "], 1.0),
        ("accuracy", "supports", ["SUPPORTS"], 0.0),
        ("accuracy", "SUPPORTS.", ["SUPPORTS"], 0.0),
        ("accuracy", "REFUTES", ["SUPPORTS", "REFUTES"], 1.0),
        # common subsequence "cat sat" of 3 and 4 distinct words: r = 2/4, p = 2/3, f = 2pr / (p + r + 1e-8)
        ("rouge_l_kilt", "cat sat down", ["the cat sat still"], (2 / 3) / (7 / 6 + 1e-8)),
        # distinct words, with case; 1 is never reached
        ("rouge_l_kilt", "the cat", ["the cat"], 0.999999995),
        ("rouge_l_kilt", "the cat the cat", ["the cat"], 0.999999995),
        ("rouge_l_kilt", "Paris", ["paris"], 0.0),
        # a text without a sentence is 0, and the other golds still count
        ("rouge_l_kilt", ".", ["."], 0.0),
        ("rouge_l_kilt", "Paris", ["...", "Paris"], 0.999999995),
        # Google's lower-cases, keeps repeats (p = 1/2, r = 1), does not stem and knows only a-z and 0-9
        ("rouge_l_google", "PARIS!", ["paris"], 1.0),
        ("rouge_l_google", "the cat the cat", ["the cat"], 2 / 3),
        ("rouge_l_google", "running", ["run"], 0.0),
        ("rouge_l_google", "서울", ["서울"], 0.0),
    ],
)
def test_scores_by_hand(name: str, output: str, golds: list[str], expected: float) -> None:
    assert scores.SCORES[name].function(output, golds) == pytest.approx(expected, rel=0, abs=1e-12)


@pytest.mark.parametrize("num_words", range(1, 40))
def test_f1_is_the_nearest_float_so_a_threshold_of_a_fraction_is_reached(num_words: int) -> None:
    words = [f"w{number}" for number in range(40)]
    for num_gold, num_common in itertools.product(range(1, 40), range(1, num_words + 1)):
        gold = [
            *words[: min(num_common, num_gold)],
            *(f"g{number}" for number in range(num_gold - num_common)),
        ]
        expected = fractions.Fraction(2 * min(num_common, num_gold), num_words + len(gold))
        assert scores.token_f1(" ".join(words[:num_words]), [" ".join(gold)]) == float(expected)


def test_rouge_l_kilt_of_a_text_that_exhausts_the_recursion_limit() -> None:
    # the package walks back word by word; one word of n is the gold: r = 1, p = 1/n, f = 2 / (n + 1)
    num_words = sys.getrecursionlimit() + 100
    output = " ".join(f"w{i}" for i in range(num_words))
    with pytest.raises(RecursionError):
        scores.kilt._ROUGE.get_scores(output, "w0")
    limit = sys.getrecursionlimit()
    assert scores.rouge_l_kilt(output, ["w0"]) == pytest.approx(2 / (num_words + 1), abs=1e-7)
    assert sys.getrecursionlimit() == limit


# --- all scores ---


@pytest.mark.parametrize("score", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("output", ["", "  \n"])
def test_an_empty_output_is_worth_0(score: scores.Score, output: str) -> None:
    assert score.function(output, ["The", "Paris"]) == 0.0


@pytest.mark.parametrize("score", CORRECT.values(), ids=CORRECT)
def test_blank_golds_are_left_out_and_having_no_other_is_an_error(score: scores.Score) -> None:
    assert score.function("Paris", ["", " ", "Paris"]) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="no gold answer that is not blank"):
        score.function("Paris", [" ", ""])


texts = st.text(alphabet="ab AN.*té서울", max_size=12)
gold_answers = st.lists(texts.filter(str.strip), min_size=1, max_size=3)
any_score = st.sampled_from(list(FUNCTIONS.values()))


@given(any_score, texts, gold_answers)
def test_values_lie_in_0_to_1_and_binary_ones_are_0_or_1(
    score: scores.Score, output: str, answers: list[str]
) -> None:
    value = score.function(output, answers)
    assert 0.0 <= value <= 1.0
    assert not score.binary or value in (0.0, 1.0)


@given(any_score, texts, gold_answers, texts.filter(str.strip))
def test_another_gold_never_lowers_the_score(
    score: scores.Score, output: str, answers: list[str], more: str
) -> None:
    assert score.function(output, [*answers, more]) >= score.function(output, answers)


@given(texts.filter(str.strip))
def test_a_gold_against_itself(gold: str) -> None:
    assert scores.exact_match(gold, [gold]) == scores.accuracy(gold, [gold]) == 1.0
    assume(scores.normalize_answer(gold))
    assert scores.token_f1(gold, [gold]) == 1.0


# --- what a job uses ---


def test_usable_answers_drop_what_normalises_to_nothing_only_where_the_score_normalises() -> None:
    answers = ["*", "The", ".", " ", "Paris"]
    assert scores.usable_answers(scores.SCORES["exact_match"], answers) == ["Paris"]
    assert scores.usable_answers(scores.SCORES["token_f1"], answers) == ["Paris"]
    assert scores.usable_answers(scores.SCORES["accuracy"], answers) == ["*", "The", ".", "Paris"]


def test_in_a_job_a_gold_that_normalises_to_nothing_matches_nothing() -> None:
    assert scores.exact_match("!", ["The"]) == 1.0  # KILT's rule
    assert scores.score_outputs(["!", "!"], [["The"], ["The", "Paris"]], scores.SCORES["exact_match"]) == [
        0.0,
        0.0,
    ]


def test_score_outputs_keeps_order_and_leaves_what_was_not_judged_null() -> None:
    outputs = ["Paris", None, "Rome", ""]
    answers = [["paris"], ["paris"], ["Paris"], ["Paris"]]
    assert scores.score_outputs(outputs, answers, scores.SCORES["exact_match"]) == [1.0, None, 0.0, 0.0]
    assert scores.score_outputs([], [], scores.SCORES["exact_match"]) == []


def test_equal_rows_are_scored_once() -> None:
    calls = []

    def count(output: str, answers: object) -> float:
        calls.append(output)
        return 1.0

    score = scores.Score(name="counting", function=count, binary=True, normalises=False)
    assert scores.score_outputs(["x", "x", "y", "x"], [["g"], ("g",), ["g"], ["h"]], score) == [1.0] * 4
    assert calls == ["x", "y", "x"]


@pytest.mark.parametrize("value", [math.nan, -0.1, 1.5, None, "1"])
def test_a_value_outside_0_to_1_names_the_score_and_the_value(value: object) -> None:
    message = rf"score 'outside' returned {value!r}; allowed: a number in \[0, 1\]"
    with pytest.raises(ValueError, match=message):
        scores.score_outputs(["x"], [["g"]], outside_score(value))


def test_a_score_declared_binary_may_not_give_a_half() -> None:
    assert scores.score_outputs(["x"], [["g"]], outside_score(0.5)) == [0.5]
    with pytest.raises(ValueError, match=r"returned 0.5; allowed: 0 and 1"):
        scores.score_outputs(["x"], [["g"]], outside_score(0.5, binary=True))


def test_score_named() -> None:
    assert scores.score_named("token_f1").function is scores.token_f1
    assert scores.score_named(f"{__name__}:HALF") is HALF
    message = "unknown score 'f1'; known: abstained, accuracy, char_f1, exact_match"
    with pytest.raises(ValueError, match=message):
        scores.score_named("f1")
    with pytest.raises(ValueError, match="is a str, not an"):
        scores.score_named(f"{__name__}:NOT_A_SCORE")


def test_what_is_binary() -> None:
    binary = {name for name, score in scores.SCORES.items() if score.binary}
    assert binary == {"exact_match", "accuracy", "match", "abstained", "judged"}
