"""Tokenization of prompt pieces, with text from users and documents as plain text, and truncation."""

import copy
import functools
import itertools
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from erag_ray.models.local.word_cache import Encode, Ids, WordCache, normalizer_of, splits_at_blanks
from erag_ray.prompts.prompt import Piece, cut, lengths_of
from erag_ray.prompts.request import Form, Request

MAX_TEMPLATES = 1 << 10
"""Size of the cache of tokenized templates."""
BEFORE = "\x02"
"""Put before a piece inside a prompt; its tokens never merge with others, and are removed."""


class PieceTokenizer:
    """A Hugging Face tokenizer that recognises control tokens only in templates.

    In a question or a passage, the text of a control token ("</s>", "<|im_end|>") is plain text. If the tokenizer
    would still return its id, a blank is inserted after the first character of the text; an id that appears even then
    (because the tokenizer normalises other characters to it) is removed. The id of unknown characters stays.

    Some tokenizers (Llama 2, Mistral, Phi-3) put a blank before a text: here only before the first piece of a prompt.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        added = {id_: token.content for id_, token in tokenizer.added_tokens_decoder.items()}
        special = dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
        controls = {id_: text for id_, text in {**added, **special}.items() if text.strip()}
        self._suspicious_ids = frozenset(controls)
        self.unknown: int | None = tokenizer.unk_token_id
        self.control_ids = self._suspicious_ids - {self.unknown}
        self._control_texts = sorted(set(controls.values()), key=len, reverse=True)
        library: Encode = functools.partial(_by_library, tokenizer)
        self._whole = self._plain = plain_encoder(tokenizer)
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is not None and splits_at_blanks(backend):
            self._plain = WordCache(
                self._whole, self._control_texts, self.control_ids, normalizer_of(backend)
            )
        before, start, inside = self._whole([BEFORE, "a", f"{BEFORE}a"])
        self._adds_blank = self._plain is self._whole and inside != (*before, *start)
        if self._adds_blank:
            library = _after(library, before)
            self._whole = self._plain = _after(self._whole, before)
        self._template = functools.lru_cache(MAX_TEMPLATES)(lambda text: library([text])[0])

    @functools.cached_property
    def start(self) -> str:
        """Return the control tokens that the tokenizer puts before a text: none, its start token, or in GLM two."""
        ids = itertools.takewhile(self.control_ids.__contains__, self.tokenizer("a")["input_ids"])
        return "".join(self.tokenizer.convert_ids_to_tokens(list(ids)))

    def tokenise(self, prompts: Sequence[Sequence[Piece]]) -> list[list[Ids]]:
        """Return the token ids of every piece of every prompt; each distinct piece is tokenized once."""
        if self._adds_blank:
            prompts = list(map(self._marked, prompts))
        distinct = list(dict.fromkeys(piece for pieces in prompts for piece in pieces))
        ids = dict(zip(distinct, self._encode(distinct), strict=True))
        return [[ids[piece] for piece in pieces] for pieces in prompts]

    def _marked(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Return pieces with `BEFORE` in front of all but the first, or the first after its `start`."""
        num_first = 2 if self.start and pieces[0].text == self.start else 1
        return [*pieces[:num_first], *(Piece(kind, BEFORE + text) for kind, text in pieces[num_first:])]

    def _encode(self, pieces: Sequence[Piece]) -> list[Ids]:
        plain = iter(self._plain([piece.text for piece in pieces if piece.kind != "template"]))
        return [
            self._template(piece.text)
            if piece.kind == "template"
            else self._without_controls(piece.text, next(plain))
            for piece in pieces
        ]

    def _without_controls(self, text: str, ids: Ids) -> Ids:
        if self._suspicious_ids.isdisjoint(ids):
            return ids
        escaped = text
        for control in self._control_texts:
            escaped = escaped.replace(control, f"{control[0]} {control[1:]}")
        ids = ids if escaped == text else self._whole([escaped])[0]
        return tuple(id_ for id_ in ids if id_ not in self.control_ids)


def _after(encode: Encode, before: Ids) -> Encode:
    """Return an encoder whose ids of a text that begins with `BEFORE` lack those of `BEFORE`."""
    return lambda texts: [
        ids[len(before) :] if text.startswith(BEFORE) else ids
        for text, ids in zip(texts, encode(texts), strict=True)
    ]


