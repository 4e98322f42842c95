"""Decoder-only readers: any causal LM, with a plain few-shot prompt or its chat template."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Sequence
from typing import Any

import torch
import transformers

from erag_ray.config import ReaderConfig
from erag_ray.prompts import FAMILIES, VERDICTS, Family, Piece, chat_pieces, plain_pieces, without_titles
from erag_ray.readers.base import SMALL, Output, Prompt, Reader, Request
from erag_ray.readers.leaving import CHECK_EVERY, generate_leaving
from erag_ray.readers.memory import Limits, Needs, largest, room_on
from erag_ray.readers.models import load_end_tokens, load_settings, load_tokenizer, load_weights
from erag_ray.readers.prefix import SharedPrefix
from erag_ray.readers.shapes import causal_needs
from erag_ray.readers.tokens import Ids, PieceTokenizer, as_prompt, check_room, cut_prompt
from erag_ray.schemas import InputError
from erag_ray.sources import find_model

CAUSAL_TOKENS = 4096
MOST = {"cpu": Limits(rows=32, tokens=16384), "cuda": Limits(rows=512, tokens=1 << 40)}
"""Of one batch: larger ones are hardly faster."""
SLOT = "\u2402user\u2403"
# a template that prints today's date would make the same question two readings
FIXED_DATE = "26 Jul 2024"
TODAY = re.compile(r"""strftime_now\(\s*('[^']*'|"[^"]*"|[^)]*)\s*\)""")


class CausalReader(Reader):
    """Greedy decoding after a padded prompt; the template at a prompt's start is read once for all of them.

    A prompt has at most ``max_prompt_tokens`` tokens. The passages together keep at least half of what instruction
    and examples leave, in equal shares; the question keeps its start (in a dialogue its end).
    """

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__(config)
        family = self.family_of(config)
        self.family = family if config.titles else without_titles(family)
        self.source = find_model(config.model, key="reader.model", revision=config.model_revision)
        self.settings = load_settings(self.source, encoder_decoder=False).get_text_config()
        self.tokenizer = load_tokenizer(self.source)
        self.pieces = PieceTokenizer(self.tokenizer)
        self.model: Any = None
        self.prefix: SharedPrefix | None = None
        if config.prompt == "chat" and not self.tokenizer.chat_template:
            raise InputError([f"reader.prompt: {config.model} has no chat template; use prompt: plain"])
        pieces = self._pieces(SMALL)
        check_room(pieces, self.pieces.tokenise([pieces])[0], self.limit)

    @classmethod
    def family_of(cls, config: ReaderConfig) -> Family:
        """What it is told to do."""
        return FAMILIES[config.family or "question"]

    def load(self) -> None:
        self.model = load_weights(transformers.AutoModelForCausalLM, self.source, self.config.dtype)
        self.prefix = SharedPrefix(self.model)

    def fitting(self) -> Limits:
        device = self.model.device
        return largest(room_on(device, self.memory_share), self.needs(), MOST[device.type])

    def needs(self) -> Needs:
        """What a batch takes."""
        return causal_needs(self.model, self.max_new_tokens, self.limit)

    def identity(self) -> dict[str, object]:
        return {
            **super().identity(),
            "backend": "transformers",
            "dtype": self.config.dtype,
            "files": self.source.digests(),
            "max_prompt_tokens": self.limit,
            "prompt": self.config.prompt,
            "family": self.config.family,
            "stop_at_newline": self.config.stop_at_newline,
        }

    @property
    def limit(self) -> int:
        """Most prompt tokens: as configured, and never more than the context leaves."""
        context = getattr(self.settings, "max_position_embeddings", None) or 1 << 30
        return min(self.config.max_prompt_tokens or CAUSAL_TOKENS, context - self.max_new_tokens)

    @property
    def example_answers(self) -> tuple[str, ...]:
        # a verdict that an example shows is a right answer to other claims
        if self.config.prompt == "chat" or self.config.family in VERDICTS:
            return ()
        return tuple(example.answer for example in self.family.examples[: self.config.num_examples])

    def encode(self, requests: Sequence[Request]) -> list[Prompt]:
        prompts = [self._pieces(request) for request in requests]
        cut = functools.partial(
            cut_prompt, limit=self.limit, keep_question=False, keep_end=self.config.family == "dialogue"
        )
        tokens = self.pieces.tokenise(prompts)
        return [
            dataclasses.replace(as_prompt([cut(pieces, ids)]), num_shared=_num_shared(pieces, ids))
            for pieces, ids in zip(prompts, tokens, strict=True)
        ]

    def _pieces(self, request: Request) -> list[Piece]:
        if self.config.prompt == "chat":
            before, after = self._chat_frame
            first, *rest = chat_pieces(self.family, request.question, request.passages)
            return [Piece("template", before.text + first.text), *rest, after]
        start = [Piece("template", self.tokenizer.bos_token)] if self._starts_with_bos else []
        return [
            *start,
            *plain_pieces(self.family, request.question, request.passages, self.config.num_examples),
        ]

    @functools.cached_property
    def _starts_with_bos(self) -> bool:
        ids = self.tokenizer("a")["input_ids"]
        return self.tokenizer.bos_token_id is not None and ids[:1] == [self.tokenizer.bos_token_id]

    @functools.cached_property
    def _chat_frame(self) -> tuple[Piece, Piece]:
        """What the chat template puts before and after the user's message."""
        text = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": SLOT}],
            tokenize=False,
            add_generation_prompt=True,
            chat_template=TODAY.sub(repr(FIXED_DATE), self.tokenizer.get_chat_template()),
            date_string=FIXED_DATE,
            enable_thinking=False,  # a template that knows it would else start with thoughts
        )
        before, slot, after = text.partition(SLOT)
        if not slot:
            raise InputError(
                [f"reader.prompt: the chat template of {self.config.model} drops the user's message"]
            )
        return Piece("template", before), Piece("template", after)

    @torch.inference_mode()
    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        outputs: dict[int, Output] = {}
        for prefix, rows in by_prefix(prompts).items():
            made = self._generate(prefix, [prompts[row] for row in rows])
            outputs |= zip(rows, made, strict=True)
        return [outputs[row] for row in range(len(prompts))]

    def _generate(self, prefix: Ids, prompts: Sequence[Prompt]) -> list[Output]:
        ids, mask, cache = self.padded(prefix, [prompt.segments[0][len(prefix) :] for prompt in prompts])
        decoding, stopping = self.decoding(), self.stopping(prompts, ids.shape[1])
        # a cache of the prefix is one of plain keys and values; what stops rows knows them by their first places
        if cache is not None and stopping is None and decoding.max_new_tokens > CHECK_EVERY:
            rows = generate_leaving(self.model, ids, mask, cache, decoding, self._ends)
            return [self._output(row) for row in rows]
        made = self.model.generate(
            input_ids=ids,
            attention_mask=mask,
            past_key_values=cache,
            generation_config=decoding,
            stopping_criteria=stopping,
        )
        return self.written(made, ids.shape[1], prompts)

    def padded(self, prefix: Ids, rests: Sequence[Ids]) -> tuple[torch.Tensor, torch.Tensor, Any | None]:
        """Prompts with one prefix: their tokens, which of them count, and the cache that holds the prefix.

        The prefix stands first, then padding, then what each prompt adds. Without a cache padding comes first.
        """
        assert self.prefix is not None, "load() comes first"
        cache = self.prefix.cache(prefix, len(rests))
        if cache is None:
            # padding stays at the start: inside a prompt it would shift what a sliding window or a state sees
            prefix, rests = (), [(*prefix, *rest) for rest in rests]
        rows = [torch.tensor(rest) for rest in rests]
        padded = torch.nn.utils.rnn.pad_sequence(
            rows, batch_first=True, padding_value=self._pad, padding_side="left"
        )
        lengths = torch.tensor([len(row) for row in rows])
        mask = torch.arange(padded.shape[1])[None, :] >= (padded.shape[1] - lengths)[:, None]
        ids = torch.cat([torch.tensor(prefix, dtype=torch.long).expand(len(rows), -1), padded], dim=1)
        mask = torch.cat([torch.ones(len(rows), len(prefix), dtype=torch.bool), mask], dim=1)
        return ids.to(self.model.device), mask.long().to(self.model.device), cache

    def stopping(self, prompts: Sequence[Prompt], start: int) -> Any:
        """What ends an output besides its end, as the model's ``generate`` has it; prompts end at ``start``."""
        return None

    def written(self, made: Any, start: int, prompts: Sequence[Prompt]) -> list[Output]:
        """Outputs of what the model's ``generate`` gives; prompts end at ``start``."""
        return [self._output(row) for row in made[:, start:].tolist()]

    @property
    def _pad(self) -> int:
        pad = self.tokenizer.pad_token_id
        return pad if pad is not None else min(self._ends, default=0)

    @functools.cached_property
    def _ends(self) -> frozenset[int]:
        """Tokens that end an output: the model's own, and every token with a line break in it if asked."""
        own = {self.tokenizer.eos_token_id} | load_end_tokens(self.source, self.settings)
        breaks = self._line_breaks() if self.config.stop_at_newline else set()
        return frozenset((own | breaks) - {None})

    def _line_breaks(self) -> set[int]:
        ids = range(len(self.tokenizer))
        return {
            id_
            for id_, text in zip(ids, self.tokenizer.batch_decode([[i] for i in ids]), strict=True)
            if "\n" in text
        }

    def decoding(self) -> Any:
        """Greedy, whatever the model's own generation settings say."""
        return transformers.GenerationConfig(
            max_new_tokens=self.max_new_tokens,
            do_sample=False,
            num_beams=1,
            eos_token_id=sorted(self._ends) or None,
            pad_token_id=self._pad,
        )

    def _output(self, ids: list[int]) -> Output:
        length = next((i + 1 for i, id_ in enumerate(ids) if id_ in self._ends), len(ids))
        text = self.tokenizer.decode(ids[:length], skip_special_tokens=True)
        return Output((text.split("\n", 1)[0] if self.config.stop_at_newline else text).strip(), length)


def by_prefix(prompts: Sequence[Prompt]) -> dict[Ids, list[int]]:
    """The places of the prompts that start with the same template."""
    places: dict[Ids, list[int]] = {}
    for place, prompt in enumerate(prompts):
        places.setdefault(prompt.segments[0][: prompt.num_shared], []).append(place)
    return places


def _num_shared(pieces: Sequence[Piece], ids: Sequence[Ids]) -> int:
    """Tokens of the template that a prompt starts with."""
    pairs = zip(pieces, ids, strict=True)
    return sum(
        len(piece_ids) for _, piece_ids in itertools.takewhile(lambda pair: pair[0].kind == "template", pairs)
    )
