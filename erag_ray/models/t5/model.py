"""Encoder-decoders (T5, mT5 and others): Fusion-in-Decoder and in-prompt augmentation.

FiD (Izacard & Grave, EACL 2021) encodes every (question, passage) pair separately, and the decoder attends to all of
them; a list of one passage is plain T5. IPA has the question and all passages in one input. Both share the decoder: a
prompt is one or more segments, whose encoder states are concatenated.
"""

import functools
import itertools
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

import torch
import transformers
from transformers.modeling_outputs import BaseModelOutput

from erag_ray.config.reader import ReaderConfig
from erag_ray.models.base import Resources
from erag_ray.models.local import memory
from erag_ray.models.local.likelihood import Row, batched, by_prompt, logprobs_of, rows_of
from erag_ray.models.local.model import LocalModel, Output, PromptTokens
from erag_ray.models.local.pretrained import Pretrained
from erag_ray.models.local.tokens import Segment, answer_ids, cut_prompt, up_to_end
from erag_ray.models.local.weights import load_weights
from erag_ray.models.local.word_cache import Ids
from erag_ray.models.t5 import encoder_cache
from erag_ray.models.t5.engine import DTYPES, KINDS, Engine
from erag_ray.prompts.prompt import Piece, pieces
from erag_ray.prompts.request import Form, Passage, Request
from erag_ray.support.errors import InputError

INT8 = "int8"
QUANTIZE_REVISION = 2
"""Increase it with every change of the quantization that may change an output."""
GELU_NEW_REVISION = 1
"""Increase it with every change of this activation that may change an output."""
MOST = {"cpu": memory.Limits(rows=128, tokens=1 << 40), "cuda": memory.Limits(rows=1024, tokens=1 << 40)}
"""The largest batches by device: larger ones are hardly faster."""
MAX_TOKENS = {"fid": 250, "ipa": 2048}
"""Default limit of a segment."""


