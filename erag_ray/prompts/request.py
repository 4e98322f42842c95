"""Requests to a model, and its responses. Pure data.

A request is one question to one model: a `Form`, which all requests of one kind to one dataset share, a question, its
passages, and for some kinds answers. Its key is a hash of all of these, without the ids of queries and documents. A
response depends only on the model and the request, so responses are cached by (model, key).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, NamedTuple

import xxhash

from erag_ray.store.fingerprints import fingerprint

Method = Literal["generate", "loglikelihood"]


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
    """A prompt template; `erag_ray.prompts.prompt` fills it."""

    template: str
    """With ``{question}`` and ``{passages}``."""
    without_passages: str
    """The template of a request without passages."""
    passage: str
    """One passage, with ``{rank}`` (from 1), ``{title}``, ``{text}``, or ``{passage}`` for "(title) text"."""
    untitled: str
    """The same for a passage without a title."""
    separator: str
    system: str = ""
    """Text before everything else, or the system message of a chat."""
    system_without_passages: str = ""
    """The same for a request without passages."""
    examples: tuple[Example, ...] = ()
    is_chat: bool = False
    """Whether the model's chat template is applied."""
    one_line: bool = False
    """Whether line breaks and runs of blanks in passages become single blanks."""
    titles: bool = True
    """Whether the model sees the titles of passages."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """The settings that all requests of one kind to one dataset share."""

    method: Method
    """``generate`` text with greedy decoding, or compute the ``loglikelihood`` of each answer of the request."""
    prompt: Prompt
    max_new_tokens: int
    """Largest number of tokens of an output; answers to ``loglikelihood`` are truncated to it."""
    max_prompt_tokens: int | None = None
    """Largest number of tokens of a prompt (FiD: of one passage with its question); None: the model's default."""
    keep_question_end: bool = False
    """A question that is too long loses its start (a dialogue), else its end."""
    stop_at_newline: bool = True
    """An output ends at its first line break."""
    with_end: bool = True
    """A log-likelihood includes the end of the output after the answer."""
    next_token: bool = False
    """A log-likelihood is that of the answer as the single next token: one pass over the prompt for all answers, and
    their probabilities add up. It is -inf for an answer of several tokens, and for one with the token of an earlier
    answer."""
    repeat: int = 0
    """0, or 1, 2, ... for another response to the same, with another seed where the model has one; -1 - repeat: that
    one asked for again, to see whether it is the same (`again`)."""

    @functools.cached_property
    def fingerprint(self) -> str:
        """Return a hash of all fields, in 32 hex digits."""
        # the keys of responses of former versions, in which a form had no repeat and could stop early
        fields = {**asdict(self), "early_stop": None}
        if not self.repeat:
            del fields["repeat"]
        return fingerprint(fields)

    @property
    def again(self) -> Form:
        return replace(self, repeat=-1 - self.repeat)

    @property
    def seed(self) -> int:
        """Return what is added to the model's seed."""
        return max(self.repeat, -1 - self.repeat)


class Request(NamedTuple):
    """One question to one model."""

    form: Form
    question: str
    passages: tuple[Passage, ...] = ()
    """In the order of the list; none: closed-book."""
    answers: tuple[str, ...] = ()
    """For ``loglikelihood``, the answers to score, as they continue the prompt (with a blank before them where needed);
    else none."""

    @classmethod
    def of(
        cls, form: Form, question: str, passages: Iterable[Passage], answers: Sequence[str] = ()
    ) -> Request:
        """Return a request, without the titles of its passages if the form's prompt hides them."""
        if not form.prompt.titles:
            passages = (Passage("", passage.text) for passage in passages)
        return cls(form, question, tuple(passages), tuple(answers))


class Failure(NamedTuple):
    """The error of a request: its kind (one of `schemas.ERROR_KINDS`) and its message."""

    kind: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Response:
    """A response to a request: a text, log-probabilities, or an error."""

    text: str | None = None
    logprobs: tuple[float, ...] = ()
    """Of each answer of the request, summed over its tokens (and the end, if the form says so)."""
    num_answer_tokens: tuple[int, ...] = ()
    """The number of tokens in each sum."""
    failure: Failure | None = None
    """The error, if there is neither text nor log-probabilities."""
    num_prompt_tokens: int = 0
    """Over all segments; 0 if the model does not count them."""
    num_output_tokens: int = 0
    """Generated or scored."""
    num_truncated_question_tokens: int = 0
    """Cut from the question to make the prompt fit."""
    num_truncated_passage_tokens: int = 0
    num_cached_prompt_tokens: int = 0
    """Prompt tokens from a server's prefix cache."""
    notes: tuple[str, ...] = ()
    """Properties of the output, such as ``thinking``; counted in the log, not stored."""


def text_hash(*fields: str) -> bytes:
    """Return the XXH3-128 hash (16 bytes) of texts, each prefixed by its length."""
    parts = [field.encode() for field in fields]
    return xxhash.xxh3_128_digest(b"".join(len(part).to_bytes(8, "big") + part for part in parts))


def question_key(form: Form, question: str, answers: tuple[str, ...]) -> int:
    return xxhash.xxh3_64_intdigest(text_hash(form.fingerprint, question, *answers))
