"""A fake reader without weights, for rehearsals and tests: the same jobs, pools and tables in seconds."""

from __future__ import annotations

import time
from collections.abc import Sequence

from erag_ray.config import ReaderConfig
from erag_ray.readers.base import Output, Prompt, Reader, Request

CHARACTERS = 2000


class EchoReader(Reader):
    """Answers with the title of the passage that shares most words with the question (ties: the first).

    Its tokens are characters: one segment for the question, one of at most ``max_prompt_tokens`` (2000) for each
    passage. Without passages it answers nothing.
    """

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__(config)
        self.limit = config.max_prompt_tokens or CHARACTERS

    def identity(self) -> dict[str, object]:
        return {**super().identity(), "max_prompt_tokens": self.limit}

    def encode(self, requests: Sequence[Request]) -> list[Prompt]:
        return [self._prompt(request) for request in requests]

    def _prompt(self, request: Request) -> Prompt:
        passages = [f"{passage.title}\n{passage.text}" for passage in request.passages]
        texts = [request.question, *(passage[: self.limit] for passage in passages)]
        return Prompt(
            segments=tuple(tuple(map(ord, text)) for text in texts),
            num_truncated_passage_tokens=sum(max(len(passage) - self.limit, 0) for passage in passages),
        )

    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        time.sleep(self.config.delay_seconds * len(prompts))
        answers = [
            _best_title(*("".join(map(chr, segment)) for segment in prompt.segments)) for prompt in prompts
        ]
        return [
            Output(answer[: self.max_new_tokens], len(answer[: self.max_new_tokens])) for answer in answers
        ]


def _best_title(question: str, *passages: str) -> str:
    asked = frozenset(question.lower().split())
    best = max(passages, key=lambda passage: len(asked & frozenset(passage.lower().split())), default="")
    return best.partition("\n")[0]
