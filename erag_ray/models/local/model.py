"""Models that compute on this machine's devices: requests in tokens, windows, batches by memory, and halving."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from erag_ray.config import ReaderConfig
from erag_ray.errors import JobError
from erag_ray.models.base import Model, Rendered
from erag_ray.models.local.memory import BatchLimits, Limits, free_memory, is_out_of_memory
from erag_ray.models.local.prefetch import prefetch
from erag_ray.requests import Failure, Form, Need, Passage, Request, Response

WINDOW_TOKENS = 1 << 20
"""Enough for long batches of similar length; in Python's own integers some 40 MB."""
FIRST_WINDOW_TOKENS, DEVICE_WINDOW_TOKENS = 1 << 16, 1 << 18
"""The same beside a device, which waits for the first window and computes while the next is prepared: one pass of an
encoder, then twice as many tokens each time, up to four passes, of which each has segments of similar length."""
TOKENISED_ROWS = 256
DEFAULT_LIMITS = Limits(rows=32, tokens=16384)
"""Of a model that does not know what its batches need."""
OUT_OF_MEMORY = Failure("resource", "out of memory with a batch of one request")
SMALL = "Who?", Passage("A title", "A text.")
"""A question with a passage: what the words around them need must fit."""


@dataclass(frozen=True, kw_only=True)
class PromptTokens(Rendered):
    """A request in tokens: one segment, or for FiD one per passage; and what was cut to make it fit.

    Attributes:
        form: of the request.
        segments: token ids.
        num_shared: the first tokens, where they are a template that other prompts start with too.
        matches: the answers that can match, where an output may be stopped early.
    """

    form: Form
    segments: tuple[tuple[int, ...], ...]
    num_shared: int = 0
    matches: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_tokens", sum(map(len, self.segments)))

    @property
    def length(self) -> int:
        """Tokens over all segments."""
        return self.num_tokens or 0

    def response(self, **fields: Any) -> Response:
        """A response to it, with what its tokens count."""
        return Response(
            num_prompt_tokens=self.length,
            num_truncated_question_tokens=self.num_truncated_question_tokens,
            num_truncated_passage_tokens=self.num_truncated_passage_tokens,
            **fields,
        )


class Output(NamedTuple):
    """What a model wrote, and in how many tokens (its end token included)."""

    text: str
    num_tokens: int


