"""Pieces of a prompt -> token ids, with the words of users and documents as plain text, and cut to fit."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Sequence
from typing import Any, Protocol

from erag_ray.errors import InputError
from erag_ray.models.local.word_cache import (
    Encode,
    Ids,
    WordCache,
    normalizer_of,
    splits_at_blanks,
    word_starts,
)
from erag_ray.requests import T5, Form, Passage, Piece, Request, fit

MIN_ROOM = 16
MAX_TEMPLATES = 1 << 10
"""Most template texts whose tokens are kept."""
PROBE = Form(method="generate", prompt=T5, max_new_tokens=8, max_prompt_tokens=64)
# a change in how prompts become tokens must change the fingerprint: these are rendered and hashed
PROBES = (
    Request(PROBE, "Who wrote it?"),
    Request(PROBE, "Who wrote it?\nAnd when?", (Passage("A title", "A text of two lines.\nHere."),)),
    Request(PROBE, "Which?", (Passage("", "First."), Passage("Second", "word " * 5000))),
)


class PieceTokenizer:
    """A Hugging Face tokenizer that reads control tokens only in templates.

    In a question or a passage, the written form of a control token ("</s>", "<|im_end|>") is text. Where a
    tokenizer would still give its id, a blank is put behind the first character of the written form; an id that
    comes out even so (a vocabulary that normalises other characters to it) is left out. The id for unknown
    characters stays: text outside the vocabulary is read as such.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        added = {id_: token.content for id_, token in tokenizer.added_tokens_decoder.items()}
        special = dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
        written = {id_: text for id_, text in {**added, **special}.items() if text.strip()}
        self._suspicious_ids = frozenset(written)
        self.unknown: int | None = tokenizer.unk_token_id
        self.control_ids = self._suspicious_ids - {self.unknown}
        self._control_texts = sorted(set(written.values()), key=len, reverse=True)
        self._template = functools.lru_cache(MAX_TEMPLATES)(lambda text: _by_library(tokenizer, [text])[0])
        self._whole = self._plain = plain_encoder(tokenizer)
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is not None and splits_at_blanks(backend):
            starts = word_starts(backend)
            self._plain = WordCache(
                self._whole, self._control_texts, self.control_ids, starts, normalizer_of(backend)
            )

    def tokenise(self, prompts: Sequence[Sequence[Piece]]) -> list[list[Ids]]:
        """Token ids of every piece of every prompt; each distinct piece is tokenised once."""
        distinct = list(dict.fromkeys(piece for pieces in prompts for piece in pieces))
        ids = dict(zip(distinct, self._encode(distinct), strict=True))
        return [[ids[piece] for piece in pieces] for pieces in prompts]

    def _encode(self, pieces: Sequence[Piece]) -> list[Ids]:
        plain = iter(self._plain([piece.text for piece in pieces if piece.kind != "template"]))
        return [
            self._template(piece.text)
            if piece.kind == "template"
            else self._harmless(piece.text, next(plain))
            for piece in pieces
        ]

    def _harmless(self, text: str, ids: Ids) -> Ids:
        if self._suspicious_ids.isdisjoint(ids):
            return ids
        broken = text
        for written in self._control_texts:
            broken = broken.replace(written, f"{written[0]} {written[1:]}")
        ids = ids if broken == text else self._whole([broken])[0]
        return tuple(id_ for id_ in ids if id_ not in self.control_ids)


def check_vocabulary(tokenizer: PieceTokenizer, num_rows: int, model: str | None) -> None:
    """Refuse a tokenizer that can make ids of plain text for which a model has no row in its embedding.

    A CPU raises IndexError for such an id; a GPU ends the process.

    Args:
        tokenizer: of the model.
        num_rows: of the model's embedding.
        model: its name, for the message.

    Raises:
        InputError: there is such a token.
    """
    outside = {id_: token for token, id_ in tokenizer.tokenizer.get_vocab().items() if id_ >= num_rows}
    # control tokens never come of plain text; those of templates are checked with the prompt
    own = sorted(outside.keys() - tokenizer.control_ids)
    if own:
        raise InputError([_no_row(model, own[0], outside[own[0]], num_rows)])


def _no_row(model: str | None, id_: int, token: str, num_rows: int) -> str:
    return (
        f"reader.model: {model}: token {token!r} has id {id_}, but the model's embedding has {num_rows} rows; "
        "use the tokenizer that belongs to the model"
    )


