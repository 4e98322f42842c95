"""Encoder-decoder readers (T5 and its kin): Fusion-in-Decoder and in-prompt augmentation.

FiD (Izacard & Grave, EACL 2021) encodes every (question, passage) alone and lets the decoder attend to all of
them; a list of one is plain T5. IPA puts the question and all passages into one input. Both share the decoder
below: a prompt is one or more segments, their encoded states stand side by side.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import transformers
from transformers.modeling_outputs import BaseModelOutput

from erag_ray.config import ReaderConfig
from erag_ray.prompts import fid_pieces, ipa_pieces
from erag_ray.readers.base import SMALL, Output, Prompt, Reader, Request
from erag_ray.readers.fusion import Encoded, encode_all, fuse
from erag_ray.readers.memory import Limits, Needs, largest, room_on
from erag_ray.readers.models import load_settings, load_tokenizer, load_weights
from erag_ray.readers.shapes import pass_token_bytes, t5_needs
from erag_ray.readers.t5_engine import DTYPES, KINDS, Engine, Stop
from erag_ray.readers.tokens import Ids, PieceTokenizer, as_prompt, check_room, cut_prompt
from erag_ray.schemas import InputError
from erag_ray.sources import find_model

INT8 = "int8"
ROUNDING = 2
"""To be raised whenever a change of how numbers become bytes may change an output."""
FID_TOKENS = 250
IPA_TOKENS = 2048
MOST = {"cpu": Limits(rows=128, tokens=1 << 40), "cuda": Limits(rows=1024, tokens=1 << 40)}
"""Of one batch: larger ones are hardly faster."""


class T5Reader(Reader):
    """What FiD and IPA share: tokenizer, weights, encoding of segments, greedy decoding over all of them."""

    revision: ClassVar[int] = 3
    dtypes: ClassVar[tuple[str, ...]] = (*Reader.dtypes, INT8)
    # states are looked at only, and the weights used less often the more rows there are
    max_padding_share: ClassVar[float] = 0.3

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__(config)
        self.source = find_model(config.model, key="reader.model", revision=config.model_revision)
        self.settings = load_settings(self.source, encoder_decoder=True)
        if config.dtype == INT8 and self.settings.model_type not in KINDS:
            raise InputError(
                [f"reader.dtype: {INT8} is for {', '.join(KINDS)}, not {self.settings.model_type}"]
            )
        self.tokenizer = load_tokenizer(self.source)
        self.pieces = PieceTokenizer(self.tokenizer)
        self.model: Any = None
        self.engine: Engine | None = None
        self._window: Encoded | None = None
        end = self.tokenizer.eos_token_id
        self.end: Ids = () if end is None else (end,)
        pieces = fid_pieces(SMALL.question, SMALL.passages[0])
        check_room(pieces, self.pieces.tokenise([pieces])[0], self.limit - len(self.end))

    def load(self) -> None:
        """Load the weights.

        Raises:
            JobError: the reader is to work in int8, which this machine does not.
        """
        is_int8 = self.config.dtype == INT8
        dtype = "float32" if is_int8 else self.config.dtype
        self.model = load_weights(transformers.AutoModelForSeq2SeqLM, self.source, dtype)
        if self.model.device.type == "cpu":
            # a position bias that is learned keeps torch from its fused kernel, and what it does instead is slower
            self.model.set_attn_implementation("eager")
        if self.settings.model_type in KINDS and self.model.dtype in DTYPES:
            self.engine = Engine(self.model, is_int8=is_int8)

    def fitting(self) -> Limits:
        return largest(self._room, self.needs(), MOST[self.model.device.type])

    @functools.cached_property
    def _room(self) -> int:
        return room_on(self.model.device, self.memory_share)

    @property
    def pass_tokens(self) -> int:
        """Most padded tokens in one pass of the encoder."""
        fitting = self._room // pass_token_bytes(self.settings, self.model.dtype, self.limit)
        most = max(1, min(fitting, self.limits.tokens))
        return most if self.engine is None else self.engine.pass_tokens(most)

    def needs(self) -> Needs:
        """What a batch takes."""
        by_library = self.engine is None
        return t5_needs(self.settings, self.model.dtype, self.max_new_tokens, keeps_keys=by_library)

    def identity(self) -> dict[str, object]:
        own = {"backend": "transformers", "dtype": self.config.dtype, "files": self.source.digests()}
        rounding = {"rounding": ROUNDING} if self.config.dtype == INT8 else {}
        return {**super().identity(), **own, **rounding, "max_prompt_tokens": self.limit}

    @property
    @abstractmethod
    def limit(self) -> int:
        """Most tokens in one segment."""

    def _cut(self, pieces: Sequence[Any], ids: Sequence[Ids], *, keep_question: bool) -> tuple[Ids, int, int]:
        room = self.limit - len(self.end)
        tokens, question, passages = cut_prompt(
            pieces, ids, limit=room, keep_question=keep_question, keep_end=self.config.family == "dialogue"
        )
        return (*tokens, *self.end), question, passages

    @property
    def window_tokens(self) -> int:
        """Most tokens in the distinct segments of a window: their states are kept while it is read."""
        most = super().window_tokens
        return (
            most if self.engine is None else min(most, int(self.engine.window_tokens() * self.memory_share))
        )

    def begin(self, prompts: Sequence[Prompt]) -> None:
        self._window = None
        if self.engine is not None:
            self._window = self._encoded(self.engine, prompts)

    def _encoded(self, engine: Engine, prompts: Sequence[Prompt]) -> Encoded:
        return encode_all(engine.encode, prompts, self.pass_tokens)

    @torch.inference_mode()
    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        states, is_state = self.fused(prompts)
        if self.engine is None:
            return self._generate_by_library(states, is_state)
        ids = self.engine.decode(
            states,
            is_state,
            start=self.first,
            ends=self.end,
            most=self.max_new_tokens,
            stop=self.stop(prompts),
        )
        return [self._output(row) for row in ids]

    def fused(self, prompts: Sequence[Prompt]) -> tuple[torch.Tensor, torch.Tensor]:
        """The states of each prompt's segments side by side, [rows, states, width], and where there are any."""
        if self.engine is None:
            return fuse(self.model, prompts, self.pass_tokens)
        window = self._window
        if window is None or not window.holds(prompts):
            window = self._encoded(self.engine, prompts)
        return window.fused(prompts)

    def stop(self, prompts: Sequence[Prompt]) -> Stop | None:
        """Whether no more of an output is wanted; the engine alone asks."""
        return None

    def _generate_by_library(self, states: torch.Tensor, is_state: torch.Tensor) -> list[Output]:
        ids = self.model.generate(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=is_state,
            generation_config=self.decoding(),
        )
        return [self._output(row) for row in ids[:, 1:].tolist()]

    @property
    def first(self) -> int:
        """The token that the decoder starts with."""
        start = getattr(self.settings, "decoder_start_token_id", None)
        return self.pad if start is None else start

    @property
    def pad(self) -> int:
        pad = self.tokenizer.pad_token_id
        return 0 if pad is None else pad

    def decoding(self) -> Any:
        """Greedy, whatever the model's own generation settings say."""
        return transformers.GenerationConfig(
            max_new_tokens=self.max_new_tokens,
            do_sample=False,
            num_beams=1,
            eos_token_id=list(self.end) or None,
            pad_token_id=self.pad,
            decoder_start_token_id=self.first,
        )

    def _output(self, ids: list[int]) -> Output:
        length = ids.index(self.end[0]) + 1 if self.end and self.end[0] in ids else len(ids)
        return Output(self.tokenizer.decode(ids[:length], skip_special_tokens=True).strip(), length)


