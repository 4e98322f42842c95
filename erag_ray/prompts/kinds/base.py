"""The class of all kinds of request, and what they are built from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from erag_ray.config.prompt import PromptConfig
from erag_ray.config.reader import JudgeConfig, ReaderConfig
from erag_ray.data.datasets.tasks import Dataset
from erag_ray.prompts.prompt import custom_prompt, prompt_named
from erag_ray.prompts.request import Form, Passage, Prompt, Request, Response

Value = str | float | None
Role = Literal["reader", "auxiliary_reader", "judge"]
"""Which of the job's models; the key of its config."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """The settings of a dataset and a job from which a kind builds requests."""

    dataset: Dataset
    """Score, length of answers, family of prompts."""
    reader: ReaderConfig
    """The job's reader, or its auxiliary reader for the kinds that ask that one."""
    judge: JudgeConfig
    default_prompt: str = "plain"
    """Name of the reader's prompt where the job names none."""
    scores_texts: bool = True
    """Whether the reader computes log-likelihoods of any text, or only of a next token."""

    @property
    def family(self) -> str:
        """Return the family of the questions, which determines instruction and examples."""
        return self.reader.family or self.dataset.family

    def prompt(self) -> Prompt:
        """Return the reader's prompt; raise ValueError if there is none of the name in the config."""
        config, titles = self.reader.prompt, self.reader.titles
        if isinstance(config, PromptConfig):
            prompt = custom_prompt(config)
        else:
            name, num_examples = config or self.default_prompt, self.reader.num_examples
            prompt = prompt_named(name, self.family, num_examples=num_examples, titles=titles)
        return dataclasses.replace(prompt, titles=titles)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of request, the same for all models and prompts."""

    name: str
    """In tables and messages."""
    build: Callable[[Case], Form]
    """Returns the form of all requests to a dataset."""
    answers: Callable[[Case, Sequence[str]], tuple[str, ...]] = lambda case, gold_answers: ()
    """Returns the answers that a request for log-likelihoods scores, given the gold answers of its question."""
    fold: Callable[[Sequence[str], Response], Value] | None = None
    """Maps a request's answers and its response to the value for annotators and scores; None: the response's text is
    the value."""
    value: type[str] | type[float] = str
    role: Role = "reader"
    """Which of the job's models gets the requests."""
    check: Callable[[Sequence[Sequence[int]]], str] = lambda answer_ids: ""
    """Returns what is wrong with the token ids of the answers, such as a word of several; "" if nothing is."""

    def by_auxiliary(self) -> Kind:
        return dataclasses.replace(self, name=f"auxiliary_{self.name}", role="auxiliary_reader")

    def request(
        self, case: Case, question: str, passages: Sequence[Passage] = (), gold_answers: Sequence[str] = ()
    ) -> Request:
        return Request.of(self.build(case), question, passages, self.answers(case, gold_answers))
