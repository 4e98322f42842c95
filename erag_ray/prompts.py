"""Question + passages -> the pieces of a reader's input. Pure; shared by reading and training.

A prompt is a list of `Piece`: text of ours (``template``), the question, or one passage. Readers turn pieces
into tokens one by one, so that what a user or a document wrote is never taken for template or control tokens,
and so that cutting a long passage cannot touch the question. A new prompt is one function from
`(question, passages)` to pieces.

In the pieces a template never ends in a blank: a blank belongs to the word after it, as tokenizers have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Kind = Literal["template", "question", "passage"]


class Passage(NamedTuple):
    """One passage as a reader sees it."""

    title: str
    text: str


class Piece(NamedTuple):
    """A stretch of a prompt: whose text it is decides how it is tokenised and cut."""

    kind: Kind
    text: str


class Example(NamedTuple):
    """One worked example of a few-shot prompt."""

    passage: Passage
    question: str
    answer: str


class Family(NamedTuple):
    """What a causal reader is told to do, for one family of datasets."""

    instruction: str
    instruction_alone: str
    examples: tuple[Example, ...]
    question_word: str
    answer_word: str


def fid_pieces(question: str, passage: Passage | None) -> list[Piece]:
    """One encoder input of Fusion-in-Decoder: ``question: ... title: ... context: ...``.

    Without a passage the question alone; without a title no title field. Form as in the FiD paper (Izacard &
    Grave, EACL 2021, section 3).
    """
    pieces = [Piece("template", "question:"), Piece("question", " " + question)]
    return pieces if passage is None else [*pieces, *_titled(passage)]


def ipa_pieces(question: str, passages: Sequence[Passage]) -> list[Piece]:
    """In-prompt augmentation for an encoder-decoder: the question, then every passage, in one input."""
    pieces = [Piece("template", "question:"), Piece("question", " " + question)]
    for passage in passages:
        pieces += _titled(passage)
    return pieces


def _titled(passage: Passage) -> list[Piece]:
    title = [Piece("template", " title:"), Piece("passage", " " + passage.title)] if passage.title else []
    return [*title, Piece("template", " context:"), Piece("passage", " " + passage.text)]


def plain_pieces(
    family: Family, question: str, passages: Sequence[Passage], num_examples: int
) -> list[Piece]:
    """A plain few-shot prompt for a decoder-only model that ends where the answer starts.

    The examples show a passage only where the prompt itself has passages.
    """
    parts = [family.instruction if passages else family.instruction_alone]
    for example in family.examples[:num_examples]:
        context = f"{_one_line(example.passage)}\n" if passages else ""
        asked = f"{family.question_word}: {example.question}\n{family.answer_word}: {example.answer}"
        parts.append(context + asked)
    before = "\n\n".join(parts) + "\n"
    return [*_contexts(before, passages), *_ask(family, question, first=not passages, before=before)]


def without_titles(family: Family) -> Family:
    """The family, whose worked examples show passages without titles."""
    examples = [one._replace(passage=one.passage._replace(title="")) for one in family.examples]
    return family._replace(examples=tuple(examples))


def _one_line(passage: Passage) -> str:
    return f"Passage: ({passage.title}) {passage.text}" if passage.title else f"Passage: {passage.text}"


def _contexts(before: str, passages: Sequence[Passage]) -> list[Piece]:
    pieces = []
    for index, passage in enumerate(passages):
        pieces += _context(before if index == 0 else "", passage)
    return pieces


def _context(before: str, passage: Passage) -> list[Piece]:
    # line breaks in a passage would look like the prompt's own structure
    text = _one_line(Passage(*(" ".join(part.split()) for part in passage)))
    return [Piece("template", f"{before}\nPassage:"), Piece("passage", text.removeprefix("Passage:"))]


def _ask(family: Family, question: str, *, first: bool, before: str) -> list[Piece]:
    lead = f"{before}\n{family.question_word}:" if first else f"\n{family.question_word}:"
    return [
        Piece("template", lead),
        Piece("question", " " + question),
        Piece("template", f"\n{family.answer_word}:"),
    ]


def chat_pieces(family: Family, question: str, passages: Sequence[Passage]) -> list[Piece]:
    """The user's message of a chat: instruction, passages, question. The chat template is the reader's part."""
    instruction = family.instruction if passages else family.instruction_alone
    pieces = [Piece("template", instruction + "\n")]
    for passage in passages:
        pieces += _context("", passage)
    return [*pieces, Piece("template", f"\n{family.question_word}:"), Piece("question", " " + question)]


def share_room(lengths: Sequence[int], room: int) -> list[int]:
    """How many tokens each passage keeps when together they may have ``room``.

    An equal share each, and what short passages leave over goes to the long ones; shares are as equal as whole
    numbers allow, the longest passages (of equal ones the last) getting the odd tokens.
    """
    kept = [0] * len(lengths)
    waiting = sorted(range(len(lengths)), key=lambda i: lengths[i])
    left = max(room, 0)
    for position, index in enumerate(waiting):
        share = left // (len(waiting) - position)
        kept[index] = min(lengths[index], share)
        left -= kept[index]
    return kept


def fit(
    num_question: int, num_passages: Sequence[int], *, room: int, keep_question: bool
) -> tuple[int, list[int]]:
    """How many tokens of the question and of each passage fit into ``room`` tokens.

    The passages together keep at least half of the room if they need it; the question gets the rest, then the
    passages get what the question leaves. With ``keep_question`` the question is never cut, and the passages
    get what is left, if anything.

    Returns:
        Tokens kept of the question, and of each passage.
    """
    reserved = min(sum(num_passages), room // 2)
    question = num_question if keep_question else min(num_question, max(room - reserved, 0))
    return question, share_room(num_passages, room - question)


LIGHTHOUSE = Passage(
    "Lighthouse", "The lighthouse at Skerry Point was lit in 1874. Its lamp burned whale oil."
)
SURGEON = Passage("Ada Brunner", "Ada Brunner grew up in Graz and became a surgeon like her mother.")

# A weak reader copies the answers of worked examples ("1874" was 8 to 10 % of SmolLM2's outputs from five and ten
# documents). So those of questions and dialogues hold invented names: no real answer equals them, and they show a copy.
DESIGNER = Passage(
    "Skerry Point", "The lighthouse at Skerry Point was designed by Orla Brandvik and burned whale oil."
)
CHILDHOOD = Passage(
    "Ada Brunner", "Ada Brunner grew up in Mellinghaven and became a surgeon like her mother."
)

JUDGEMENTS = {
    "yes_no": Family(
        instruction="Read the passage and say whether it helps to answer the query, which may be a question, a claim "
        "to be checked, or a conversation to be continued. Answer yes or no.",
        instruction_alone="",
        examples=(
            Example(LIGHTHOUSE, "When was the lighthouse at Skerry Point first lit?", "yes"),
            Example(SURGEON, "Ada Brunner was a famous painter of lighthouses.", "yes"),
            Example(SURGEON, "When was the lighthouse at Skerry Point first lit?", "no"),
            Example(LIGHTHOUSE, "What was the profession of Ada Brunner's mother?", "no"),
        ),
        question_word="Query",
        answer_word="Helpful (yes or no)",
    ),
    "grades": Family(
        instruction="Read the passage and grade how much it helps to answer the query, which may be a question, a "
        "claim to be checked, or a conversation to be continued. 0: it is about something else. 1: it is about the "
        "subject, but does not help. 2: it helps in part. 3: it says all that is asked. Answer with the grade alone.",
        instruction_alone="",
        examples=(
            Example(LIGHTHOUSE, "When was the lighthouse at Skerry Point first lit?", "3"),
            Example(SURGEON, "When was the lighthouse at Skerry Point first lit?", "0"),
            Example(SURGEON, "In which hospital did Ada Brunner work?", "1"),
            Example(LIGHTHOUSE, "Who lit the lighthouse at Skerry Point, and what did its lamp burn?", "2"),
        ),
        question_word="Query",
        answer_word="Grade (0 to 3)",
    ),
}
"""What a judge of relevance is told to do, by the scale of its answers."""

FAMILIES = {
    "question": Family(
        instruction="Read the passages and answer the question with a few words.",
        instruction_alone="Answer the question with a few words.",
        examples=(
            Example(
                DESIGNER,
                "Who designed the lighthouse at Skerry Point?",
                "Orla Brandvik",
            ),
            Example(
                CHILDHOOD,
                "Where did Ada Brunner grow up?",
                "Mellinghaven",
            ),
        ),
        question_word="Question",
        answer_word="Answer (a few words)",
    ),
    "claim": Family(
        instruction="Read the passages and say whether they support the claim. Answer SUPPORTS or REFUTES.",
        instruction_alone="Say whether the claim is true. Answer SUPPORTS or REFUTES.",
        examples=(
            Example(
                LIGHTHOUSE,
                "The lamp of the lighthouse at Skerry Point burned whale oil.",
                "SUPPORTS",
            ),
            Example(
                SURGEON,
                "Ada Brunner was the first surgeon in her family.",
                "REFUTES",
            ),
        ),
        question_word="Claim",
        answer_word="Answer (SUPPORTS or REFUTES)",
    ),
    "dialogue": Family(
        instruction="Use the passages to write the next reply of the conversation.",
        instruction_alone="Write the next reply of the conversation.",
        examples=(
            Example(
                LIGHTHOUSE,
                "I would love to see an old lighthouse one day.",
                "The one at Skerry Point is really old, it was first lit in 1874!",
            ),
            Example(
                CHILDHOOD,
                "I am reading about Ada Brunner. Do you know where she is from?",
                "She grew up in Mellinghaven, and she became a surgeon just like her mother.",
            ),
        ),
        question_word="Conversation",
        answer_word="Reply",
    ),
}

VERDICTS: dict[str, tuple[str, ...]] = {"claim": ("SUPPORTS", "REFUTES")}
"""Families of questions that have but a few answers, with all of them."""
