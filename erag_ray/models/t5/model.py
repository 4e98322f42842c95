"""Encoder-decoders (T5 and its kin): Fusion-in-Decoder and in-prompt augmentation.

FiD (Izacard & Grave, EACL 2021) encodes every (question, passage) alone and lets the decoder attend to all of
them; a list of one is plain T5. IPA puts the question and all passages into one input. Both share the decoder
below: a prompt is one or more segments, their encoded states stand side by side.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
import transformers
from transformers.modeling_outputs import BaseModelOutput

from erag_ray.config import ReaderConfig
from erag_ray.errors import InputError
from erag_ray.model_sources import find_model
from erag_ray.models.base import Resources
from erag_ray.models.local.early_stopping import EarlyStopping, Stop
from erag_ray.models.local.likelihood import Row, Scoring, batched, in_order, logprobs_of, rows_of
from erag_ray.models.local.memory import Limits, Needs, largest, room_on, to_device
from erag_ray.models.local.memory_estimate import pass_token_bytes, t5_needs
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
from erag_ray.models.local.weights import load_settings, load_tokenizer, load_weights
from erag_ray.models.local.word_cache import Ids
from erag_ray.models.t5.encoder_cache import Encoded, Fused, Passes, arrange, encode_all, fuse
from erag_ray.models.t5.engine import DTYPES, KINDS, Engine
from erag_ray.requests import Form, Passage, Piece, Request, pieces

INT8 = "int8"
ROUNDING = 2
"""To be raised whenever a change of how numbers become bytes may change an output."""
GELU_NEW = 1
"""To be raised whenever a change of how this activation is computed may change an output."""
MOST = {"cpu": Limits(rows=128, tokens=1 << 40), "cuda": Limits(rows=1024, tokens=1 << 40)}
"""Of one batch: larger ones are hardly faster."""


class Layout(NamedTuple):
    """How a list of passages becomes segments.

    Attributes:
        max_tokens: of one segment, where the job does not say.
        is_fused: a segment for each passage with its question, all of which the decoder sees at once (FiD); else one
            segment for all (IPA).
    """

    max_tokens: int
    is_fused: bool


LAYOUTS = {"fid": Layout(max_tokens=250, is_fused=True), "ipa": Layout(max_tokens=2048, is_fused=False)}


class T5Model(LocalModel):
    """An encoder-decoder.

    As ``fid`` a segment has at most ``max_prompt_tokens`` tokens (250): the passage with its title keeps at least
    half of them if it needs them, then the question is cut (its end is kept in a dialogue, else its start), then the
    passage. The order of passages does not matter.

    As ``ipa`` the one segment has at most ``max_prompt_tokens`` tokens (2048). The question is never cut. The passages
    share the rest equally; what short ones leave goes to the long ones; each keeps its start.
    """

    revision: ClassVar[int] = 4
    dtypes: ClassVar[tuple[str, ...]] = (*LocalModel.dtypes, INT8)
    # states are looked at only, and the weights used less often the more rows there are
    max_padding_share: ClassVar[float] = 0.3
    default_prompt: ClassVar[str] = "t5"

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__(config)
        self.layout = LAYOUTS[config.kind]
        self.sees_order = not self.layout.is_fused
        self.source = find_model(config.model, key="reader.model", revision=config.model_revision)
        self.settings = load_settings(self.source, encoder_decoder=True)
        if config.dtype == INT8 and self.settings.model_type not in KINDS:
            raise InputError(
                [f"reader.dtype: {INT8} is for {', '.join(KINDS)}, not {self.settings.model_type}"]
            )
        self.tokenizer = load_tokenizer(self.source)
        self.pieces = PieceTokenizer(self.tokenizer)
        check_vocabulary(self.pieces, self.settings.vocab_size, config.model)
        self.model: Any = None
        self.engine: Engine | None = None
        self.uses_engine = True
        self._window: Encoded | None = None
        self._stopping = functools.cache(functools.partial(EarlyStopping, self.tokenizer))
        end = self.tokenizer.eos_token_id
        self.end: Ids = () if end is None else (end,)
        check_ids(self.pieces, [(*self.end, self.first)], self.settings.vocab_size, config.model)

    def load(self) -> None:
        """Load the weights.

        Raises:
            JobError: the model is to work in int8, which this machine does not.
        """
        is_int8 = self.config.dtype == INT8
        dtype = "float32" if is_int8 else self.config.dtype
        self.model = load_weights(transformers.AutoModelForSeq2SeqLM, self.source, dtype)
        if self.model.device.type == "cpu":
            # a position bias that is learned keeps torch from its fused kernel, and what it does instead is slower
            self.model.set_attn_implementation("eager")
        if self.uses_engine and self.settings.model_type in KINDS and self.model.dtype in DTYPES:
            self.engine = Engine(self.model, is_int8=is_int8)

    def identity(self) -> dict[str, object]:
        own = {"backend": "transformers", "dtype": self.config.dtype, "files": self.source.digests()}
        # what concerns some models alone
        rounding = {"rounding": ROUNDING} if self.config.dtype == INT8 else {}
        is_engine = self.settings.model_type in KINDS and self.config.dtype != "float16"
        is_gelu = is_engine and self.settings.dense_act_fn == "gelu_new"
        gelu = {"gelu_new": GELU_NEW} if is_gelu else {}
        return {**super().identity(), **own, **rounding, **gelu, "probes": probes(self)}

    # --- requests in tokens ---

    def check(self, form: Form) -> None:
        if form.prompt.is_chat:
            text = f"{self.config.model} has no chat template; use a plain prompt (chat: false)"
            raise InputError([f"reader.prompt: {text}"])
        small = pieces(form.prompt, SMALL[0], (Passage(*SMALL[1]),))
        (ids,) = self.pieces.tokenise([small])
        check_ids(self.pieces, ids, self.settings.vocab_size, self.config.model)
        check_room(small, ids, self.limit(form) - len(self.end))

    def limit(self, form: Form) -> int:
        """Most tokens in one segment."""
        return form.max_prompt_tokens or self.layout.max_tokens

    def ends(self, form: Form) -> Collection[int]:
        return self.end

    def render(self, requests: Sequence[Request]) -> list[PromptTokens]:
        lists = [[pieces(r.form.prompt, r.question, own) for own in self._segments(r)] for r in requests]
        flat = [segment for segments in lists for segment in segments]
        tokens = iter(self.pieces.tokenise(flat))
        answers = answer_ids(self.pieces, requests)
        return [
            self._prompt(request, [(segment, next(tokens)) for segment in segments], own)
            for request, segments, own in zip(requests, lists, answers, strict=True)
        ]

    def _segments(self, request: Request) -> Sequence[Sequence[Any]]:
        """The passages of each segment."""
        if not self.layout.is_fused:
            return [request.passages]
        return [(passage,) for passage in request.passages] or [()]

    def _prompt(
        self, request: Request, segments: Sequence[tuple[list[Piece], list[Ids]]], answers: Any
    ) -> PromptTokens:
        form = request.form
        cut = [self._cut(form, own, ids) for own, ids in segments]
        tokens, questions, passages = zip(*cut, strict=True)
        return PromptTokens(
            form=form,
            segments=tokens,
            num_truncated_question_tokens=sum(questions),
            num_truncated_passage_tokens=sum(passages),
            answer_ids=answers,
            matches=self._stopping(form.early_stop).matches(request.answers) if form.early_stop else (),
        )

    def _cut(self, form: Form, own: Sequence[Piece], ids: Sequence[Ids]) -> tuple[Ids, int, int]:
        tokens, question, passages = cut_prompt(
            own,
            ids,
            limit=self.limit(form) - len(self.end),
            keep_question=not self.layout.is_fused,
            keep_end=form.keep_question_end,
        )
        return (*tokens, *self.end), question, passages

    def resources(self) -> Resources:
        return Resources(weight_bytes=self.source.weight_bytes())

    # --- memory ---

    @property
    def has_device(self) -> bool:
        return bool(self.model.device.type != "cpu")

    def fitting(self, form: Form) -> Limits:
        return largest(self._room, self.needs(form), MOST[self.model.device.type])

    @functools.cached_property
    def _room(self) -> int:
        return room_on(self.model.device, self.memory_share)

    def needs(self, form: Form) -> Needs:
        """What a batch takes."""
        most = form.max_new_tokens
        if form.method == "loglikelihood":
            return t5_needs(self.settings, self.model.dtype, most, at_once=most + 1, keeps_keys=True)
        return t5_needs(self.settings, self.model.dtype, most, keeps_keys=self.engine is None)

    def pass_tokens(self, forms: Collection[Form]) -> int:
        """Most padded tokens in one pass of the encoder, over segments of these forms."""
        longest = max(map(self.limit, forms))
        fitting = self._room // pass_token_bytes(self.settings, self.model.dtype, longest)
        most = max(1, min(fitting, *(self.limits(form).tokens for form in forms)))
        return most if self.engine is None else self.engine.pass_tokens(most)

    @property
    def window_tokens(self) -> int:
        """Most tokens in the distinct segments of a window: their states are kept while it is read."""
        most = super().window_tokens
        return (
            most if self.engine is None else min(most, int(self.engine.window_tokens() * self.memory_share))
        )

    # --- states ---

    def arrange(self, prompts: Sequence[PromptTokens]) -> Passes | None:
        engine = self.engine
        if engine is None:
            return None
        return arrange(prompts, self.pass_tokens(_forms(prompts)), engine.multiple)

    def begin(self, arranged: Passes | None) -> None:
        self._window = None
        if self.engine is not None and arranged is not None:
            self._window = encode_all(self.engine.encode, arranged, self.engine.multiple)

    def fused(self, prompts: Sequence[PromptTokens]) -> Fused:
        """The states of each prompt's segments side by side."""
        if self.engine is None:
            return fuse(self.model, prompts, self.pass_tokens(_forms(prompts)))
        if self._window is None or not self._window.holds(prompts):
            # there was no memory for the states of all
            passes = arrange(prompts, self.pass_tokens(_forms(prompts)), self.engine.multiple)
            return encode_all(self.engine.encode, passes, self.engine.multiple).fused(prompts)
        return self._window.fused(prompts)

    # --- outputs ---

    @torch.inference_mode()
    def generate(self, prompts: Sequence[PromptTokens]) -> list[Output]:
        fused, form = self.fused(prompts), prompts[0].form
        if self.engine is None:
            return self._generate_by_library(form, fused)
        ids = self.engine.decode(
            fused, start=self.first, ends=self.end, most=form.max_new_tokens, stop=self.stop(prompts)
        )
        return [self.output(row) for row in ids]

    def stop(self, prompts: Sequence[PromptTokens]) -> Stop | None:
        """Whether no more of an output is wanted; the engine alone asks."""
        name = prompts[0].form.early_stop
        return self._stopping(name).stop([prompt.matches for prompt in prompts]) if name else None

    def _generate_by_library(self, form: Form, fused: Fused) -> list[Output]:
        ids = self.model.generate(
            encoder_outputs=BaseModelOutput(last_hidden_state=fused.states),
            attention_mask=fused.is_state.long(),
            generation_config=self.decoding(form.max_new_tokens),
        )
        return [self.output(row) for row in ids[:, 1:].tolist()]

    @property
    def first(self) -> int:
        """The token that the decoder starts with."""
        start = getattr(self.settings, "decoder_start_token_id", None)
        return self.pad if start is None else start

    @property
    def pad(self) -> int:
        pad = self.tokenizer.pad_token_id
        # a token that was added without a row in the embedding cannot be fed
        return 0 if pad is None or pad >= self.settings.vocab_size else pad

    def decoding(self, max_new_tokens: int) -> Any:
        """Greedy, whatever the model's own generation settings say."""
        return transformers.GenerationConfig(
            max_new_tokens=max_new_tokens,
            do_sample=False,
            num_beams=1,
            eos_token_id=list(self.end) or None,
            pad_token_id=self.pad,
            decoder_start_token_id=self.first,
        )

    def output(self, ids: list[int]) -> Output:
        """What tokens say, up to the end."""
        length = ids.index(self.end[0]) + 1 if self.end and self.end[0] in ids else len(ids)
        return Output(self.tokenizer.decode(ids[:length], skip_special_tokens=True).strip(), length)

    @torch.inference_mode()
    def loglikelihood(self, prompts: Sequence[PromptTokens]) -> list[list[float]]:
        form, fused = prompts[0].form, self.fused(prompts)
        mask = fused.is_state.long()
        scoring = Scoring(self.end, functools.partial(self.scores_end, form))
        found: dict[tuple[int, Ids], torch.Tensor] = {}
        for rows in batched(rows_of(prompts), prompts, self.limits(form)):
            logits = self._logits(rows, fused.states, mask)
            found |= logprobs_of(logits, [0] * len(rows), rows, prompts, scoring)
        return in_order(found, prompts)

    def _logits(self, rows: Sequence[Row], states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        places = to_device(torch.tensor([row.place for row in rows]), states.device)
        inputs = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor([self.first, *row.fed]) for row in rows], batch_first=True
        )
        logits: torch.Tensor = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states[places]),
            attention_mask=mask[places],
            decoder_input_ids=to_device(inputs, states.device),
            use_cache=False,
        ).logits
        return logits


def _forms(prompts: Sequence[PromptTokens]) -> Collection[Form]:
    return {prompt.form for prompt in prompts}
