"""What is asked of a model, and what comes back. Pure data.

A request is one question to one model: a `Form`, which all requests of one kind to one dataset share, a question, its
passages, and for some kinds answers. Its key is a hash of all of that; ids of queries and documents are not in it. The
response to a request depends on nothing but the model and the request, so responses are kept by (model, key).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

import xxhash

from erag_ray.store import fingerprint

Method = Literal["generate", "loglikelihood"]
Need = Literal["generate", "loglikelihood", "early_stop"]


class Passage(NamedTuple):
    """One passage as a model sees it."""

    title: str
    text: str


class Example(NamedTuple):
    """One worked example of a prompt."""

    question: str
    answer: str
    passages: tuple[Passage, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """How a question and its passages become text; see `erag_ray.requests.prompts`.

    Attributes:
        template: with ``{question}`` and ``{passages}``.
        without_passages: the template of a request without passages.
        passage: one passage, with ``{rank}`` (from 1), ``{title}``, ``{text}``, or ``{passage}`` for "(title) text".
        untitled: the same for a passage without a title.
        separator: between two passages.
        system: what stands before everything, or the system message of a chat.
        system_without_passages: the same for a request without passages.
        examples: worked examples, before the question.
        is_chat: whether it goes through the model's chat template.
        one_line: whether line breaks and runs of blanks in passages become single blanks.
        titles: whether the model sees the titles of passages.
    """

    template: str
    without_passages: str
    passage: str
    untitled: str
    separator: str
    system: str = ""
    system_without_passages: str = ""
    examples: tuple[Example, ...] = ()
    is_chat: bool = False
    one_line: bool = False
    titles: bool = True


@dataclass(frozen=True, kw_only=True)
class Form:
    """What all requests of one kind to one dataset share.

    Attributes:
        method: ``generate`` text, greedily, or give the ``loglikelihood`` of each of the request's answers.
        prompt: how question and passages become text.
        max_new_tokens: the most of one output; of an answer whose log-likelihood is asked, those beyond are left out.
        max_prompt_tokens: the most of one prompt (of FiD: of one passage with its question); None: the model's choice.
        keep_question_end: a question that is too long loses its start (a dialogue), else its end.
        stop_at_newline: an output ends at its first line break.
        early_stop: name of a score; an output may end as soon as no answer of the request can match it any more.
        with_end: a log-likelihood includes that the output ends after the answer.
        next_token: a log-likelihood is that of the answer as the one next token, -inf for one of several, and for one
            that is the token of an answer before it: all cost one pass over the prompt, and probabilities add up.
    """

    method: Method
    prompt: Prompt
    max_new_tokens: int
    max_prompt_tokens: int | None = None
    keep_question_end: bool = False
    stop_at_newline: bool = True
    early_stop: str | None = None
    with_end: bool = True
    next_token: bool = False

    @functools.cached_property
    def fingerprint(self) -> str:
        """32 hex digits of all that it says."""
        return fingerprint(asdict(self))

    @property
    def needs(self) -> frozenset[Need]:
        """What a model must be able to do."""
        return frozenset({self.method, "early_stop"} if self.early_stop else {self.method})


class Request(NamedTuple):
    """One question to one model.

    Attributes:
        form: what it shares with others.
        question: of the user.
        passages: in the order of the list; none: closed-book.
        answers: whose log-likelihood is asked, as they follow the prompt (with a blank before them, where one belongs
            there); or which may match an output that is stopped early; else none.
    """

    form: Form
    question: str
    passages: tuple[Passage, ...] = ()
    answers: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, form: Form, question: str, passages: Iterable[Passage], answers: Sequence[str] = ()
    ) -> Request:
        """A request as its form has it: without titles where these are hidden."""
        shown = passages if form.prompt.titles else (Passage("", passage.text) for passage in passages)
        return cls(form, question, tuple(shown), tuple(answers))

    @property
    def key(self) -> tuple[int, int]:
        """Two numbers of 64 bits: of form, question and answers; and of the passages in their order."""
        hashes = b"".join(text_hash(*passage) for passage in self.passages)
        return question_key(self.form, self.question, self.answers), xxhash.xxh3_64_intdigest(hashes)


class Failure(NamedTuple):
    """Why a request has no response, and the kind of an error that it is (see `schemas.ERROR_KINDS`)."""

    kind: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Response:
    """What came back: a text, log-probabilities, or an error.

    Attributes:
        text: that the model wrote.
        logprobs: of each answer of the request, summed over its tokens (and the end, if the form says so).
        num_answer_tokens: how many tokens each sum is over.
        failure: why there is neither.
        num_prompt_tokens: over all segments; 0 where the model does not count.
        num_output_tokens: written or scored.
        num_truncated_question_tokens: cut from the question to make the prompt fit.
        num_truncated_passage_tokens: cut from the passages.
        num_cached_prompt_tokens: of the prompt, those that a server did not have to compute again.
        notes: what a model counts of its outputs, such as ``thinking``; summed up for people, not stored.
    """

    text: str | None = None
    logprobs: tuple[float, ...] = ()
    num_answer_tokens: tuple[int, ...] = ()
    failure: Failure | None = None
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_truncated_question_tokens: int = 0
    num_truncated_passage_tokens: int = 0
    num_cached_prompt_tokens: int = 0
    notes: tuple[str, ...] = ()


def text_hash(*fields: str) -> bytes:
    """16 bytes (XXH3-128) of some texts, each with its length before it."""
    parts = [field.encode() for field in fields]
    return xxhash.xxh3_128_digest(b"".join(len(part).to_bytes(8, "big") + part for part in parts))


def question_key(form: Form, question: str, answers: tuple[str, ...]) -> int:
    """The first half of a request's key."""
    return xxhash.xxh3_64_intdigest(text_hash(form.fingerprint, question, *answers))
