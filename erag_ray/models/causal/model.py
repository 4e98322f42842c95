"""Decoder-only models: any causal LM, with a plain prompt or its chat template."""

from __future__ import annotations

import functools
import inspect
import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
import transformers

from erag_ray.config import ReaderConfig
from erag_ray.errors import InputError
from erag_ray.model_sources import find_model
from erag_ray.models.causal.kv_cache import KeyValueCaches
from erag_ray.models.local.early_stopping import EarlyStopping, Stop
from erag_ray.models.local.eviction import CHECK_EVERY, generate_leaving
from erag_ray.models.local.likelihood import Row, Scoring, batched, in_order, logprobs_of, rows_of
from erag_ray.models.local.memory import Limits, Needs, largest, room_on, to_device
from erag_ray.models.local.memory_estimate import causal_needs
from erag_ray.models.local.model import SMALL, LocalModel, Output, PromptTokens
from erag_ray.models.local.tokens import (
    PieceTokenizer,
    answer_ids,
    check_ids,
    check_room,
    check_vocabulary,
    cut_prompt,
    probes,
)
from erag_ray.models.local.weights import load_end_tokens, load_settings, load_tokenizer, load_weights
from erag_ray.models.local.word_cache import Ids
from erag_ray.models.t5.engine import up_to_stop
from erag_ray.requests import Form, Passage, Piece, Prompt, Request, as_messages, pieces

CAUSAL_TOKENS = 4096
MOST = {"cpu": Limits(rows=32, tokens=16384), "cuda": Limits(rows=512, tokens=1 << 40)}
"""Of one batch: larger ones are hardly faster."""
SLOT = "\u2402user\u2403"
# a template that prints today's date would make the same question two requests
FIXED_DATE = "26 Jul 2024"
TODAY = re.compile(r"""strftime_now\(\s*('[^']*'|"[^"]*"|[^)]*)\s*\)""")