def plain_encoder(tokenizer: Any) -> Encode:
    """Texts -> their token ids, in any thread; control tokens that are written in a text are text.

    Args:
        tokenizer: of transformers.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return functools.partial(_by_library, tokenizer, is_plain=True)
    # a copy: the library changes settings of the one that it shares, which fails while another thread uses it
    own = copy.deepcopy(backend)
    own.no_truncation()
    own.no_padding()
    own.encode_special_tokens = True

    def encode(texts: Sequence[str]) -> list[Ids]:
        return [tuple(found.ids) for found in own.encode_batch_fast(list(texts), add_special_tokens=False)]

    return encode


def _by_library(tokenizer: Any, texts: Sequence[str], *, is_plain: bool = False) -> list[Ids]:
    if not texts:
        return []
    settings = {"add_special_tokens": False, "split_special_tokens": is_plain, "return_attention_mask": False}
    return [tuple(ids) for ids in tokenizer(list(texts), verbose=False, **settings)["input_ids"]]


def cut_prompt(
    pieces: Sequence[Piece], ids: Sequence[Ids], *, limit: int, keep_question: bool, keep_end: bool
) -> tuple[Ids, int, int]:
    """One segment of at most ``limit`` tokens (more only if ``keep_question`` and the question alone is longer).

    Where the templates of so many passages do not fit, the last passages are left out with their templates.

    Args:
        pieces: the prompt.
        ids: its tokens, piece by piece.
        limit: tokens allowed, templates included.
        keep_question: never cut the question.
        keep_end: a question that is cut keeps its end (a dialogue), else its start. Passages keep their start.

    Returns:
        The tokens, and how many were cut from the question and from the passages.
    """
    if sum(map(len, ids)) <= limit:
        return tuple(itertools.chain.from_iterable(ids)), 0, 0
    num_question, num_passages = (sum(_lengths(pieces, ids, kind)) for kind in ("question", "passage"))
    left_out = _left_out(pieces, ids, limit - (num_question if keep_question else 0))
    pieces = [piece for place, piece in enumerate(pieces) if place not in left_out]
    ids = [piece_ids for place, piece_ids in enumerate(ids) if place not in left_out]
    room = limit - sum(_lengths(pieces, ids, "template"))
    kept_question, kept_passages = fit(
        num_question, _lengths(pieces, ids, "passage"), room=room, keep_question=keep_question
    )
    kept = iter(kept_passages)
    out: list[int] = []
    for piece, piece_ids in zip(pieces, ids, strict=True):
        if piece.kind == "template":
            out += piece_ids
        elif piece.kind == "question":
            out += piece_ids[len(piece_ids) - kept_question :] if keep_end else piece_ids[:kept_question]
        else:
            out += piece_ids[: next(kept)]
    return tuple(out), num_question - kept_question, num_passages - sum(kept_passages)


def _left_out(pieces: Sequence[Piece], ids: Sequence[Ids], room: int) -> set[int]:
    """Places of the last passages, each with a template before it, without which the templates fit into ``room``."""
    start = next((i for i, piece in enumerate(pieces) if piece.kind != "template"), len(pieces))
    excess = sum(_lengths(pieces, ids, "template")) - room
    found: set[int] = set()
    for place in range(len(pieces) - 1, start, -1):
        if excess > 0 and pieces[place].kind == "passage":
            found.add(place)
            # a prompt of the user's own may have the question there, or another part of the passage
            if pieces[place - 1].kind == "template":
                found.add(place - 1)
                excess -= len(ids[place - 1])
    return found


def check_ids(tokenizer: PieceTokenizer, ids: Sequence[Ids], num_rows: int, model: str | None) -> None:
    """Refuse a prompt with a token for which a model has no row in its embedding.

    Raises:
        InputError: there is one: a control token of a template.
    """
    outside = [id_ for own in ids for id_ in own if id_ >= num_rows]
    if outside:
        token = tokenizer.tokenizer.convert_ids_to_tokens(outside[0])
        raise InputError([_no_row(model, outside[0], token, num_rows)])


def check_room(pieces: Sequence[Piece], ids: Sequence[Ids], limit: int) -> None:
    """Refuse a limit that leaves no room for a question and a passage.

    Raises:
        InputError: the templates of this prompt leave less than `MIN_ROOM` tokens.
    """
    template = sum(_lengths(pieces, ids, "template"))
    if limit - template < MIN_ROOM:
        raise InputError(
            [
                f"reader.max_prompt_tokens: a prompt may have {limit} tokens and its fixed words take {template}; "
                f"at least {MIN_ROOM} must be left for question and passages (the context minus max_new_tokens "
                "is a limit too)"
            ]
        )


def _lengths(pieces: Sequence[Piece], ids: Sequence[Ids], kind: str) -> list[int]:
    return [len(piece_ids) for piece, piece_ids in zip(pieces, ids, strict=True) if piece.kind == kind]


def answer_ids(tokenizer: PieceTokenizer, requests: Sequence[Request]) -> list[tuple[Ids, ...] | None]:
    """The answers of each request in tokens, where their log-likelihood is asked; cut where an output would end."""
    scored = [request.answers if request.form.method == "loglikelihood" else () for request in requests]
    distinct = list(dict.fromkeys(answer for answers in scored for answer in answers))
    tokens = tokenizer.tokenise([[Piece("passage", answer)] for answer in distinct])
    ids = {answer: own[0] for answer, own in zip(distinct, tokens, strict=True)}
    return [
        tuple(_scored(request.form, ids[answer], tokenizer.unknown) for answer in answers)
        if request.form.method == "loglikelihood"
        else None
        for request, answers in zip(requests, scored, strict=True)
    ]


def _scored(form: Form, ids: Ids, unknown: int | None) -> Ids:
    """The tokens of an answer that are scored; none for one that would be the token of all unknown words."""
    if form.next_token:
        return () if unknown in ids else ids
    return ids[: form.max_new_tokens]


class Renders(Protocol):
    """What has requests in tokens."""

    def render(self, requests: Sequence[Request]) -> Sequence[Any]: ...


def probes(model: Renders) -> list[object]:
    """What some requests become: part of a model's identity."""
    return [prompt.segments for prompt in model.render(PROBES)]
