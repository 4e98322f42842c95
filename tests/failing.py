"""Readers that fail, for jobs whose processes find this folder: they are named as ``failing:Exits``."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from erag_ray.readers import Output, Prompt, Request
from erag_ray.readers.echo import EchoReader

MARK = "ERAG_RAY_TEST_MARK"
FATAL = "what is q15"
TOKENS = 600


class Exits(EchoReader):
    """Ends its process at a question, where the file that ``ERAG_RAY_TEST_MARK`` names is not there yet."""

    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        if any(question_of(prompt) == FATAL for prompt in prompts):
            mark = pathlib.Path(os.environ[MARK])
            if not mark.exists():
                mark.touch()
                os._exit(1)
        return super().generate(prompts)


class Small(EchoReader):
    """Has memory for so many tokens at once."""

    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        if sum(prompt.num_tokens for prompt in prompts) > TOKENS:
            pathlib.Path(os.environ[MARK]).touch()
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().generate(prompts)


class Picky(EchoReader):
    """Raises in one of its methods for questions that name it."""

    calls: int = 0

    def encode(self, requests: Sequence[Request]) -> list[Prompt]:
        refuse("encode", [request.question for request in requests])
        return super().encode(requests)

    def begin(self, prompts: Sequence[Prompt]) -> None:
        refuse("begin", map(question_of, prompts))

    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        self.calls += 1
        refuse("generate", map(question_of, prompts))
        return super().generate(prompts)


def question_of(prompt: Prompt) -> str:
    return "".join(map(chr, prompt.segments[0]))


def refuse(method: str, questions: Iterable[str]) -> None:
    """Raise as a server does, for the questions that name a method."""
    named = [question for question in questions if method in question]
    if named:
        raise RuntimeError(f"429 Too Many\nRequests {named[0]}")


class Counting(Picky):
    """Counts how often each question is tried."""

    tries: dict[str, int]

    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        for prompt in prompts:
            question = question_of(prompt)
            self.tries[question] = self.tries.get(question, 0) + 1
        return super().generate(prompts)


class NoKey(Picky):
    """Raises for every request."""

    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        self.calls += 1
        raise PermissionError("401 Unauthorized")


class Wrong(EchoReader):
    """Gives what is none of its outputs, for one question."""

    results: Sequence[Any] = ()

    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        if any(question_of(prompt) == "wrong" for prompt in prompts):
            return list(self.results)
        return super().generate(prompts)


class Listed(EchoReader):
    def encode(self, requests: Sequence[Request]) -> list[Prompt]:
        return [Prompt(segments=([1, 2],)) for _ in requests]  # type: ignore[arg-type]


class EndsLate(EchoReader):
    """Its server is gone after some batches."""

    calls = 0

    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        self.calls += 1
        if self.calls > 3:
            raise ConnectionError("gone")
        return super().generate(prompts)


class NoLoad(EchoReader):
    def load(self) -> None:
        raise FileNotFoundError("no weights here")