class T5Model(LocalModel):
    """An encoder-decoder.

    As ``fid`` a segment has at most ``max_prompt_tokens`` tokens (250). At least half of them are reserved for the
    passage with its title; the question is truncated first (it keeps its end in a dialogue, else its start), then the
    passage. The order of passages does not matter.

    As ``ipa`` the segment has at most ``max_prompt_tokens`` tokens (2048). The question is never truncated. The
    passages share the rest equally, tokens that short ones do not need go to the long ones, and each keeps its start.
    """

    revision: ClassVar[int] = 4
    dtypes: ClassVar[tuple[str, ...]] = (*LocalModel.dtypes, INT8)
    # padding costs only attention over encoder states, while larger batches use the weights more efficiently
    max_padding_share: ClassVar[float] = 0.3
    default_prompt: ClassVar[str] = "t5"

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__(config)
        # a segment for each passage with the question (FiD), or one in all
        self.sees_order = config.kind == "ipa"
        self.pretrained = Pretrained(config, encoder_decoder=True)
        self.source, self.settings = self.pretrained.source, self.pretrained.settings
        self.tokenizer, self.pieces = self.pretrained.tokenizer, self.pretrained.pieces
        if config.dtype == INT8 and self.settings.model_type not in KINDS:
            raise InputError(
                [f"reader.dtype: {INT8} is for {', '.join(KINDS)}, not {self.settings.model_type}"]
            )
        self.engine: Engine | None = None
        self.uses_engine = True
        self._window: encoder_cache.EncoderCache | None = None
        end = self.tokenizer.eos_token_id
        self.end: Ids = () if end is None else (end,)
        self.pretrained.check_ids([*self.end, self.first])

    def load(self) -> None:
        """Load the weights; raise JobError if the machine does not support int8."""
        is_int8 = self.config.dtype == INT8
        dtype = "float32" if is_int8 else self.config.dtype
        self.model = load_weights(transformers.AutoModelForSeq2SeqLM, self.source, dtype)
        if self.model.device.type == "cpu":
            # with learned position biases torch cannot use its fused kernel, and its fallback is slower than eager
            self.model.set_attn_implementation("eager")
        if self.uses_engine and self.settings.model_type in KINDS and self.model.dtype in DTYPES:
            self.engine = Engine(self.model, is_int8=is_int8)

    def fingerprint_fields(self) -> dict[str, object]:
        # only for the models that are affected
        quantize = {"rounding": QUANTIZE_REVISION} if self.config.dtype == INT8 else {}
        has_engine = self.settings.model_type in KINDS and self.config.dtype != "float16"
        has_gelu = has_engine and self.settings.dense_act_fn == "gelu_new"
        gelu = {"gelu_new": GELU_NEW_REVISION} if has_gelu else {}
        return {
            **super().fingerprint_fields(),
            **self.pretrained.fingerprint_fields(self),
            **quantize,
            **gelu,
        }

    # --- requests in tokens ---

    def check(self, form: Form) -> None:
        self.pretrained.check(form, self._pieces, self.limit(form) - len(self.end))

    def _pieces(self, request: Request) -> list[Piece]:
        return pieces(request.form.prompt, request.question, request.passages)

    def limit(self, form: Form) -> int:
        """Return the largest number of tokens in a segment."""
        return form.max_prompt_tokens or MAX_TOKENS[self.config.kind]

    def ends(self, form: Form) -> Collection[int]:
        return self.end

    def render(self, requests: Sequence[Request]) -> list[PromptTokens]:
        forms = list(dict.fromkeys(request.form for request in requests))
        numbers = {form: number for number, form in enumerate(forms)}
        # lists of one question share segments, each of which is tokenized once
        keys = list[list[tuple[int, str, tuple[Passage, ...]]]]()
        for request in requests:
            every, num_parts = request.passages, max(len(request.passages), 1)
            parts_of = [every] if self.sees_order else [every[at : at + 1] for at in range(num_parts)]
            keys.append([(numbers[request.form], request.question, part) for part in parts_of])
        distinct = list(dict.fromkeys(itertools.chain.from_iterable(keys)))
        parts = [pieces(forms[number].prompt, question, passages) for number, question, passages in distinct]
        segments = {
            key: self._segment(forms[key[0]], pieces_, ids)
            for key, pieces_, ids in zip(distinct, parts, self.pieces.tokenise(parts), strict=True)
        }
        answers = answer_ids(self.pieces, requests)
        return [
            self.pretrained.prompt(request, [segments[key] for key in row], ids)
            for request, row, ids in zip(requests, keys, answers, strict=True)
        ]

    def _segment(self, form: Form, parts: Sequence[Piece], ids: Sequence[Ids]) -> Segment:
        limit, keep_end = self.limit(form) - len(self.end), form.keep_question_end
        segment = cut_prompt(parts, ids, limit=limit, keep_end=keep_end, keep_question=self.sees_order)
        return segment._replace(ids=(*segment.ids, *self.end))

    def resources(self) -> Resources:
        return Resources(weight_bytes=self.source.weight_bytes())

    # --- memory ---

    def max_batch(self, form: Form) -> memory.Limits:
        return memory.largest_batch(self._room, self.memory_estimate(form), MOST[self.model.device.type])

    @functools.cached_property
    def _room(self) -> int:
        return memory.room_on(self.model.device, self.memory_share)

    def memory_estimate(self, form: Form) -> memory.MemoryEstimate:
        most = form.max_new_tokens
        is_scored = form.method == "loglikelihood"
        return memory.t5_memory_estimate(
            self.settings,
            self.model.dtype,
            most,
            num_logits=most + 1 if is_scored else 1,
            keeps_keys=is_scored or self.engine is None,
        )

    def pass_tokens(self, forms: Collection[Form]) -> int:
        """Return the largest number of tokens, padding included, in one pass of the encoder for these forms."""
        longest = max(map(self.limit, forms))
        num_tokens = self._room // memory.pass_token_bytes(self.settings, self.model.dtype, longest)
        most = max(1, min(num_tokens, *(self.limits(form).tokens for form in forms)))
        return most if self.engine is None else self.engine.pass_tokens(most)

    @property
    def window_tokens(self) -> int:
        """Return the largest number of tokens in the distinct segments of a window, whose states are cached."""
        most = super().window_tokens
        return (
            most if self.engine is None else min(most, int(self.engine.window_tokens() * self.memory_share))
        )

    # --- states ---

    def arrange(self, prompts: Sequence[PromptTokens]) -> encoder_cache.Passes | None:
        if self.engine is None:
            return None
        return encoder_cache.arrange(prompts, self.pass_tokens(_forms(prompts)), self.engine.multiple)

    def begin(self, arranged: encoder_cache.Passes | None) -> None:
        self._window = None
        if self.engine is not None and arranged is not None:
            self._window = encoder_cache.encode_all(self.engine.encode, arranged)

    def encoder_states(self, prompts: Sequence[PromptTokens]) -> encoder_cache.EncoderStates:
        engine, window = self.engine, self._window
        if engine is None:
            return encoder_cache.encode_prompts(self.model, prompts, self.pass_tokens(_forms(prompts)))
        segments = {segment for prompt in prompts for segment in prompt.segments}
        if window is None or not segments <= window.starts.keys():
            # the states of the whole window did not fit into memory
            passes = encoder_cache.arrange(prompts, self.pass_tokens(_forms(prompts)), engine.multiple)
            window = encoder_cache.encode_all(engine.encode, passes)
        return window.gather(prompts)

    # --- outputs ---

    @torch.inference_mode()
    def generate(self, prompts: Sequence[PromptTokens]) -> list[Output]:
        form, states = prompts[0].form, self.encoder_states(prompts)
        if self.engine is not None:
            rows = self.engine.decode(states, start=self.first, ends=self.end, most=form.max_new_tokens)
        else:
            ids = self.model.generate(
                encoder_outputs=BaseModelOutput(last_hidden_state=states.states),
                attention_mask=states.is_state.long(),
                generation_config=self.decoding(form),
            )
            rows = [up_to_end(row, self.end) for row in ids[:, 1:].tolist()]
        texts = (self.tokenizer.decode(row, skip_special_tokens=True) for row in rows)
        return [Output(text.strip(), len(row)) for text, row in zip(texts, rows, strict=True)]

    @property
    def first(self) -> int:
        start = getattr(self.settings, "decoder_start_token_id", None)
        return self._pad if start is None else start

    @property
    def _pad(self) -> int:
        return self.pretrained.first_in_vocabulary([self.tokenizer.pad_token_id])

    def decoding(self, form: Form) -> Any:
        settings = self.pretrained.decoding(form, self.end, self._pad)
        settings.decoder_start_token_id = self.first
        return settings

    @torch.inference_mode()
    def loglikelihood(self, prompts: Sequence[PromptTokens]) -> list[list[float]]:
        states, logprobs = self.encoder_states(prompts), dict[tuple[int, Ids], float]()
        mask = states.is_state.long()
        for rows in batched(rows_of(prompts), prompts, self.limits(prompts[0].form)):
            logits = self._logits(rows, states.states, mask)
            logprobs |= logprobs_of(self, logits, [0] * len(rows), rows, prompts)
        return by_prompt(logprobs, prompts)

    def _logits(self, rows: Sequence[Row], states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        index = memory.to_device(torch.tensor([row.prompt for row in rows]), states.device)
        inputs = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor([self.first, *row.fed]) for row in rows], batch_first=True
        )
        logits: torch.Tensor = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states[index]),
            attention_mask=mask[index],
            decoder_input_ids=memory.to_device(inputs, states.device),
            use_cache=False,
        ).logits
        return logits


def _forms(prompts: Sequence[PromptTokens]) -> Collection[Form]:
    return {prompt.form for prompt in prompts}
