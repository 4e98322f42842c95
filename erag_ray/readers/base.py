"""What every reader is: requests -> prompts -> outputs, and the readings made of them.

A new reader is a subclass of `Reader` with `encode` and `generate` (and `load` if it has weights), and one line in
`READERS` of this folder's ``__init__``.
"""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

import pyarrow as pa

from erag_ray.config import ReaderConfig
from erag_ray.prompts import Passage
from erag_ray.readers.memory import Limits, free_memory, is_out_of_memory
from erag_ray.schemas import READINGS, InputError

DEFAULT_NEW_TOKENS = 50
WINDOW_TOKENS = 1 << 20
"""Enough for long batches of similar length; in Python's own integers some 40 MB."""
TOKENISED_ROWS = 256
DEFAULT_LIMITS = Limits(rows=32, tokens=16384)
"""Of a reader that does not know what its batches need."""


class Request(NamedTuple):
    """One question with the passages to read; none is the closed-book reading."""

    question: str
    passages: tuple[Passage, ...]
    golds: tuple[str, ...] = ()
    """The gold answers, only where how likely they are, or the score alone, is asked."""


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A request in tokens: one segment, or for FiD one per passage; and what was cut to make it fit."""

    segments: tuple[tuple[int, ...], ...]
    num_truncated_question_tokens: int = 0
    num_truncated_passage_tokens: int = 0
    num_shared: int = 0
    """The first tokens, where they are a template that other prompts start with too."""
    golds: tuple[tuple[int, ...], ...] = ()
    """The gold answers in tokens, only where how likely they are is asked."""
    answers: tuple[str, ...] = ()
    """The gold answers that can match, only where the score alone is asked."""

    @property
    def num_tokens(self) -> int:
        """Tokens over all segments."""
        return sum(len(segment) for segment in self.segments)


class Output(NamedTuple):
    """What the reader wrote, and in how many tokens (its end token included)."""

    text: str
    num_tokens: int


class Failure(NamedTuple):
    """Why a request has no output, and the kind of an error that it is (see `schemas.ERROR_KINDS`)."""

    kind: str
    text: str


T = TypeVar("T")
PROMPT = "an erag_ray.readers.Prompt with tuples of token numbers as its segments"
OUTPUT = "an erag_ray.readers.Output with a text"
OUT_OF_MEMORY = Failure("resource", "out of memory, even alone")

# a question with a passage: what the words around them need must fit
SMALL = Request("Who?", (Passage("A title", "A text."),))
# a change in how prompts are built must change the fingerprint: these are encoded and hashed
PROBES = (
    Request("Who wrote it?", ()),
    Request("Who wrote it?\nAnd when?", (Passage("A title", "A text of two lines.\nHere."),)),
    Request("Which?", (Passage("", "First."), Passage("Second", "word " * 5000))),
)


class Reader(ABC):
    """A reader: its tokenizer and prompts from the start, its weights after `load`.

    Attributes:
        order_matters: whether the order of the passages can change the output.
        sees_golds: whether its requests bring the gold answers: it says how likely they are, or writes no more than
            the score needs.
        revision: to be raised whenever a change of the code may change an output.
        dtypes: the precisions that it can read in.
        max_padding_share: most of a batch's tokens that may be padding.
        memory_share: of the GPU, or of the CPU readers' part of the machine's memory, where several readers use it.
        batch: the REQUESTS that `read` gives to `generate`, or did last; None before and after those of a window.
    """

    order_matters: ClassVar[bool] = True
    sees_golds: ClassVar[bool] = False
    revision: ClassVar[int] = 1
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "float16")
    max_padding_share: ClassVar[float] = 0.15

    def __init__(self, config: ReaderConfig) -> None:
        if config.dtype not in self.dtypes:
            able = ", ".join(self.dtypes)
            raise InputError([f"reader.dtype: {config.kind} reads in {able}, not in {config.dtype}"])
        self.config = config
        self.memory_share = 1.0
        self.batch: pa.Table | None = None
        self.max_new_tokens = config.max_new_tokens or DEFAULT_NEW_TOKENS

    @abstractmethod
    def encode(self, requests: Sequence[Request]) -> list[Prompt]:
        """Prompts in tokens; needs no weights."""

    @abstractmethod
    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        """One batch of greedy outputs."""

    def load(self) -> None:
        """Load the weights onto this process's device. Fakes have none."""
        return

    @functools.cached_property
    def limits(self) -> Limits:
        """The largest batch: as configured, else what fits once the weights are loaded; less after one that did not."""
        fitting = self.fitting()
        return Limits(self.config.batch_size or fitting.rows, self.config.batch_tokens or fitting.tokens)

    def fitting(self) -> Limits:
        """The largest batch that memory has room for and that still pays; the weights are loaded."""
        return DEFAULT_LIMITS

    def identity(self) -> dict[str, object]:
        """All that the reader's fingerprint covers; batch size and speed are not in it."""
        return {
            "kind": self.config.kind,
            "revision": self.revision,
            "max_new_tokens": self.max_new_tokens,
            "decoding": "greedy",
            "probes": [prompt.segments for prompt in self.encode(PROBES)],
            **({} if self.config.titles else {"titles": False}),
        }

    @property
    def example_answers(self) -> tuple[str, ...]:
        """Answers of the worked examples in its prompts, which an output may have copied."""
        return ()

    def read(self, requests: pa.Table, reader: str) -> Iterator[pa.Table]:
        """READINGS of a table of REQUESTS, a batch at a time, longest prompts first.

        A batch that does not fit into memory is halved and tried again, and those after it are smaller; a request that
        does not fit alone becomes an error of kind ``resource``.

        Args:
            requests: rows of REQUESTS, at most some thousands.
            reader: the reader's id, for the table.
        """
        self.batch = None
        for start, prompts in self.windows(requests):
            self._begin(prompts)
            for places in self.batches(prompts):
                own = [prompts[place] for place in places]
                self.batch = requests.take([start + place for place in places])
                yield _readings(self.batch, reader, own, self._outputs(own))
            self.batch = None

    def windows(self, requests: pa.Table) -> Iterator[tuple[int, list[Prompt]]]:
        """The prompts of REQUESTS in groups, each of which is read as a whole before the next is tokenised.

        A group is of whole questions, as many as have `window_tokens` in their distinct segments, and one at least.

        Returns:
            The first row of each, and its prompts.
        """
        start, window, known, num_tokens = 0, list[Prompt](), set[tuple[int, ...]](), 0
        for prompts in self._questions(requests):
            own = {segment for prompt in prompts for segment in prompt.segments}
            num_new = sum(map(len, own - known))
            if window and num_tokens + num_new > self.window_tokens:
                yield start, window
                start, window, known, num_tokens = start + len(window), [], set(), 0
                num_new = sum(map(len, own))
            num_tokens += num_new
            window += prompts
            known |= own
        if window:
            yield start, window

    def _questions(self, requests: pa.Table) -> Iterator[list[Prompt]]:
        """The prompts of each question, `TOKENISED_ROWS` or more tokenised at once."""
        keys = requests.column("question_key").to_pylist()
        ends = [row for row in range(1, len(keys) + 1) if row == len(keys) or keys[row] != keys[row - 1]]
        start, own = 0, list[int]()
        for end in ends:
            own.append(end)
            if end - start >= TOKENISED_ROWS or end == len(keys):
                asked = requests_of(requests.slice(start, end - start))
                prompts = _checked("encode", self.encode(asked), len(asked), _is_prompt, PROMPT)
                yield from (prompts[a - start : b - start] for a, b in itertools.pairwise([start, *own]))
                start, own = end, []

    @property
    def window_tokens(self) -> int:
        """Most tokens in the distinct segments of a window."""
        return WINDOW_TOKENS

    def begin(self, prompts: Sequence[Prompt]) -> None:
        """Make ready what the batches of a window share; one for which there is no memory goes without."""
        return

    def _begin(self, prompts: Sequence[Prompt]) -> None:
        try:
            return self.begin(prompts)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        free_memory()

    def _outputs(self, prompts: Sequence[Prompt]) -> list[Output | Failure]:
        try:
            return _checked("generate", self.generate(prompts), len(prompts), _is_output, OUTPUT)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        # outside of the handler, whose traceback would keep what the batch has allocated
        free_memory()
        if len(prompts) == 1:
            return [OUT_OF_MEMORY]
        half = len(prompts) // 2
        tokens = half * max(prompt.num_tokens for prompt in prompts)
        self.limits = self.limits._replace(tokens=min(self.limits.tokens, tokens))
        return self._outputs(prompts[:half]) + self._outputs(prompts[half:])

    def batches(self, prompts: Sequence[Prompt]) -> Iterator[list[int]]:
        """Rows of similar length together, longest first.

        A batch keeps the `limits`, and at most ``max_padding_share`` of its tokens are padding.
        """
        lengths = [prompt.num_tokens for prompt in prompts]
        batch: list[int] = []
        for row in sorted(range(len(prompts)), key=lambda row: -lengths[row]):
            if batch and not self._fits([lengths[other] for other in (*batch, row)]):
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    def _fits(self, lengths: Sequence[int]) -> bool:
        padded = lengths[0] * len(lengths)
        wasted = padded - sum(lengths)
        small = len(lengths) <= self.limits.rows and padded <= self.limits.tokens
        return small and wasted <= self.max_padding_share * padded


