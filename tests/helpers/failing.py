"""Models that fail, for jobs whose processes find this folder: they are named as ``failing:Small``."""

import pathlib
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from echoing import MARK

from erag_ray.models import Resources
from erag_ray.models.echo import EchoModel
from erag_ray.models.local.model import LocalModel, Output, PromptTokens
from erag_ray.prompts.request import Failure, Form, Method, Request, Response

TOKENS = 600


class Refuses(EchoModel):
    """Refuses lists of which a document has one of these titles last; without documents it says copper."""

    def answer(self, request: Request) -> Response:
        if not request.passages:
            return Response(text="copper", num_output_tokens=6)
        if request.passages and request.passages[-1].title in ("Elsewhere", "Graz", "Skerry"):
            return Response(failure=Failure("refused", "I cannot help with that"))
        return super().answer(request)


class Changes(EchoModel):
    """To other questions each time it refuses, says nothing of the town, or knows without a passage."""

    def answer(self, request: Request) -> Response:
        number = int(request.question.rpartition(" ")[2])
        if number % 23 == 9 or (number + request.form.repeat) % 11 in (3, 4):
            return Response(failure=Failure("refused", "I cannot help with that"))
        kind = (number**2 + 3 * request.form.repeat) % 11
        known = "nothing" if kind < 4 else f"Person {number}"
        return super().answer(request) if kind == 4 else Response(text=known, num_output_tokens=len(known))


class Tells(EchoModel):
    """Answers with the last title, or copper; has a log-probability for each text by its letters and the passages'."""

    supports: ClassVar[frozenset[Method]] = frozenset({"generate", "loglikelihood"})

    def answer(self, request: Request) -> Response:
        if request.form.method == "generate":
            text = request.passages[-1].title if request.passages else "copper"
            return replace(super().answer(request), text=text, num_output_tokens=len(text))
        seen = [text for passage in request.passages for text in passage]
        sizes = tuple(len(answer.split()) for answer in request.answers)
        numbers = [zlib.crc32("".join([answer, *seen]).encode()) % 26 for answer in request.answers]
        logprobs = tuple(-size * (1 + number) / 8 for size, number in zip(sizes, numbers, strict=True))
        return Response(logprobs=logprobs, num_answer_tokens=sizes, num_output_tokens=sum(sizes))


class Characters(LocalModel):
    """Has batches, and no weights: its tokens are characters, and it answers with the first passage's title."""

    supports: ClassVar[frozenset[Method]] = frozenset({"generate"})

    def resources(self) -> Resources:
        return Resources(num_gpus=0)

    def render(self, requests: Sequence[Request]) -> list[PromptTokens]:
        return [PromptTokens(form=request.form, segments=segments_of(request)) for request in requests]

    def generate(self, prompts: Sequence[PromptTokens]) -> list[Output]:
        titles = ["".join(map(chr, prompt.segments[1])) if prompt.segments[1:] else "" for prompt in prompts]
        return [Output(title, len(title)) for title in titles]

    def loglikelihood(self, prompts: Sequence[PromptTokens]) -> list[list[float]]:
        raise NotImplementedError

    def ends(self, form: Form) -> Collection[int]:
        return ()


def segments_of(request: Request) -> tuple[tuple[int, ...], ...]:
    """The question, then title and text of each passage."""
    texts = [request.question, *(text for passage in request.passages for text in passage)]
    return tuple(tuple(map(ord, text)) for text in texts)


def question_of(prompt: PromptTokens) -> str:
    return "".join(map(chr, prompt.segments[0]))


class Small(Characters):
    """Has memory for so many tokens at once."""

    def generate(self, prompts: Sequence[PromptTokens]) -> list[Output]:
        if sum(prompt.length for prompt in prompts) > TOKENS:
            pathlib.Path(self.config.options["folder"], MARK).touch()
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().generate(prompts)


def refuse(method: str, questions: Iterable[str]) -> None:
    """Raise as a server does, for the questions that name a method."""
    named = [question for question in questions if method in question]
    if named:
        raise RuntimeError(f"429 Too Many\nRequests {named[0]}")


class Picky(EchoModel):
    """Asks for one answer after the other; raises for questions that name its method."""

    calls: int = 0

    def answer(self, request: Request) -> Response:
        self.calls += 1
        refuse("answer", [request.question])
        return super().answer(request)


class PickyInBatches(Characters):
    """Raises in one of its methods for questions that name it, for a whole batch."""

    calls: int = 0

    def render(self, requests: Sequence[Request]) -> list[PromptTokens]:
        refuse("render", [request.question for request in requests])
        return super().render(requests)

    def arrange(self, prompts: Sequence[PromptTokens]) -> None:
        refuse("arrange", map(question_of, prompts))

    def generate(self, prompts: Sequence[PromptTokens]) -> list[Output]:
        self.calls += 1
        refuse("generate", map(question_of, prompts))
        return super().generate(prompts)


class Counting(PickyInBatches):
    """Counts how often each question is tried."""

    tries: Counter[str]

    def generate(self, prompts: Sequence[PromptTokens]) -> list[Output]:
        self.tries.update(map(question_of, prompts))
        return super().generate(prompts)


class NoKey(Picky):
    def answer(self, request: Request) -> Response:
        self.calls += 1
        raise PermissionError("401 Unauthorized")


class Wrong(EchoModel):
    """Gives what is no response, for one question."""

    results: Sequence[Any] = ()

    def run(self, requests: Sequence[Request]) -> Iterator[tuple[int, Response]]:
        for place, request in enumerate(requests):
            if request.question == "wrong":
                yield from self.results
            else:
                yield place, self.answer(request)


class Listed(Characters):
    """Its tokens are no tuples."""

    def render(self, requests: Sequence[Request]) -> list[PromptTokens]:
        return [PromptTokens(form=request.form, segments=([1, 2],)) for request in requests]  # type: ignore[arg-type]


class EndsLate(Characters):
    """Its server is gone after some batches."""

    calls = 0

    def generate(self, prompts: Sequence[PromptTokens]) -> list[Output]:
        self.calls += 1
        if self.calls > 3:
            raise ConnectionError("gone")
        return super().generate(prompts)


class NoLoad(EchoModel):
    def load(self) -> None:
        raise FileNotFoundError("no weights here")
