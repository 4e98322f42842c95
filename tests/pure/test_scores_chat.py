"""Scores for readers that answer in sentences, and the forms of texts in other languages."""
# ruff: noqa: RUF001 (characters that look like others are what is tested)

import math
import re
import string
import sys
import unicodedata
from collections import Counter

import pytest
import regex
from hypothesis import assume, given
from hypothesis import strategies as st

from erag_ray.measures import scores
from erag_ray.measures.scores.normalization import LANGUAGES, english_form, form_of, word_form

match = scores.SCORES["match"].function

# --- forms ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Die Straße", "die strasse"),
        ("l’eau de l'Ouest", "l eau de l ouest"),  # an elided article hides no word
        ("The  the", "the the"),  # no articles are left out
        ("1,000.5 km – 2,5", "10005 km 25"),
        ("1990–2000", "1990 2000"),
        ("ＡＢＣ ｶﾞ", "abc ガ"),  # NFKC
        ("cafe\u0301", "café"),
        ("zero\u200bwidth", "zerowidth"),
        ("„Köln“, €5 😀", "köln 5"),
        ("…", ""),
        ("№ ™ ℃ ⓐ", ""),  # signs alone, which NFKC would make "no tm c a"
        ("25℃", "25 c"),
        ("서울특별시", "서 울 특 별 시"),
        ("서울 특별시", "서 울 특 별 시"),
        ("2015년 Apple사", "2015 년 apple 사"),
        (unicodedata.normalize("NFD", "서울"), "서 울"),
        ("レオナルド・ダ・ヴィンチ", "レ オ ナ ル ド ダ ヴ ィ ン チ"),
        ("《红楼梦》，曹雪芹", "红 楼 梦 曹 雪 芹"),
        ("Apple、Google", "apple google"),
        ("人々のビール", "人 々 の ビ ー ル"),
        ("ไทย ๑๕", "ไ ท ย ๑๕"),  # digits of every script are runs
    ],
)
def test_words(text: str, expected: str) -> None:
    assert word_form(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**Paris**—the capital", "paris capital"),
        ("“The Beatles”", "beatles"),
        ("Hudson’s Bay", "hudsons bay"),
        ("Hudson's Bay", "hudsons bay"),
        ("the U.S.", "us"),
        ("1973–1974", "19731974"),
        ("1973-1974", "19731974"),
        ("well‑known", "wellknown"),  # a non-breaking hyphen
        ("well-known", "wellknown"),
    ],
)
def test_english(text: str, expected: str) -> None:
    assert english_form(text) == expected


@pytest.mark.parametrize("form", [word_form, english_form])
def test_forms_are_idempotent_on_every_character(form: type[str]) -> None:
    found = ((text, form(text)) for text in map(chr, range(sys.maxunicode + 1)))
    # a form that is its own text, as of most characters, has been looked at already
    changed = {made for text, made in found if made != text}
    assert [text for text in changed if form(text) != text] == []


odd_texts = st.text(
    st.one_of(
        st.sampled_from("ab AN.,*'’-—té서울0123ßΣςİ\u0301\u0345\u00ad\u200d\u1100\u1161々ーｶﾞ℃½ﬁ"),
        st.characters(),
    ),
    max_size=14,
)
languages = st.sampled_from(sorted(LANGUAGES))


@given(odd_texts, languages)
def test_forms_are_idempotent_tokens_between_single_spaces(text: str, language: str) -> None:
    form = form_of(language)(text)
    assert form_of(language)(form) == form
    assert form == " ".join(form.split())
    assert not any(unicodedata.category(character)[0] in "PS" for character in form)


# --- match ---


@pytest.mark.parametrize(
    ("output", "gold", "expected"),
    [
        ("The capital of France is **Paris**.", "Paris", 1.0),
        ("It lies in the house.", "US", 0.0),  # tokens, not characters
        ("He moved to the U.S. in 1990.", "US", 1.0),
        ("New York City", "new york", 1.0),
        ("New cities such as York", "New York", 0.0),  # in a row
        ("York, New", "New York", 0.0),
        ("Paris", "Paris, France", 0.0),
        ("I cannot find the answer.", "The", 0.0),  # it normalises to nothing
    ],
)
def test_match(output: str, gold: str, expected: float) -> None:
    assert match(output, [gold]) == expected
    assert scores.score_outputs([output], [["Rome", gold]], scores.SCORES["match"]) == [expected]


