"""What every kind of question is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from erag_ray.config import JudgeConfig, PromptConfig, ReaderConfig
from erag_ray.datasets import Dataset
from erag_ray.requests import Form, Passage, Prompt, Request, Response, own_prompt, prompt_named

Value = str | float | None


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a kind knows of a dataset and a job when it builds requests.

    Attributes:
        dataset: score, length of answers, family of prompts.
        reader: the job's reader.
        judge: the job's judge.
        default_prompt: name of the prompt that the reader's model gets where the job names none.
    """

    dataset: Dataset
    reader: ReaderConfig
    judge: JudgeConfig
    default_prompt: str = "plain"

    @property
    def family(self) -> str:
        """Of questions: which instruction and examples suit them."""
        return self.reader.family or self.dataset.family

    def prompt(self) -> Prompt:
        """The reader's.

        Raises:
            ValueError: the job names one that there is not.
        """
        chosen, titles = self.reader.prompt, self.reader.titles
        if isinstance(chosen, PromptConfig):
            prompt = own_prompt(chosen)
        else:
            name, num = chosen or self.default_prompt, self.reader.num_examples
            prompt = prompt_named(name, self.family, num_examples=num, titles=titles)
        return dataclasses.replace(prompt, titles=titles)


def no_answers(case: Case, gold_answers: Sequence[str]) -> tuple[str, ...]:
    """Of a kind whose requests have none."""
    return ()


def nothing_wrong(answers: Sequence[str], answer_ids: Sequence[Sequence[int]]) -> str:
    """Of a kind whose answers any tokens can tell apart."""
    return ""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of question to a model, written once for all models and prompts.

    Attributes:
        name: for tables and people.
        build: what the requests to a dataset share.
        answers: of one request, from the gold answers of its question; a model sees them only for what its form says.
        fold: the answers of a request and its response -> what annotators and scores get; None: the response's text.
        value: of what is folded.
        asks: which of the job's models.
        check: what is wrong with the answers in tokens, such as two that are one; "" if nothing is.
    """

    name: str
    build: Callable[[Case], Form]
    answers: Callable[[Case, Sequence[str]], tuple[str, ...]] = no_answers
    fold: Callable[[Sequence[str], Response], Value] | None = None
    value: type[str] | type[float] = str
    asks: Literal["reader", "judge"] = "reader"
    check: Callable[[Sequence[str], Sequence[Sequence[int]]], str] = nothing_wrong

    def request(
        self, case: Case, question: str, passages: Sequence[Passage] = (), gold_answers: Sequence[str] = ()
    ) -> Request:
        """One request."""
        return Request.of(self.build(case), question, passages, self.answers(case, gold_answers))
