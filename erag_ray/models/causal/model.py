"""Decoder-only models: any causal LM of transformers, with a plain prompt or its chat template."""

import functools
import inspect
import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import torch
import transformers

from erag_ray.config.reader import ReaderConfig
from erag_ray.models.causal.kv_cache import KeyValueCaches, generate_with_eviction
from erag_ray.models.local import memory
from erag_ray.models.local.likelihood import Row, batched, by_prompt, logprobs_of, rows_of
from erag_ray.models.local.model import LocalModel, Output, PromptTokens
from erag_ray.models.local.pretrained import Pretrained
from erag_ray.models.local.tokens import answer_ids, cut_prompt, up_to_end
from erag_ray.models.local.weights import load_end_tokens, load_weights
from erag_ray.models.local.word_cache import Ids
from erag_ray.models.outputs import answer_in, marks_thinking, opens_thinking
from erag_ray.prompts.prompt import Piece, as_messages, join_pieces, pieces
from erag_ray.prompts.request import Form, Prompt, Request
from erag_ray.support.errors import InputError

CAUSAL_TOKENS = 4096
ANY_LENGTH = 1 << 30
MOST = {"cpu": memory.Limits(rows=32, tokens=4096), "cuda": memory.Limits(rows=512, tokens=1 << 40)}
"""The largest batches by device: larger ones are no faster."""
WHOLE = 10_000
"""A prompt by itself with more tokens, squared, than this many times those of its prefix is computed from its start:
without cache and padding its attention takes half as long."""
SLOT = "\u2402user\u2403"
# a template that prints today's date would change the prompt, and the response, every day
FIXED_DATE = "26 Jul 2024"
TODAY = re.compile(r"""strftime_now\(\s*('[^']*'|"[^"]*"|[^)]*)\s*\)""")


