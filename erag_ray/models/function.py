"""A Python function as model: prompts in, outputs out. It runs in the process that defines it."""

import functools
import inspect
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import ClassVar

from erag_ray.config.reader import ReaderConfig
from erag_ray.models.base import (
    DEFAULT_BATCH,
    TOKEN_CHARACTERS,
    Model,
    Rendered,
    Resources,
    render_text,
    text_of,
)
from erag_ray.models.loop import LoopThread
from erag_ray.models.outputs import answer_in
from erag_ray.prompts.request import Form, Request, Response
from erag_ray.support.errors import InputError, JobError
from erag_ray.support.user_code import RESUME_ADVICE, one_line

Reader = Callable[[list[str]], Sequence[str] | Awaitable[Sequence[str]]]
"""Prompts to as many outputs, in their order; may be async."""

_FUNCTIONS: dict[tuple[str, str], Reader] = {}


def register_function(function: Reader, name: str, revision: str) -> None:
    """Make a function known to the models of this process; a later one of the same name and revision replaces it."""
    _FUNCTIONS[name, revision] = function


class FunctionModel(Model):
    """A Python function of this process as model: prompts in, as many outputs out (`register_function`).

    ``config.model`` and ``config.revision`` name the function; they stand for the weights in the fingerprint. It gets
    ``config.batch_size`` prompts at a time. The messages of a chat are joined to one text, with a blank line between.
    Token counts are estimates, a token for 4 characters. Nothing is truncated, and the function knows no
    ``max_new_tokens``: no output counts as cut by it. Raises InputError if no function of that name and revision is
    registered in this process.
    """

    revision: ClassVar[int] = 2
    counts_tokens: ClassVar[bool] = False
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    default_prompt: ClassVar[str] = "question_first"

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__(config)
        function = _FUNCTIONS.get((config.model or "", config.revision or ""))
        if function is None:
            text = (
                "a function is a reader in Python alone: erag_ray.compare(reader=erag_ray.Function(...), ...)"
            )
            raise InputError([f"reader.kind: {text}"])
        self.function = function

    @property
    def code(self) -> object:
        return self.function

    def fingerprint_fields(self) -> dict[str, object]:
        return {**super().fingerprint_fields(), "name": self.config.model, "weights": self.config.revision}

    def resources(self) -> Resources:
        return Resources(num_gpus=0, num_cpus=1)

    def check(self, form: Form) -> None:
        if form.max_prompt_tokens is not None:
            text = "a function gets whole prompts; leave it out, and shorten them in the function"
            raise InputError([f"reader.max_prompt_tokens: {text}"])

    def render(self, requests: Sequence[Request]) -> list[Rendered]:
        texts = [_text(request) for request in requests]
        return [Rendered(text=text, num_tokens=_num_tokens(text)) for text in texts]

    def run(self, requests: Sequence[Request]) -> Iterator[tuple[int, Response]]:
        """Call the function, with the prompts of a batch.

        Raises:
            JobError: it returns something else than a text for each prompt: nobody could say whose output is missing.
        """
        size = self.config.batch_size or DEFAULT_BATCH
        for start in range(0, len(requests), size):
            prompts = [_text(request) for request in requests[start : start + size]]
            outputs = self.function(list(prompts))
            if inspect.isawaitable(outputs):
                outputs = self._loop.result(_awaited(outputs))
            if fault := _fault(outputs, len(prompts)):
                raise JobError(f"reader {self.config.model}: the function returned {fault}; {RESUME_ADVICE}")
            for row, (prompt, output) in enumerate(zip(prompts, outputs, strict=True), start):
                yield row, _response(prompt, output)

    @functools.cached_property
    def _loop(self) -> LoopThread:
        return LoopThread()


async def _awaited(outputs: Awaitable[Sequence[str]]) -> Sequence[str]:
    return await outputs


def _fault(outputs: object, count: int) -> str:
    """Return what is wrong with the outputs of a function; "" if nothing is."""
    if isinstance(outputs, str | bytes | bytearray) or not isinstance(outputs, Sequence):
        return f"a {type(outputs).__name__}, not a list of {count} texts"
    if len(outputs) != count:
        return f"{len(outputs)} outputs for {count} prompts"
    wrong = next((number for number, output in enumerate(outputs) if not isinstance(output, str)), None)
    return "" if wrong is None else f"{one_line(repr(outputs[wrong]), 200)} as output {wrong}, not a text"


def _response(prompt: str, output: str) -> Response:
    text, notes = answer_in(output)
    return Response(
        text=text,
        num_prompt_tokens=_num_tokens(prompt),
        num_output_tokens=_num_tokens(output),
        notes=notes if text else (*notes, "empty"),
    )


def _text(request: Request) -> str:
    """Return the prompt as one text: the messages of a chat one after the other."""
    prompt = render_text(request, text_of(request))
    return prompt.text or "\n\n".join(message["content"] for message in prompt.messages)


def _num_tokens(text: str) -> int:
    return math.ceil(len(text) / TOKEN_CHARACTERS)