@pytest.mark.parametrize(
    ("name", "output", "gold", "expected"),
    [
        ("match:ko", "대한민국의 수도는 서울이다.", "서울", 1.0),  # particles are attached
        ("match", "대한민국의 수도는 서울이다.", "서울", 1.0),  # by script, whatever the language
        ("match", "答えはApple社の東京支店です", "Apple", 1.0),
        ("match:de", "เมืองหลวงคือกรุงเทพ", "กรุงเทพ", 1.0),
        ("match:ko", "15명이 왔다.", "5명", 0.0),
        ("match:ko", "5명이 왔다.", "5", 1.0),
        ("match:th", "พ.ศ. ๒๕๑๕", "๕", 0.0),
        ("match:ko", "2015년에 완공되었다.", "5", 0.0),
        ("match:ko", "2015년에 완공되었다.", "2015년", 1.0),
        ("match:zh", "答案是北京。", "北京", 1.0),
        ("match:ja", "首都は東京です。", "東京", 1.0),
        ("match:de", "Die Antwort ist Die Zeit.", "die zeit", 1.0),
        ("match:fr", "C’est la bataille d’Austerlitz.", "Austerlitz", 1.0),
        ("exact_match:ko", "서울 특별시", "서울특별시", 1.0),
        ("exact_match:fr", "l'Eau", "l’eau", 1.0),
        ("exact_match:de", "die Zeit", "Zeit", 0.0),
        ("token_f1:zh", "北京市", "北京", 0.8),  # p = 2/3, r = 1
        ("token_f1:de", "rote Zeit", "die Zeit", 0.5),
        ("char_f1:ko", "서울특별시", "서울", 2 * 0.4 / 1.4),  # p = 2/5, r = 1
        ("char_f1:ko", "울 서", "서울", 1.0),  # order does not count
    ],
)
def test_scores_in_a_language(name: str, output: str, gold: str, expected: float) -> None:
    assert scores.score_named(name).function(output, [gold]) == pytest.approx(expected)


def naive_tokens(text: str, language: str) -> list[str]:
    """The tokens of a text by another engine: Unicode classes of the package regex, and a loop."""
    if language == "en":
        text = regex.sub("[’‐‑‒–−]", "", scores.normalize_answer(text))
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    text = regex.sub(r"(?<=\p{Nd})[.,](?=\p{Nd})", "", text)
    text = regex.sub(r"\p{Cf}", "", regex.sub(r"[\p{P}\p{S}]", " ", text))
    words = text.split()
    parts = (
        r"[\p{Han}\p{Hangul}\p{Hiragana}\p{Katakana}ー々]|[^\p{Han}\p{Hangul}\p{Hiragana}\p{Katakana}ー々]+"
    )
    tokens = [token for word in words for token in regex.findall(parts, word)]
    return [token for token in tokens if language != "en" or token not in ("a", "an", "the")]


PIECES = [
    *("Paris", "the", "a", "US", "us", "house", "2015", "Straße", "é"),
    *("서울", "이다", "년", "北京", "東", "ビール"),
    *(" ", " ", " ", ".", ",", "—", "–", "“", "”", "’", "'", "-", "**", "、", "\n"),
]
pieces = st.lists(st.sampled_from(PIECES), max_size=10).map("".join)
some_languages = st.sampled_from(["en", "de", "ko", "ja", "zh"])