class CausalModel(LocalModel):
    """Greedy decoding of padded prompts; the template prefix that prompts share is computed once.

    A prompt has at most ``max_prompt_tokens`` tokens. At least half of what instruction and examples leave is reserved
    for the passages, in equal shares; the question keeps its start (in a dialogue its end).
    """

    revision: ClassVar[int] = 2

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__(config)
        self.pretrained = Pretrained(config, encoder_decoder=False)
        self.source, self.settings = self.pretrained.source, self.pretrained.settings
        self.tokenizer, self.pieces = self.pretrained.tokenizer, self.pretrained.pieces
        self.context: int = getattr(self.settings, "max_position_embeddings", None) or ANY_LENGTH
        """The largest number of tokens in a prompt and its output."""
        self.shared_tokens = most_shared_tokens(self.settings)
        """A prompt that may be longer with its output is computed by itself, without padding or cache."""
        self.caches: KeyValueCaches | None = None
        self._frames: dict[tuple[Prompt, bool], tuple[Piece, Piece]] = {}
        self._end_tokens: dict[bool, frozenset[int]] = {}

    def load(self) -> None:
        self.model = load_weights(transformers.AutoModelForCausalLM, self.source, self.config.dtype)
        self.caches = KeyValueCaches(self.model)

    def fingerprint_fields(self) -> dict[str, object]:
        # only for the models whose outputs padding could change in former versions
        padding = {"padding": 1} if self.shared_tokens < ANY_LENGTH else {}
        return {**super().fingerprint_fields(), **self.pretrained.fingerprint_fields(self), **padding}

    # --- memory ---

    def max_batch(self, form: Form) -> memory.Limits:
        device = self.model.device
        return memory.largest_batch(
            memory.room_on(device, self.memory_share), self.memory_estimate(form), MOST[device.type]
        )

    def memory_estimate(self, form: Form) -> memory.MemoryEstimate:
        num_logits = form.max_new_tokens + 1 if form.method == "loglikelihood" else 1
        return memory.causal_memory_estimate(
            self.model, form.max_new_tokens, self.limit(form), num_logits=num_logits
        )

    # --- requests in tokens ---

    def check(self, form: Form) -> None:
        self.pretrained.check(form, self._pieces, self.limit(form))

    def limit(self, form: Form) -> int:
        """Return the largest number of prompt tokens: the form's, or what the context leaves if that is less."""
        return min(form.max_prompt_tokens or CAUSAL_TOKENS, self.context - form.max_new_tokens)

    def render(self, requests: Sequence[Request]) -> list[PromptTokens]:
        texts, prompts = [self._pieces(request) for request in requests], list[PromptTokens]()
        tokens, answers = self.pieces.tokenise(texts), answer_ids(self.pieces, requests)
        for request, parts, ids, scored in zip(requests, texts, tokens, answers, strict=True):
            limit, keep_end = self.limit(request.form), request.form.keep_question_end
            segment = cut_prompt(parts, ids, limit=limit, keep_end=keep_end)
            pairs = zip(parts, ids, strict=True)
            shared = itertools.takewhile(lambda pair: pair[0].kind == "template", pairs)
            num_shared = sum(len(piece) for _, piece in shared)
            prompts.append(self.pretrained.prompt(request, [segment], scored, num_shared))
        return prompts

    def _pieces(self, request: Request) -> list[Piece]:
        prompt = request.form.prompt
        parts = pieces(prompt, request.question, request.passages)
        if not prompt.is_chat:
            return [*([Piece("template", self.pieces.start)] if self.pieces.start else []), *parts]
        before, after = self._chat_frame(prompt, has_passages=bool(request.passages))
        # the chat template and the start of the prompt are tokenized as one text
        return [*join_pieces([before, *parts]), after]

    def _chat_frame(self, prompt: Prompt, *, has_passages: bool) -> tuple[Piece, Piece]:
        """Return the text of the chat template before and after the user's message."""
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
                enable_thinking=False,  # for templates that would start a thinking block
            )
        except Exception as error:
            # a chat template is code that comes with the model, and may raise anything, for example for system messages
            text = f"the chat template of {self.config.model} cannot be filled: {error}"
            raise InputError([f"reader.prompt: {text}"]) from error
        before, slot, after = text.partition(SLOT)
        if not slot or SLOT in after:
            verb = "repeats" if slot else "drops"
            raise InputError(
                [f"reader.prompt: the chat template of {self.config.model} {verb} the user's message"]
            )
        return before, after

    # --- outputs ---

    @torch.inference_mode()
    def generate(self, prompts: Sequence[PromptTokens]) -> list[Output]:
        outputs: dict[int, Output] = {}
        for prefix, rows in self._groups(prompts):
            outputs |= zip(rows, self._generate(prefix, [prompts[row] for row in rows]), strict=True)
        return [outputs[row] for row in range(len(prompts))]

    def _generate(self, prefix: Ids, prompts: Sequence[PromptTokens]) -> list[Output]:
        form = prompts[0].form
        rests = [prompt.segments[0][len(prefix) :] for prompt in prompts]
        ids, mask, cache, _ = self.padded(prefix, rests, form.max_new_tokens)
        decoding = self.pretrained.decoding(form, self.ends(form), self._pad)
        # eviction needs a cache of plain keys and values
        if cache is not None:
            rows = generate_with_eviction(self.model, ids, mask, cache, decoding, self.ends(form))
        else:
            sequences = self.model.generate(
                input_ids=ids, attention_mask=mask, past_key_values=cache, generation_config=decoding
            )
            rows = sequences[:, ids.shape[1] :].tolist()
        return [self.output(form, row) for row in rows]

    def padded(
        self, prefix: Ids, rests: Sequence[Ids], new_tokens: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor, Any | None, int]:
        """Return token ids, attention mask, cache, and the number of tokens in the cache for prompts with one prefix.

        The prefix comes first, then padding, then the rest of each prompt. Without a cache, padding comes first.
        """
        assert self.caches is not None, "load() comes first"
        if len(rests) == 1 and len(rests[0]) ** 2 > WHOLE * len(prefix):
            prefix, rests = (), [(*prefix, *rests[0])]
        capacity = len(prefix) + max(map(len, rests)) + new_tokens
        is_shared = capacity <= self.shared_tokens
        cache, num_cached = self.caches.make(prefix, len(rests), capacity) if is_shared else (None, 0)
        if not num_cached:
            # padding inside a prompt would shift a sliding window or a recurrent state
            prefix, rests = (), [(*prefix, *rest) for rest in rests]
        rows = [torch.tensor(rest) for rest in rests]
        padded = torch.nn.utils.rnn.pad_sequence(
            rows, batch_first=True, padding_value=self._pad, padding_side="left"
        )
        ids = torch.cat([torch.tensor(prefix, dtype=torch.long).expand(len(rows), -1), padded], dim=1)
        position, lengths = torch.arange(ids.shape[1]), torch.tensor(list(map(len, rests)))
        mask = (position < len(prefix)) | (position >= ids.shape[1] - lengths[:, None])
        device = self.model.device
        return memory.to_device(ids, device), memory.to_device(mask.long(), device), cache, num_cached

    @property
    def _pad(self) -> int:
        return self.pretrained.first_in_vocabulary(
            [self.tokenizer.pad_token_id, *sorted(self._ends(breaks=False))]
        )

    def ends(self, form: Form) -> Collection[int]:
        return self._ends(breaks=form.stop_at_newline)

    def _ends(self, *, breaks: bool) -> frozenset[int]:
        """Return the tokens that end an output: the model's end tokens and, with ``breaks``, all with a line break."""
        if breaks not in self._end_tokens:
            ends = {self.tokenizer.eos_token_id} | load_end_tokens(self.source, self.settings)
            if breaks:
                texts = self.tokenizer.batch_decode([[id_] for id_ in range(len(self.tokenizer))])
                ends |= {id_ for id_, text in enumerate(texts) if "\n" in text}
            self._end_tokens[breaks] = frozenset(ends - {None})
        return self._end_tokens[breaks]

    def output(self, form: Form, ids: list[int]) -> Output:
        """Return the output that token ids decode to, up to the first end token."""
        ids = up_to_end(ids, self.ends(form))
        # the template may write the start of thinking, which the output continues
        after = self._chat_frame(form.prompt, has_passages=True)[1].text if form.prompt.is_chat else ""
        text, notes = answer_in(opens_thinking(after) + self._decoded(ids), one_line=form.stop_at_newline)
        return Output(text, len(ids), notes)

    def _decoded(self, ids: list[int]) -> str:
        """Return the text of tokens without control tokens; with those around thinking, which `answer_in` cuts."""
        if self._thinking_ids.isdisjoint(ids):
            return str(self.tokenizer.decode(ids, skip_special_tokens=True))
        ends = self._control_ids - self._thinking_ids
        length = next((len(ids) - i for i, id_ in enumerate(reversed(ids)) if id_ not in ends), 0)
        return str(self.tokenizer.decode(ids[:length]))

    @functools.cached_property
    def _control_ids(self) -> frozenset[int]:
        return frozenset(id_ for id_, token in self.tokenizer.added_tokens_decoder.items() if token.special)

    @functools.cached_property
    def _thinking_ids(self) -> frozenset[int]:
        """Return the control tokens that start or end thinking."""
        tokens = self.tokenizer.added_tokens_decoder
        return frozenset(id_ for id_ in self._control_ids if marks_thinking(tokens[id_].content))

    @torch.inference_mode()
    def loglikelihood(self, prompts: Sequence[PromptTokens]) -> list[list[float]]:
        limits, rows = self.limits(prompts[0].form), rows_of(prompts)
        logprobs = dict[tuple[int, Ids], float]()
        for prefix, indices in self._groups(prompts):
            with_prefix = set(indices)
            group = [row for row in rows if row.prompt in with_prefix]
            is_alone = self._is_alone(prompts[indices[0]])
            for batch in [[row] for row in group] if is_alone else batched(group, prompts, limits):
                logits = self._logits(prefix, prompts, batch)
                starts = [logits.shape[1] - len(row.fed) - 1 for row in batch]
                logprobs |= logprobs_of(self, logits, starts, batch, prompts)
        return by_prompt(logprobs, prompts)

    def _logits(self, prefix: Ids, prompts: Sequence[PromptTokens], rows: Sequence[Row]) -> torch.Tensor:
        rests = [(*prompts[row.prompt].segments[0][len(prefix) :], *row.fed) for row in rows]
        ids, mask, cache, num_cached = self.padded(prefix, rests)
        optional = {
            "position_ids": (mask.cumsum(dim=1) - 1).clamp(min=0)[:, num_cached:],
            "logits_to_keep": max(len(row.fed) for row in rows) + 1,
        }
        parameters = inspect.signature(self.model.forward).parameters
        logits: torch.Tensor = self.model(
            input_ids=ids[:, num_cached:],
            attention_mask=mask,
            past_key_values=cache,
            **{name: value for name, value in optional.items() if name in parameters},
        ).logits
        return logits

    def _groups(self, prompts: Sequence[PromptTokens]) -> list[tuple[Ids, list[int]]]:
        """Group the indices of prompts by the template tokens that they start with; some prompts are alone."""
        groups: dict[tuple[int, Ids], list[int]] = {}
        for index, prompt in enumerate(prompts):
            shared = -1, prompt.segments[0][: prompt.num_shared]
            groups.setdefault((index, ()) if self._is_alone(prompt) else shared, []).append(index)
        return [(prefix, indices) for (_, prefix), indices in groups.items()]

    def _is_alone(self, prompt: PromptTokens) -> bool:
        return prompt.length + prompt.form.max_new_tokens > self.shared_tokens


def most_shared_tokens(settings: Any) -> int:
    """Return up to how many tokens padding and cached prefixes change no output.

    Beyond, longrope (Phi-3) rotates all tokens of a batch in another way; local layers of GPT-Neo count padding, as all
    of RWKV do.
    """
    rope = getattr(settings, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        return int(rope["original_max_position_embeddings"])
    return 0 if settings.model_type == "rwkv" else int(getattr(settings, "window_size", None) or ANY_LENGTH)