class LocalModel(Model):
    """Batches of similar length, as large as memory allows, through `generate` and `loglikelihood`.

    A batch that does not fit into memory is halved and tried again, and those after it are smaller; a request that
    does not fit alone becomes an error of kind ``resource``.

    Attributes:
        max_padding_share: most of a batch's tokens that may be padding.
    """

    supports: ClassVar[frozenset[Need]] = frozenset({"generate", "loglikelihood", "early_stop"})
    max_padding_share: ClassVar[float] = 0.15

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__(config)
        self._limits: dict[Form, BatchLimits] = {}

    @abstractmethod
    def render(self, requests: Sequence[Request]) -> list[PromptTokens]:
        """Requests in tokens."""

    @abstractmethod
    def generate(self, prompts: Sequence[PromptTokens]) -> list[Output]:
        """Greedy outputs of one batch, all of one form."""

    @abstractmethod
    def loglikelihood(self, prompts: Sequence[PromptTokens]) -> list[list[float]]:
        """The log-probability of each prompt's answers, all prompts of one form."""

    @abstractmethod
    def ends(self, form: Form) -> Collection[int]:
        """Tokens that end an output."""

    def scores_end(self, form: Form, ids: Sequence[int]) -> bool:
        """Whether a log-likelihood includes the answer's end: one as long as an output may be ends by itself."""
        return bool(form.with_end and self.ends(form) and not (ids and len(ids) >= form.max_new_tokens))

    def fitting(self, form: Form) -> Limits:
        """The largest batch that memory has room for and that still pays; the weights are loaded."""
        return DEFAULT_LIMITS

    @property
    def window_tokens(self) -> int:
        """Most tokens in the distinct segments of a window."""
        return WINDOW_TOKENS

    def window_sizes(self) -> Iterator[int]:
        """Yield the `window_tokens` of the first window, the second, and so on."""
        most = self.window_tokens
        if self.has_device:
            most, size = min(most, DEVICE_WINDOW_TOKENS), FIRST_WINDOW_TOKENS
            while size < most:
                yield size
                size *= 2
        yield from itertools.repeat(most)

    @property
    def has_device(self) -> bool:
        """Return whether a GPU computes, while which the host can prepare the next window."""
        return False

    def arrange(self, prompts: Sequence[PromptTokens]) -> Any:
        """Return what the batches of a window share, as far as the host prepares it."""
        return None

    def begin(self, arranged: Any) -> None:
        """Make ready what the batches of a window share; one for which there is no memory goes without."""
        return

    def limits(self, form: Form) -> Limits:
        """The largest batch: as configured, else what fits once the weights are loaded; less after one that did not."""
        return self._limits_of(form).now

    def _limits_of(self, form: Form) -> BatchLimits:
        if form not in self._limits:
            fitting = self.fitting(form)
            # what is configured counts the tokens of prompts alone
            most = Limits(self.config.batch_size or fitting.rows, fitting.tokens, fitting.row_tokens)
            if self.config.batch_tokens:
                most = Limits(most.rows, self.config.batch_tokens)
            self._limits[form] = BatchLimits(most)
        return self._limits[form]

    def batch_rows(self, form: Form) -> int:
        return self.limits(form).rows

    def run(self, requests: Sequence[Request]) -> Iterator[tuple[int, Response]]:
        windows = self._arranged(requests)
        for start, prompts, arranged in prefetch(windows) if self.has_device else windows:
            self._begin(arranged)
            for rows in self.batches(prompts):
                responses = self._responses([prompts[row] for row in rows])
                yield from ((start + row, one) for row, one in zip(rows, responses, strict=True))

    def _arranged(self, requests: Sequence[Request]) -> Iterator[tuple[int, list[PromptTokens], Any]]:
        for start, prompts in self.windows(requests):
            yield start, prompts, self.arrange(prompts)

    def windows(self, requests: Sequence[Request]) -> Iterator[tuple[int, list[PromptTokens]]]:
        """The prompts of requests in groups, each of which is answered as a whole before the next is tokenised.

        A group is of whole questions, as many as have `window_sizes` tokens in their distinct segments, and one at
        least.
        Requests with one question stand together.

        Yields:
            The first row of each, and its prompts.
        """
        start, window, known, num_tokens = 0, list[PromptTokens](), set[tuple[int, ...]](), 0
        sizes = self.window_sizes()
        most = next(sizes)
        for prompts in self._questions(requests):
            own = {segment for prompt in prompts for segment in prompt.segments}
            num_new = sum(map(len, own - known))
            if window and num_tokens + num_new > most:
                yield start, window
                start, window, known, num_tokens = start + len(window), [], set(), 0
                most = next(sizes)
                num_new = sum(map(len, own))
            num_tokens += num_new
            window += prompts
            known |= own
        if window:
            yield start, window

    def _questions(self, requests: Sequence[Request]) -> Iterator[list[PromptTokens]]:
        """The prompts of each question, `TOKENISED_ROWS` or more tokenised at once."""
        group = list[Request]()
        for start in range(0, len(requests), TOKENISED_ROWS):
            for request in requests[start : start + TOKENISED_ROWS]:
                if len(group) >= TOKENISED_ROWS and request.question != group[-1].question:
                    yield from self._by_question(group)
                    group = []
                group.append(request)
        if group:
            yield from self._by_question(group)

    def _by_question(self, requests: Sequence[Request]) -> Iterator[list[PromptTokens]]:
        pairs = zip(requests, self.render(requests), strict=True)
        for _, own in itertools.groupby(pairs, key=lambda pair: pair[0].question):
            yield [prompt for _, prompt in own]

    def _begin(self, arranged: Any) -> None:
        try:
            return self.begin(arranged)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        free_memory()

    def batches(self, prompts: Sequence[PromptTokens]) -> Iterator[list[int]]:
        """Rows of one form and of similar length together, longest first.

        A batch keeps the `limits`, and at most ``max_padding_share`` of its tokens are padding.
        """
        forms: dict[Form, list[int]] = {}
        for row, prompt in enumerate(prompts):
            forms.setdefault(prompt.form, []).append(row)
        for form, rows in forms.items():
            yield from self._batches(form, rows, prompts)

    def _batches(
        self, form: Form, rows: Sequence[int], prompts: Sequence[PromptTokens]
    ) -> Iterator[list[int]]:
        batch, num_tokens, limits = list[int](), 0, self.limits(form)
        for row in sorted(rows, key=lambda row: -prompts[row].length):
            length = prompts[row].length
            if batch and not self._fits(
                prompts[batch[0]].length, len(batch) + 1, num_tokens + length, limits
            ):
                yield batch
                batch, num_tokens = [], 0
            if not batch:
                limits = self.limits(form)
            batch.append(row)
            num_tokens += length
        if batch:
            yield batch

    def _fits(self, longest: int, num_rows: int, num_tokens: int, limits: Limits) -> bool:
        padded = longest * num_rows
        return limits.fit(num_rows, longest) and padded - num_tokens <= self.max_padding_share * padded

    def _responses(self, prompts: Sequence[PromptTokens]) -> list[Response]:
        form = prompts[0].form
        try:
            responses = self._answer(prompts)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        else:
            self._limits_of(form).count_good()
            return responses
        # outside of the handler, whose traceback would keep what the batch has allocated
        free_memory()
        if len(prompts) == 1:
            return [prompts[0].response(failure=OUT_OF_MEMORY)]
        half = len(prompts) // 2
        self._limits_of(form).shrink(half, max(prompt.length for prompt in prompts))
        return self._responses(prompts[:half]) + self._responses(prompts[half:])

    def _answer(self, prompts: Sequence[PromptTokens]) -> list[Response]:
        if prompts[0].form.method == "generate":
            outputs = zip(prompts, self.generate(prompts), strict=True)
            return [
                prompt.response(text=output.text, num_output_tokens=output.num_tokens)
                for prompt, output in outputs
            ]
        scored = zip(prompts, self.loglikelihood(prompts), strict=True)
        return [self._scored(prompt, values) for prompt, values in scored]

    def _scored(self, prompt: PromptTokens, logprobs: Sequence[float]) -> Response:
        if any(math.isnan(value) for value in logprobs):
            text = f"the model {self.config.model} gives no probability in {self.config.dtype}"
            raise JobError(f"{text}; choose another dtype")
        answers, form = prompt.answer_ids or (), prompt.form
        return prompt.response(
            logprobs=tuple(logprobs),
            num_answer_tokens=tuple(len(ids) + self.scores_end(form, ids) for ids in answers),
            num_output_tokens=sum(map(len, dict.fromkeys(answers))),
        )