@given(pieces, pieces, some_languages)
def test_scores_are_those_of_a_naive_oracle(output: str, gold: str, language: str) -> None:
    mine, theirs = naive_tokens(output, language), naive_tokens(gold, language)
    assume(theirs)
    assert form_of(language)(output).split() == mine
    values = {
        name: scores.score_named(scores.in_language(name, language)).function(output, [gold])
        for name in ("match", "char_f1")
    }
    starts = range(len(mine) - len(theirs) + 1)
    assert values["match"] == any(mine[start : start + len(theirs)] == theirs for start in starts)
    left, right = Counter("".join(mine)), Counter("".join(theirs))
    common = sum(min(left[one], right[one]) for one in left)
    assert values["char_f1"] == pytest.approx(2 * common / (left.total() + right.total()))
    if language != "en":
        left, right = Counter(mine), Counter(theirs)
        common = sum(min(left[one], right[one]) for one in left)
        f1 = scores.score_named(f"token_f1:{language}").function(output, [gold])
        assert f1 == pytest.approx(2 * common / (left.total() + right.total()))
        assert scores.score_named(f"exact_match:{language}").function(output, [gold]) == (mine == theirs)


@given(odd_texts, odd_texts.filter(str.strip), odd_texts, languages)
def test_no_token_that_comes_after_undoes_a_match(before: str, gold: str, more: str, language: str) -> None:
    score = scores.score_named(scores.in_language("match", language))
    output = score.normalize(f"{before} {gold}")
    longer = f"{output} {score.normalize(more)}"
    assert score.function(longer, [gold]) >= score.function(output, [gold])


@given(odd_texts, odd_texts, languages)
def test_what_matches_exactly_matches(output: str, gold: str, language: str) -> None:
    exact, held = (
        scores.score_named(scores.in_language(name, language)) for name in ("exact_match", "match")
    )
    for text in (output, gold, gold.swapcase(), f"“{gold}”"):
        if scores.usable_answers(held, [gold]):
            assert held.function(text, [gold]) >= exact.function(text, [gold])


@given(st.text(st.sampled_from("athen .'-”’—é서\u0301"), max_size=12), odd_texts)
def test_in_english_what_matches_by_kilts_rule_matches(gold: str, output: str) -> None:
    assume(english_form(gold))
    for text in (output, f"the {gold}.", gold.upper(), scores.normalize_answer(gold)):
        assert match(text, [gold]) >= scores.exact_match(text, [gold])


@given(odd_texts, odd_texts, languages, st.sampled_from(["exact_match", "token_f1", "char_f1"]))
def test_scores_of_two_texts_are_symmetric(output: str, gold: str, language: str, name: str) -> None:
    assume(output.strip() and gold.strip())
    score = scores.score_named(scores.in_language(name, language))
    value = score.function(output, [gold])
    assert 0.0 <= value <= 1.0
    assert math.isclose(value, score.function(gold, [output]))
    if score.normalize(gold):
        assert score.function(gold, [gold]) == 1.0


hangul = st.text("서울이다년 .'()", min_size=1, max_size=12)


@given(hangul, hangul)
def test_char_f1_of_hangul_is_that_of_korquad(output: str, gold: str) -> None:
    # KorQuAD 1.0, evaluate-v1.0.py: some marks become spaces, the rest of ASCII's goes, then characters are counted
    def characters(text: str) -> str:
        kept = re.sub("['\"《》<>〈〉()‘’]", " ", text).lower()
        return "".join("".join(one for one in kept if one not in string.punctuation).split())

    mine, theirs = Counter(characters(output)), Counter(characters(gold))
    assume(mine and theirs)
    expected = 2 * (mine & theirs).total() / (mine.total() + theirs.total())
    assert scores.score_named("char_f1:ko").function(output, [gold]) == pytest.approx(expected)


# --- abstention ---