class CausalModel(LocalModel):
    """Greedy decoding after a padded prompt; the template at a prompt's start is read once for all of them.

    A prompt has at most ``max_prompt_tokens`` tokens. The passages together keep at least half of what instruction
    and examples leave, in equal shares; the question keeps its start (in a dialogue its end).

    Attributes:
        context: most tokens of a prompt and its output together.
    """

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__(config)
        self.source = find_model(config.model, key="reader.model", revision=config.model_revision)
        self.settings = load_settings(self.source, encoder_decoder=False).get_text_config()
        self.tokenizer = load_tokenizer(self.source)
        self.pieces = PieceTokenizer(self.tokenizer)
        check_vocabulary(self.pieces, self.settings.vocab_size, config.model)
        self.context: int = getattr(self.settings, "max_position_embeddings", None) or 1 << 30
        self.model: Any = None
        self.caches: KeyValueCaches | None = None
        self._stopping = functools.cache(functools.partial(EarlyStopping, self.tokenizer))
        self._frames: dict[tuple[Prompt, bool], tuple[Piece, Piece]] = {}
        self._end_tokens: dict[bool, frozenset[int]] = {}

    def load(self) -> None:
        self.model = load_weights(transformers.AutoModelForCausalLM, self.source, self.config.dtype)
        self.caches = KeyValueCaches(self.model)

    def identity(self) -> dict[str, object]:
        return {
            **super().identity(),
            "backend": "transformers",
            "dtype": self.config.dtype,
            "files": self.source.digests(),
            "probes": probes(self),
        }

    # --- memory ---

    @property
    def has_device(self) -> bool:
        return bool(self.model.device.type != "cpu")

    def fitting(self, form: Form) -> Limits:
        device = self.model.device
        return largest(room_on(device, self.memory_share), self.needs(form), MOST[device.type])

    def needs(self, form: Form) -> Needs:
        """What a batch takes."""
        most = form.max_new_tokens
        at_once = most + 1 if form.method == "loglikelihood" else 1
        return causal_needs(self.model, most, self.limit(form), at_once=at_once)

    # --- requests in tokens ---

    def check(self, form: Form) -> None:
        if form.prompt.is_chat and not self.tokenizer.chat_template:
            text = f"{self.config.model} has no chat template; use a plain prompt (plain, or chat: false)"
            raise InputError([f"reader.prompt: {text}"])
        small = self._pieces(Request(form, SMALL[0], (Passage(*SMALL[1]),)))
        (ids,) = self.pieces.tokenise([small])
        check_ids(self.pieces, ids, self.settings.vocab_size, self.config.model)
        check_room(small, ids, self.limit(form))

    def limit(self, form: Form) -> int:
        """Most prompt tokens: as the form has it, and never more than the context leaves."""
        return min(form.max_prompt_tokens or CAUSAL_TOKENS, self.context - form.max_new_tokens)

    def render(self, requests: Sequence[Request]) -> list[PromptTokens]:
        prompts = [self._pieces(request) for request in requests]
        rows = zip(
            requests,
            prompts,
            self.pieces.tokenise(prompts),
            answer_ids(self.pieces, requests),
            strict=True,
        )
        return [self._prompt(*row) for row in rows]

    def _prompt(
        self, request: Request, own: Sequence[Piece], ids: Sequence[Ids], answers: tuple[Ids, ...] | None
    ) -> PromptTokens:
        form = request.form
        tokens, question, passages = cut_prompt(
            own, ids, limit=self.limit(form), keep_question=False, keep_end=form.keep_question_end
        )
        return PromptTokens(
            form=form,
            segments=(tokens,),
            num_shared=_num_shared(own, ids),
            num_truncated_question_tokens=question,
            num_truncated_passage_tokens=passages,
            answer_ids=answers,
            matches=self._stopping(form.early_stop).matches(request.answers) if form.early_stop else (),
        )

    def _pieces(self, request: Request) -> list[Piece]:
        prompt = request.form.prompt
        own = pieces(prompt, request.question, request.passages)
        if not prompt.is_chat:
            start = [Piece("template", self.tokenizer.bos_token)] if self._starts_with_bos else []
            return [*start, *own]
        before, after = self._chat_frame(prompt, has_passages=bool(request.passages))
        first, *rest = own
        # what stands before the question or a passage is the frame's and the prompt's own text, as one
        if first.kind == "template":
            return [Piece("template", before.text + first.text), *rest, after]
        return [before, *own, after]

    @functools.cached_property
    def _starts_with_bos(self) -> bool:
        ids = self.tokenizer("a")["input_ids"]
        return self.tokenizer.bos_token_id is not None and ids[:1] == [self.tokenizer.bos_token_id]

    def _chat_frame(self, prompt: Prompt, *, has_passages: bool) -> tuple[Piece, Piece]:
        """What the chat template puts before and after the user's message."""
        key = prompt, has_passages
        if key not in self._frames:
            before, after = self._frame(as_messages(prompt, SLOT, has_passages=has_passages))
            self._frames[key] = Piece("template", before), Piece("template", after)
        return self._frames[key]

    def _frame(self, messages: Sequence[Mapping[str, str]]) -> tuple[str, str]:
        try:
            text = self.tokenizer.apply_chat_template(
                messages,
                tokenize=False,
                add_generation_prompt=True,
                chat_template=TODAY.sub(repr(FIXED_DATE), self.tokenizer.get_chat_template()),
                date_string=FIXED_DATE,
                enable_thinking=False,  # a template that knows it would else start with thoughts
            )
        except Exception as error:
            # a template is code of the model's, which may refuse a system message, or anything else
            text = f"the chat template of {self.config.model} cannot be filled: {error}"
            raise InputError([f"reader.prompt: {text}"]) from error
        before, slot, after = text.partition(SLOT)
        if not slot:
            raise InputError(
                [f"reader.prompt: the chat template of {self.config.model} drops the user's message"]
            )
        return before, after

    # --- outputs ---

    @torch.inference_mode()
    def generate(self, prompts: Sequence[PromptTokens]) -> list[Output]:
        outputs: dict[int, Output] = {}
        for prefix, rows in by_prefix(prompts).items():
            made = self._generate(prefix, [prompts[row] for row in rows])
            outputs |= zip(rows, made, strict=True)
        return [outputs[row] for row in range(len(prompts))]

    def _generate(self, prefix: Ids, prompts: Sequence[PromptTokens]) -> list[Output]:
        form, stop = prompts[0].form, self.stop(prompts)
        rests = [prompt.segments[0][len(prefix) :] for prompt in prompts]
        ids, mask, cache, _ = self.padded(prefix, rests, form.max_new_tokens)
        decoding = self.decoding(form)
        # a cache of ours has plain keys and values; what stops rows knows them by their first places
        if cache is not None and not form.early_stop and decoding.max_new_tokens > CHECK_EVERY:
            rows = generate_leaving(self.model, ids, mask, cache, decoding, self.ends(form))
            return [self.output(form, row) for row in rows]
        made = self.model.generate(
            input_ids=ids,
            attention_mask=mask,
            past_key_values=cache,
            generation_config=decoding,
            stopping_criteria=stop and _criteria(stop, ids.shape[1]),
        )
        written = enumerate(made[:, ids.shape[1] :].tolist())
        return [
            self.output(form, row if stop is None else up_to_stop(place, row, stop)) for place, row in written
        ]

    def stop(self, prompts: Sequence[PromptTokens]) -> Stop | None:
        """Whether no more of an output is wanted. A batch goes on until its last row has ended."""
        name = prompts[0].form.early_stop
        return self._stopping(name).stop([prompt.matches for prompt in prompts]) if name else None

    def padded(
        self, prefix: Ids, rests: Sequence[Ids], new_tokens: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor, Any | None, int]:
        """Prompts with one prefix: their tokens, which of them count, a cache, and how many tokens that holds.

        The prefix stands first, then padding, then what each prompt adds. Padding is first where no cache holds it.

        Args:
            prefix: the start that the prompts share.
            rests: what each prompt adds.
            new_tokens: most in one output.
        """
        assert self.caches is not None, "load() comes first"
        capacity = len(prefix) + max(map(len, rests)) + new_tokens
        cache, num_known = self.caches.make(prefix, len(rests), capacity)
        if not num_known:
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
        device = self.model.device
        return to_device(ids, device), to_device(mask.long(), device), cache, num_known

    @property
    def _pad(self) -> int:
        known = [self.tokenizer.pad_token_id, *sorted(self._ends(breaks=False))]
        # a token that was added without a row in the embedding cannot be fed
        return next((id_ for id_ in known if id_ is not None and id_ < self.settings.vocab_size), 0)

    def ends(self, form: Form) -> Collection[int]:
        return self._ends(breaks=form.stop_at_newline)

    def _ends(self, *, breaks: bool) -> frozenset[int]:
        """Tokens that end an output: the model's own, and every token with a line break in it if asked."""
        if breaks not in self._end_tokens:
            own = {self.tokenizer.eos_token_id} | load_end_tokens(self.source, self.settings)
            every = self._line_breaks() if breaks else set()
            self._end_tokens[breaks] = frozenset((own | every) - {None})
        return self._end_tokens[breaks]

    def _line_breaks(self) -> set[int]:
        ids = range(len(self.tokenizer))
        return {
            id_
            for id_, text in zip(ids, self.tokenizer.batch_decode([[i] for i in ids]), strict=True)
            if "\n" in text
        }

    def decoding(self, form: Form) -> Any:
        """Greedy, whatever the model's own generation settings say."""
        return transformers.GenerationConfig(
            max_new_tokens=form.max_new_tokens,
            do_sample=False,
            num_beams=1,
            eos_token_id=sorted(self.ends(form)) or None,
            pad_token_id=self._pad,
        )

    def output(self, form: Form, ids: list[int]) -> Output:
        """What tokens say, up to the end."""
        ends = self.ends(form)
        length = next((i + 1 for i, id_ in enumerate(ids) if id_ in ends), len(ids))
        text = self.tokenizer.decode(ids[:length], skip_special_tokens=True)
        return Output((text.split("\n", 1)[0] if form.stop_at_newline else text).strip(), length)

    @torch.inference_mode()
    def loglikelihood(self, prompts: Sequence[PromptTokens]) -> list[list[float]]:
        form, found = prompts[0].form, dict[tuple[int, Ids], torch.Tensor]()
        scoring, rows = Scoring(self.ends(form), functools.partial(self.scores_end, form)), rows_of(prompts)
        for prefix, places in by_prefix(prompts).items():
            here = set(places)
            own = [row for row in rows if row.place in here]
            for part in batched(own, prompts, self.limits(form)):
                logits = self._logits(prefix, prompts, part)
                starts = [logits.shape[1] - len(row.fed) - 1 for row in part]
                found |= logprobs_of(logits, starts, part, prompts, scoring)
        return in_order(found, prompts)

    def _logits(self, prefix: Ids, prompts: Sequence[PromptTokens], rows: Sequence[Row]) -> torch.Tensor:
        rests = [(*prompts[row.place].segments[0][len(prefix) :], *row.fed) for row in rows]
        ids, mask, cache, num_known = self.padded(prefix, rests)
        wanted = {
            "position_ids": (mask.cumsum(dim=1) - 1).clamp(min=0)[:, num_known:],
            "logits_to_keep": max(len(row.fed) for row in rows) + 1,
        }
        taken = inspect.signature(self.model.forward).parameters
        logits: torch.Tensor = self.model(
            input_ids=ids[:, num_known:],
            attention_mask=mask,
            past_key_values=cache,
            **{name: value for name, value in wanted.items() if name in taken},
        ).logits
        return logits


def _criteria(stop: Stop, start: int) -> Any:
    """What ends an output besides its end, as the library's ``generate`` has it; prompts end at ``start``."""

    def has_ended(ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        ended = [stop(place, row) for place, row in enumerate(ids[:, start:].tolist())]
        return torch.tensor(ended, device=ids.device)

    return transformers.StoppingCriteriaList([has_ended])


def by_prefix(prompts: Sequence[PromptTokens]) -> dict[Ids, list[int]]:
    """The places of the prompts that start with the same template."""
    places: dict[Ids, list[int]] = {}
    for place, prompt in enumerate(prompts):
        places.setdefault(prompt.segments[0][: prompt.num_shared], []).append(place)
    return places


def _num_shared(own: Sequence[Piece], ids: Sequence[Ids]) -> int:
    """Tokens of the template that a prompt starts with."""
    pairs = zip(own, ids, strict=True)
    return sum(
        len(piece_ids) for _, piece_ids in itertools.takewhile(lambda pair: pair[0].kind == "template", pairs)
    )