def plain_encoder(tokenizer: Any) -> Encode:
    """Return a thread-safe function from texts to token ids, for which control tokens in a text are plain text."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return functools.partial(_by_library, tokenizer, is_plain=True)
    # a copy, because transformers changes settings of its backend, which fails while another thread uses it
    fast = copy.deepcopy(backend)
    fast.no_truncation()
    fast.no_padding()
    fast.encode_special_tokens = True

    def encode(texts: Sequence[str]) -> list[Ids]:
        encodings = fast.encode_batch_fast(list(texts), add_special_tokens=False)
        return [tuple(encoding.ids) for encoding in encodings]

    return encode


def _by_library(tokenizer: Any, texts: Sequence[str], *, is_plain: bool = False) -> list[Ids]:
    if not texts:
        return []
    settings = {"add_special_tokens": False, "split_special_tokens": is_plain, "return_attention_mask": False}
    return [tuple(ids) for ids in tokenizer(list(texts), verbose=False, **settings)["input_ids"]]


class Segment(NamedTuple):
    """One text for the model in tokens, and the numbers of tokens cut from its question and its passages."""

    ids: Ids
    num_question: int
    num_passages: int


def cut_prompt(
    pieces: Sequence[Piece], ids: Sequence[Ids], *, limit: int, keep_end: bool, keep_question: bool = False
) -> Segment:
    """Truncate a prompt, with ``ids`` of each piece, to ``limit`` tokens, templates included; otherwise as `cut`.

    Only with ``keep_question`` and a longer question it has more. If the templates of all passages do not fit, the last
    passages are dropped with their templates.
    """
    if sum(map(len, ids)) <= limit:
        return Segment(tuple(itertools.chain.from_iterable(ids)), 0, 0)
    dropped = _dropped(pieces, ids, limit - keep_question * sum(lengths_of(pieces, ids, "question")))
    remaining = [index for index in range(len(pieces)) if index not in dropped]
    parts, tokens = [pieces[index] for index in remaining], [ids[index] for index in remaining]
    cut_tokens, num_question, num_passages = cut(
        parts, tokens, room=limit, keep_end=keep_end, keep_question=keep_question
    )
    num_passages += sum(lengths_of(pieces, ids, "passage")) - sum(lengths_of(parts, tokens, "passage"))
    return Segment(tuple(itertools.chain.from_iterable(cut_tokens)), num_question, num_passages)


def _dropped(pieces: Sequence[Piece], ids: Sequence[Ids], room: int) -> set[int]:
    """Return the indices of the last passages and their templates that must go so that the templates fit into room."""
    start = next((i for i, piece in enumerate(pieces) if piece.kind != "template"), len(pieces))
    excess = sum(lengths_of(pieces, ids, "template")) - room
    dropped: set[int] = set()
    for index in range(len(pieces) - 1, start, -1):
        if excess > 0 and pieces[index].kind == "passage":
            dropped.add(index)
            # in a custom prompt the piece before may be the question, or another part of the passage
            if pieces[index - 1].kind == "template":
                dropped.add(index - 1)
                excess -= len(ids[index - 1])
    return dropped


def up_to_end(ids: list[int], ends: Collection[int]) -> list[int]:
    """Return the tokens of an output up to and with the first that ends it."""
    return ids[: next((index + 1 for index, id_ in enumerate(ids) if id_ in ends), len(ids))]


def answer_ids(tokenizer: PieceTokenizer, requests: Sequence[Request]) -> list[tuple[Ids, ...]]:
    """Return the token ids of each request's answers, truncated as outputs are."""
    distinct = list(dict.fromkeys(answer for request in requests for answer in request.answers))
    # with a blank before it an answer continues a prompt; without, it begins a turn of its own
    starts = [[Piece("template", "")] if answer.startswith(" ") else [] for answer in distinct]
    tokens = tokenizer.tokenise(
        [[*start, Piece("passage", answer)] for start, answer in zip(starts, distinct, strict=True)]
    )
    ids = {answer: piece_ids[-1] for answer, piece_ids in zip(distinct, tokens, strict=True)}
    return [
        tuple(_scored(request.form, ids[answer], tokenizer.unknown) for answer in request.answers)
        for request in requests
    ]


def _scored(form: Form, ids: Ids, unknown: int | None) -> Ids:
    """Return the tokens of an answer that are scored; none for a next token that is the one of unknown words."""
    if form.next_token:
        return () if unknown in ids else ids
    return ids[: form.max_new_tokens]
