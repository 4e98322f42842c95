"""What a model is shown, piece by piece, and what of it is kept where room is short."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from erag_ray.prompts.prompt import FAMILIES, T5, Family, Piece, family_prompt, fit, pieces, share_room
from erag_ray.prompts.request import Passage, Prompt

QUESTION = "Who built it?"
BRIDGE = Passage("Marn", "A bridge.")
UNTITLED = Passage("", "Rain.")
FAMILY = FAMILIES["question"]


def plain(family: Family = FAMILY, num_examples: int = 0) -> Prompt:
    return family_prompt(family, is_chat=False, num_examples=num_examples)


CHAT = family_prompt(FAMILY, is_chat=True)


def joined(found: list[Piece]) -> str:
    return "".join(piece.text for piece in found)


def texts(found: list[Piece], kind: str) -> list[str]:
    return [piece.text for piece in found if piece.kind == kind]


FEW = "answer the question with a few words.\n\n"
EXAMPLE = "Question: Who designed the lighthouse at Skerry Point?\nAnswer (a few words): Orla Brandvik\n\n"
LIGHTHOUSE = (
    "Passage: (Skerry Point) The lighthouse at Skerry Point was designed by Orla Brandvik and "
    "burned whale oil.\n"
)
BOTH = "Passage: (Marn) A bridge.\nPassage: Rain.\n"
ASKED = "Question: Who built it?"


@pytest.mark.parametrize(
    ("prompt", "passages", "text"),
    [
        # without a title there is no title field, and without a passage the question is alone
        (T5, [BRIDGE], "question: Who built it? title: Marn context: A bridge."),
        (T5, [UNTITLED], "question: Who built it? context: Rain."),
        (T5, [], "question: Who built it?"),
        (T5, [BRIDGE, UNTITLED], "question: Who built it? title: Marn context: A bridge. context: Rain."),
        # the plain prompt ends where the answer starts
        (
            plain(num_examples=1),
            [BRIDGE, UNTITLED],
            f"Read the passages and {FEW}{LIGHTHOUSE}{EXAMPLE}{BOTH}{ASKED}\nAnswer (a few words):",
        ),
        (plain(num_examples=1), [], f"A{FEW[1:]}{EXAMPLE}{ASKED}\nAnswer (a few words):"),
        (CHAT, [BRIDGE, UNTITLED], f"Read the passages and {FEW}{BOTH}{ASKED}"),
        (CHAT, [], f"A{FEW[1:]}{ASKED}"),
    ],
)
def test_what_a_model_is_shown(prompt: Prompt, passages: list[Passage], text: str) -> None:
    assert joined(pieces(prompt, QUESTION, passages)) == text


@pytest.mark.parametrize("num_examples", [0, 1, 2])
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_family_asks_and_answers_with_its_own_words(family, num_examples: int) -> None:
    lines = joined(pieces(plain(family, num_examples), QUESTION, [BRIDGE])).splitlines()
    assert lines[0] == family.instruction
    assert lines[-2:] == [f"{family.question_word}: {QUESTION}", f"{family.answer_word}:"]
    # every example has one passage, one question and one answer, as the prompt itself
    for word in ("Passage", family.question_word, family.answer_word):
        assert sum(line.startswith(f"{word}:") for line in lines) == num_examples + 1


WORDS = st.text(st.sampled_from("ab :()?\n\r\t\v\f\x1c\x85\u2028"), max_size=12)
PASSAGES = st.lists(st.builds(Passage, WORDS, WORDS), max_size=3)
PROMPTS = {"fid": T5, "ipa": T5, "plain": plain(num_examples=2), "chat": CHAT}


def made(name: str, question: str, passages: Sequence[Passage]) -> list[Piece]:
    return pieces(PROMPTS[name], question, passages[:1] if name == "fid" else passages)


@pytest.mark.parametrize("prompt", PROMPTS)
@given(question=WORDS, passages=PASSAGES)
def test_a_blank_belongs_to_the_word_after_it(prompt: str, question: str, passages: list[Passage]) -> None:
    found = made(prompt, question, passages)
    for piece, following in itertools.pairwise(found):
        if piece.kind == "template" and following.kind != "template":
            assert piece.text == piece.text.rstrip()
            assert following.text.startswith(" ")


@pytest.mark.parametrize("prompt", PROMPTS)
@given(question=WORDS, passages=PASSAGES)
def test_templates_hold_nothing_that_a_user_or_a_document_wrote(
    prompt: str, question: str, passages: list[Passage]
) -> None:
    found = made(prompt, question, passages)
    assert texts(found, "question") == [f" {question}"]
    # the same templates around any text, as long as the same titles are empty
    other = [Passage(passage.title and "Other", "Words.") for passage in passages]
    assert texts(found, "template") == texts(made(prompt, "Else?", other), "template")


@pytest.mark.parametrize("prompt", ["plain", "chat"])
@given(passages=PASSAGES)
def test_a_passage_is_one_line(prompt: str, passages: list[Passage]) -> None:
    found = texts(made(prompt, QUESTION, passages), "passage")
    assert len(found) == len(passages)
    assert all(len(text.splitlines()) == 1 for text in found)


@pytest.mark.parametrize(
    ("lengths", "room", "kept"),
    [
        # 12 / 3 = 4 each, of which the first leaves 2: 10 / 2 = 5 for each of the others
        ([2, 9, 9], 12, [2, 5, 5]),
        # 11 = 3 + 4 + 4 and 10 = 3 + 3 + 4: of equal passages the last get the odd tokens
        ([9, 9, 9], 11, [3, 4, 4]),
        ([9, 9, 9], 10, [3, 3, 4]),
        # else the longest
        ([30, 9, 9], 10, [4, 3, 3]),
        ([9, 9], 1, [0, 1]),
    ],
)
def test_room_is_shared_equally_and_what_is_left_over_goes_to_the_long(
    lengths: list[int], room: int, kept: list[int]
) -> None:
    assert share_room(lengths, room) == kept


LENGTHS = st.lists(st.integers(0, 60), max_size=8)


@given(LENGTHS, st.integers(-10, 300))
def test_shares_fill_the_room_and_are_equal_among_those_cut(lengths: list[int], room: int) -> None:
    kept = share_room(lengths, room)
    assert all(0 <= share <= length for share, length in zip(kept, lengths, strict=True))
    assert sum(kept) == min(sum(lengths), max(room, 0))
    cut = [share for share, length in zip(kept, lengths, strict=True) if share < length]
    if cut:
        # nobody has more than those who are cut, whole passages included, but for the odd token
        assert max(kept) - min(cut) <= 1


@pytest.mark.parametrize(
    ("num_question", "num_passages", "room", "keep_question", "expected"),
    [
        # the passage keeps at least half of 30; the question gets 10 of the other 15, the passage what it leaves
        (10, [50], 30, False, (10, [20])),
        # half of 31 is 15 for the passages, 16 for the question
        (40, [50], 31, False, (16, [15])),
        # together the passages have half: 15 = 7 + 8
        (40, [50, 50], 30, False, (15, [7, 8])),
        # a question that is never cut leaves the passages what there is
        (20, [50], 30, True, (20, [10])),
    ],
)
def test_what_is_kept_of_question_and_passages(
    num_question: int,
    num_passages: list[int],
    room: int,
    keep_question: bool,
    expected: tuple[int, list[int]],
) -> None:
    assert fit(num_question, num_passages, room=room, keep_question=keep_question) == expected


@given(st.integers(0, 200), LENGTHS, st.integers(-10, 300), st.booleans())
def test_what_is_kept_fits_and_nothing_is_cut_that_fits(
    num_question: int, num_passages: list[int], room: int, keep_question: bool
) -> None:
    question, passages = fit(num_question, num_passages, room=room, keep_question=keep_question)
    assert 0 <= question <= num_question
    assert all(0 <= kept <= length for kept, length in zip(passages, num_passages, strict=True))
    if keep_question:
        assert question == num_question
        assert sum(passages) == min(sum(num_passages), max(room - question, 0))
        return
    # all the room is used, and no more
    assert question + sum(passages) == min(num_question + sum(num_passages), max(room, 0))
    # the passages keep half of the room if they need it
    assert sum(passages) >= min(sum(num_passages), max(room, 0) // 2)
    # and the question keeps the other half if it needs it
    assert question >= min(num_question, max(room, 0) // 2)