def _checked(
    method: str, results: Iterable[T], count: int, is_right: Callable[[T], bool], wanted: str
) -> list[T]:
    """The results of a method that may be user code."""
    given = list(results)
    if len(given) != count:
        raise TypeError(f"{method} gave {len(given)} results for {count}")
    if strange := [result for result in given if not is_right(result)]:
        raise TypeError(f"{method} gave {strange[0]!r}, not {wanted}")
    return given


def _is_prompt(result: object) -> bool:
    return isinstance(result, Prompt) and all(isinstance(segment, tuple) for segment in result.segments)


def _is_output(result: object) -> bool:
    return isinstance(result, Output) and isinstance(result.text, str)


def requests_of(table: pa.Table) -> list[Request]:
    """The rows of REQUESTS."""
    columns = ("question", "titles", "texts", "golds")
    rows = zip(*(table.column(name).to_pylist() for name in columns), strict=True)
    return [
        Request(question, tuple(Passage(*pair) for pair in zip(titles, texts, strict=True)), tuple(golds))
        for question, titles, texts, golds in rows
    ]


def failed(requests: pa.Table, reader: str, failure: Failure) -> pa.Table:
    """READINGS of REQUESTS that could not be read; their tokens were not counted."""
    nothing = Prompt(segments=())
    return _readings(requests, reader, [nothing] * requests.num_rows, [failure] * requests.num_rows)


def _readings(
    requests: pa.Table, reader: str, prompts: Sequence[Prompt], outputs: Sequence[Output | Failure]
) -> pa.Table:
    failures = [output if isinstance(output, Failure) else None for output in outputs]
    columns = {
        "reader": [reader] * requests.num_rows,
        "question_key": requests.column("question_key"),
        "passages_key": requests.column("passages_key"),
        "output": [output.text if isinstance(output, Output) else None for output in outputs],
        "error": [failure and failure.text for failure in failures],
        "error_kind": [failure and failure.kind for failure in failures],
        "num_prompt_tokens": [prompt.num_tokens for prompt in prompts],
        "num_output_tokens": [output.num_tokens if isinstance(output, Output) else 0 for output in outputs],
        "num_truncated_question_tokens": [prompt.num_truncated_question_tokens for prompt in prompts],
        "num_truncated_passage_tokens": [prompt.num_truncated_passage_tokens for prompt in prompts],
    }
    return pa.table(columns, schema=READINGS.columns)
