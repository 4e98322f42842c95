"""A fake model without weights, for dry runs and tests: the same jobs, pools and tables in seconds."""

import time
from collections.abc import Iterator, Sequence

from erag_ray.models.base import Model, Rendered, Resources
from erag_ray.prompts.request import Request, Response

CHARACTERS = 2000


class EchoModel(Model):
    """Answers with the title of the passage that shares the most words with the question (ties: the first).

    Its tokens are characters: those of the question, and at most ``max_prompt_tokens`` (2000) of each passage. Without
    passages its output is empty.
    """

    def resources(self) -> Resources:
        return Resources(num_gpus=0)

    def render(self, requests: Sequence[Request]) -> list[Rendered]:
        return [_rendered(request) for request in requests]

    def run(self, requests: Sequence[Request]) -> Iterator[tuple[int, Response]]:
        for index, request in enumerate(requests):
            time.sleep(self.config.simulated_latency_seconds)
            yield index, self.answer(request)

    def answer(self, request: Request) -> Response:
        rendered, text = _rendered(request), _best_title(request)[: request.form.max_new_tokens]
        return Response(
            text=text,
            num_prompt_tokens=rendered.num_tokens or 0,
            num_output_tokens=len(text),
            num_truncated_passage_tokens=rendered.num_truncated_passage_tokens,
        )


def _passages(request: Request, limit: int | None = None) -> list[str]:
    return [f"{passage.title}\n{passage.text}"[:limit] for passage in request.passages]


def _rendered(request: Request) -> Rendered:
    shown = _passages(request, request.form.max_prompt_tokens or CHARACTERS)
    num_shown = sum(map(len, shown))
    return Rendered(
        text="\n\n".join([request.question, *shown]),
        num_tokens=len(request.question) + num_shown,
        num_truncated_passage_tokens=sum(map(len, _passages(request))) - num_shown,
    )


def _best_title(request: Request) -> str:
    words = frozenset(request.question.lower().split())
    passages = _passages(request, request.form.max_prompt_tokens or CHARACTERS)
    best = max(passages, key=lambda passage: len(words & frozenset(passage.lower().split())), default="")
    return best.partition("\n")[0]
