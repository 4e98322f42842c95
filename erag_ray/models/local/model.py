"""Base class of models in this process: tokenization, windows, batches by memory, halving on out-of-memory errors."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

from erag_ray.config.reader import ReaderConfig
from erag_ray.models.base import Model, Rendered
from erag_ray.models.local.devices import set_matmul_precision
from erag_ray.models.local.memory import BatchLimits, Limits, free_memory, is_out_of_memory
from erag_ray.models.local.weights import quiet
from erag_ray.prompts.request import Failure, Form, Method, Request, Response
from erag_ray.support.errors import JobError

WINDOW_TOKENS = 1 << 20
"""Enough for long batches of similar length; about 40 MB as Python integers."""
DEVICE_WINDOW_TOKENS = 1 << 18
"""The same with a GPU, which waits for the first window and computes while the host prepares the next: four passes of
an encoder, so that the segments of each pass have similar lengths."""
TOKENISED_ROWS = 256
DEFAULT_LIMITS = Limits(rows=32, tokens=16384)
"""For models without an estimate of their memory."""
OUT_OF_MEMORY = Failure("resource", "out of memory with a batch of one request")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class PromptTokens(Rendered):
    """A tokenized request: one segment, or for FiD one per passage, and the number of truncated tokens.

    ``num_shared`` tokens at the start are a template, and may be shared with other prompts.
    """

    form: Form
    segments: tuple[tuple[int, ...], ...]
    num_shared: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_tokens", sum(map(len, self.segments)))

    @property
    def length(self) -> int:
        return self.num_tokens or 0

    def response(self, **fields: Any) -> Response:
        return Response(
            num_prompt_tokens=self.length,
            num_truncated_question_tokens=self.num_truncated_question_tokens,
            num_truncated_passage_tokens=self.num_truncated_passage_tokens,
            **fields,
        )

    def answered(self, output: Output) -> Response:
        return self.response(text=output.text, num_output_tokens=output.num_tokens, notes=output.notes)


class Output(NamedTuple):
    """The answer to one request, the number of generated tokens with the end token, and `Response.notes`."""

    text: str
    num_tokens: int
    notes: tuple[str, ...] = ()


class LocalModel(Model):
    """Runs batches of similar length, as large as memory allows, through `generate` and `loglikelihood`.

    A batch that runs out of memory is halved and run again, and the following ones are smaller; a single request that
    runs out of memory becomes an error of kind ``resource``.
    """

    supports: ClassVar[frozenset[Method]] = frozenset({"generate", "loglikelihood"})
    max_padding_share: ClassVar[float] = 0.15
    """The largest fraction of a batch's tokens that may be padding."""
    model: Any = None
    """Of transformers, once loaded; None if another engine runs it."""

    def __init__(self, config: ReaderConfig) -> None:
        quiet()
        super().__init__(config)
        self._limits: dict[Form, BatchLimits] = {}

    @abstractmethod
    def render(self, requests: Sequence[Request]) -> list[PromptTokens]:
        """Return the tokenized requests."""

    def generate(self, prompts: Sequence[PromptTokens]) -> list[Output]:
        """Return the greedy outputs of one batch of one form; for models with batches that support it."""
        raise NotImplementedError

    def loglikelihood(self, prompts: Sequence[PromptTokens]) -> list[list[float]]:
        """Return the log-probabilities of each prompt's answers, for one batch of one form; as `generate`."""
        raise NotImplementedError

    @abstractmethod
    def ends(self, form: Form) -> Collection[int]:
        """Return the tokens that end an output."""

    def scores_end(self, form: Form, ids: Sequence[int]) -> bool:
        """Return whether a log-likelihood includes the answer's end; not if it has ``max_new_tokens`` tokens."""
        return bool(form.with_end and self.ends(form) and not (ids and len(ids) >= form.max_new_tokens))

    def max_batch(self, form: Form) -> Limits:
        """Return the largest batch that fits into memory and is still worthwhile; called after `load`."""
        return DEFAULT_LIMITS

    @property
    def window_tokens(self) -> int:
        """Return the largest number of tokens in the distinct segments of a window."""
        return DEVICE_WINDOW_TOKENS if self.has_device else WINDOW_TOKENS

    @property
    def has_device(self) -> bool:
        """Return whether a GPU computes, so that the host can prepare the next window meanwhile."""
        return self.model is not None and bool(self.model.device.type != "cpu")

    def arrange(self, prompts: Sequence[PromptTokens]) -> Any:
        """Prepare on the host what all batches of a window share."""
        return None

    def begin(self, arranged: Any) -> None:
        """Compute on the device what all batches of a window share; skipped if there is not enough memory."""

    def limits(self, form: Form) -> Limits:
        """Return the current limits of a batch: as configured or by memory, and smaller after out-of-memory errors."""
        return self._limits_of(form).now

    def _limits_of(self, form: Form) -> BatchLimits:
        if form not in self._limits:
            limits = self.max_batch(form)
            # the configured value counts only the tokens of prompts
            most = Limits(self.config.batch_size or limits.rows, limits.tokens, limits.row_tokens)
            if self.config.batch_tokens:
                most = Limits(most.rows, self.config.batch_tokens)
            self._limits[form] = BatchLimits(most)
        return self._limits[form]

    def run(self, requests: Sequence[Request]) -> Iterator[tuple[int, Response]]:
        # a setting of the process, in which another model may have been loaded since
        set_matmul_precision(self.config.dtype)
        windows = ((start, prompts, self.arrange(prompts)) for start, prompts in self.windows(requests))
        for start, prompts, arranged in prefetch(windows) if self.has_device else windows:
            self._begin(arranged)
            for rows in self.batches(prompts):
                responses = self._responses([prompts[row] for row in rows])
                yield from ((start + row, response) for row, response in zip(rows, responses, strict=True))

    def windows(self, requests: Sequence[Request]) -> Iterator[tuple[int, list[PromptTokens]]]:
        """Yield first row and prompts of each window of requests, which is completed before the next is tokenized.

        A window has whole questions with up to `window_tokens` tokens in their distinct segments, and at least one
        question. Requests of one question must be adjacent.
        """
        start, window, window_segments, num_tokens = 0, list[PromptTokens](), set[tuple[int, ...]](), 0
        max_tokens = self.window_tokens
        for prompts in self._questions(requests):
            segments = {segment for prompt in prompts for segment in prompt.segments}
            num_new = sum(map(len, segments - window_segments))
            if window and num_tokens + num_new > max_tokens:
                yield start, window
                start, window, window_segments, num_tokens = start + len(window), [], set(), 0
                num_new = sum(map(len, segments))
            num_tokens += num_new
            window += prompts
            window_segments |= segments
        if window:
            yield start, window

    def _questions(self, requests: Sequence[Request]) -> Iterator[list[PromptTokens]]:
        """Yield the prompts of each question; `TOKENISED_ROWS` requests are tokenized at once."""
        starts = range(0, len(requests), TOKENISED_ROWS)
        batches = (requests[start : start + TOKENISED_ROWS] for start in starts)
        pairs = (pair for batch in batches for pair in zip(batch, self.render(batch), strict=True))
        for _, group in itertools.groupby(pairs, key=lambda pair: pair[0].question):
            yield [prompt for _, prompt in group]

    def _begin(self, arranged: Any) -> None:
        try:
            return self.begin(arranged)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        free_memory()

    def batches(self, prompts: Sequence[PromptTokens]) -> Iterator[list[int]]:
        """Yield batches of rows of one form and similar length, longest first.

        A batch is within the `limits`, and at most ``max_padding_share`` of its tokens are padding.
        """
        forms: dict[Form, list[int]] = {}
        for row, prompt in enumerate(prompts):
            forms.setdefault(prompt.form, []).append(row)
        for form, rows in forms.items():
            batch, num_tokens, limits = list[int](), 0, self.limits(form)
            for row in sorted(rows, key=lambda row: -prompts[row].length):
                length = prompts[row].length
                longest = prompts[batch[0]].length if batch else length
                if batch and not self._fits(longest, len(batch) + 1, num_tokens + length, limits):
                    yield batch
                    batch, num_tokens = [], 0
                if not batch:
                    limits = self.limits(form)
                batch.append(row)
                num_tokens += length
            yield batch

    def _fits(self, longest: int, num_rows: int, num_tokens: int, limits: Limits) -> bool:
        padded = longest * num_rows
        return limits.fit(num_rows, longest) and padded - num_tokens <= self.max_padding_share * padded

    def _responses(self, prompts: Sequence[PromptTokens]) -> list[Response]:
        form = prompts[0].form
        try:
            if form.method == "generate":
                outputs = zip(prompts, self.generate(prompts), strict=True)
                responses = [prompt.answered(output) for prompt, output in outputs]
            else:
                scored = zip(prompts, self.loglikelihood(prompts), strict=True)
                responses = [self._scored(prompt, values) for prompt, values in scored]
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        else:
            self._limits_of(form).count_good()
            return responses
        # outside of the handler, because its traceback references the tensors of the batch
        free_memory()
        if len(prompts) == 1:
            return [prompts[0].response(failure=OUT_OF_MEMORY)]
        half = len(prompts) // 2
        self._limits_of(form).shrink(half, max(prompt.length for prompt in prompts))
        return self._responses(prompts[:half]) + self._responses(prompts[half:])

    def _scored(self, prompt: PromptTokens, logprobs: Sequence[float]) -> Response:
        if any(math.isnan(value) for value in logprobs):
            text = f"the log-probabilities of {self.config.model} in {self.config.dtype} are NaN"
            raise JobError(f"{text}; choose another dtype")
        answers, form = prompt.answer_ids, prompt.form
        return prompt.response(
            logprobs=tuple(logprobs),
            num_answer_tokens=tuple(len(ids) + self.scores_end(form, ids) for ids in answers),
            num_output_tokens=sum(map(len, dict.fromkeys(answers))),
        )


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """Yield the items in order; a thread computes the next while the caller uses the current one.

    An exception of the iterator is raised in the position of its item.
    """

    def following() -> list[T]:
        return list(itertools.islice(items, 1))

    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(following)
        while item := pending.result():
            pending = pool.submit(following)
            yield item[0]