ABSTAINING = """
I don't know.
I don’t know
I don't know, perhaps Paris
No, I don't know.
I could not find the answer.
I'm sorry, but I couldn't find any information about it.
I am unsure.
NO-RESPONSE
Unanswerable.
Sorry, it **cannot be determined** from the passages.
It's not clear from the context who wrote it.
The question cannot be answered from the passages.
There is not enough information to answer.
I do not have sufficient context to answer that.
Insufficient information.
No information is provided about his wife.
The passage does not mention her mother.
The provided documents do not appear to contain the answer.
The article never states his age.
These contexts don't answer the question directly.
None of the provided passages contains the answer.
Neither passage answers the question.
There is no context that answers it.
The average size is not explicitly mentioned in any of the contexts provided.
The name is not present in the given contexts.
The answer is not present in any of the contexts.
The answer cannot be found in the text.
No, answer is not present.
No answer found in the contexts.
I don't know (unless [3] is meant, in which case the answer would be "Yes, answer is present")
I am not able to answer this.
"""
ANSWERING = """
Paris
No
No response team was sent
The contexts contain enough information to answer the question.
There is enough information to answer: Paris.
Yes, answer is present in [1]. No answer is present in the other contexts.
Yes, answers are present in [1] and [3]. The contexts [2] and [4] do not answer the question.
I don't know (contexts [1], [2]). Yes, answer is present (context [4])
Paris. The other passages do not mention it.
Please answer with either "Yes, answer is present" or "I don't know".
Respond with "Yes" or "I don't know".
Please write "I don't know" where it is missing.
Do you know the answer?
He did not answer the phone.
The passage does not only mention Paris but also Rome.
Congress is responsible for issues not mentioned in the Constitution.
"""
PHRASES = "No answer.", "Answer: unknown", "NOT SPECIFIED", "The answer is not given.", "n/a.", "No mention"
NAMES = (
    "No Answer",
    "Unknown Pleasures",
    "Na",
    "N/A Corp",
    "It is not available.",
    "There is no doubt it is Rome",
)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        *((line, 1.0) for line in ABSTAINING.strip().splitlines()),
        *((line, 0.0) for line in ANSWERING.strip().splitlines()),
        *((line, 1.0) for line in PHRASES),
        *((line, 0.0) for line in NAMES),
        ("[1] I don't know\n[2] Yes, answer is present", 0.0),
        ("", 0.0),
        (" \n", 0.0),
    ],
)
def test_abstained(output: str, expected: float) -> None:
    assert scores.abstained(output, ["Paris"]) == scores.abstained(f"\n{output} ", []) == expected


def test_an_output_can_abstain_and_match() -> None:
    output = "I don't know, perhaps Paris"
    assert scores.abstained(output, ["Paris"]) == match(output, ["Paris"]) == 1.0


# --- names ---


def test_a_score_in_a_language_is_named_so() -> None:
    assert scores.in_language("match", "ko") == "match:ko"
    assert scores.in_language("match", "en") == "match"
    assert scores.in_language("accuracy", "ko") == "accuracy"
    assert scores.is_language_score("match:ko")
    assert not scores.is_language_score("match")
    assert not scores.is_language_score("my_scores:MATCH")
    assert scores.score_named("match:ko").name == "match:ko"
    assert scores.score_named("match:ko") is scores.score_named("match:ko")
    for name in scores.COMPARISONS:
        assert scores.score_named(f"{name}:ja").binary == scores.SCORES[name].binary


def test_a_language_that_there_is_not_is_named() -> None:
    with pytest.raises(ValueError, match=r"score 'match:kr': unknown language 'kr'; known .*: ar, bg, "):
        scores.score_named("match:kr")


SIGNS = ["*", "×", ".", "—", "№", "ⓐ", "。", "!?", "\u200b"]


def test_a_gold_of_articles_is_usable_where_these_are_words() -> None:
    assert scores.usable_answers(scores.score_named("match"), ["The", *SIGNS, "Paris"]) == ["Paris"]
    assert scores.usable_answers(scores.score_named("match:de"), ["The", *SIGNS, "Paris"]) == ["The", "Paris"]


@pytest.mark.parametrize(
    "name", ["exact_match", "match", "char_f1", *(f"{name}:ko" for name in scores.COMPARISONS)]
)
@pytest.mark.parametrize("sign", SIGNS)
def test_a_gold_that_is_only_a_sign_matches_no_word_and_no_other_sign(name: str, sign: str) -> None:
    outputs = ["No, it is a x.", "5 × 3 * 2.", "The", "?", "~"]
    assert scores.score_outputs(outputs, [[sign]] * len(outputs), scores.score_named(name)) == [0.0] * len(
        outputs
    )