class FidReader(T5Reader):
    """Fusion-in-Decoder. Does not see the order of its passages.

    A segment has at most ``max_prompt_tokens`` tokens (250): the passage with its title keeps at least half of
    them if it needs them, then the question is cut (its end is kept in a dialogue, else its start), then the passage.
    """

    order_matters: ClassVar[bool] = False

    def identity(self) -> dict[str, object]:
        # the only thing that a family changes here
        return {
            **super().identity(),
            "cut_question_keeps": "end" if self.config.family == "dialogue" else "start",
        }

    @property
    def limit(self) -> int:
        return self.config.max_prompt_tokens or FID_TOKENS

    def encode(self, requests: Sequence[Request]) -> list[Prompt]:
        lists = [[fid_pieces(r.question, passage) for passage in r.passages or (None,)] for r in requests]
        flat = [pieces for segments in lists for pieces in segments]
        cut = iter(
            self._cut(pieces, ids, keep_question=False)
            for pieces, ids in zip(flat, self.pieces.tokenise(flat), strict=True)
        )
        return [as_prompt([next(cut) for _ in segments]) for segments in lists]


class IpaReader(T5Reader):
    """In-prompt augmentation: one input of at most ``max_prompt_tokens`` tokens (2048).

    The question is never cut. The passages share the rest equally; what short ones leave goes to the long ones;
    each keeps its start.
    """

    @property
    def limit(self) -> int:
        return self.config.max_prompt_tokens or IPA_TOKENS

    def encode(self, requests: Sequence[Request]) -> list[Prompt]:
        prompts = [ipa_pieces(request.question, request.passages) for request in requests]
        return [
            as_prompt([self._cut(pieces, ids, keep_question=True)])
            for pieces, ids in zip(prompts, self.pieces.tokenise(prompts), strict=True)
        ]
